"""A site's round: its edge and its devices exchange models several times before the cloud hears of it."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from remanence.core.choosing import Chooser, use_up
from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.parts import Optimise, Select, Topology
from remanence.core.pooled import Pool
from remanence.core.server import Exchange, Rules, Sent, Server
from remanence.core.state import State, clone
from remanence.engine.local import SerialEngine
from remanence.engine.worker import Worker

Recall = Callable[[int], State | None]


@dataclass(frozen=True)
class SitePlan:
    """What every site of a run needs to know."""

    members: Sequence[Sequence[int]]  # the devices of each site
    per_exchange: int
    topology: Topology
    select: Select
    rules: Rules
    plain: Optimise  # the server optimiser acts at the cloud alone


@dataclass(slots=True)
class SiteJob:
    """What the cloud gives an edge for a round."""

    site: int
    w: Tensor
    state: State  # what the edge keeps: srv, used, told
    whole: Any  # class counts of the fleet, or None
    expected: Message | None
    recall: Recall
    own: bool  # whether the devices' own models are measured, in the last iteration


@dataclass
class SiteReply:
    """What comes back: the model, what the edge keeps, its devices' new states, and numbers for the event log."""

    site: int
    w: Tensor
    samples: int  # behind the uploads that reached the edge
    state: State
    devices: dict[int, State]
    log: "SiteLog"
    sent: Sent


@dataclass
class SiteLog:
    """What happened in a site's round, for the event log."""

    selected: Counter[int] = field(default_factory=Counter)  # device -> iterations
    counted: Counter[int] = field(default_factory=Counter)
    refused: dict[str, str] = field(default_factory=dict)  # device@iteration -> why
    mixes: list[np.ndarray] = field(default_factory=list)  # class counts of every iteration's group
    correct: dict[int, Tensor] = field(default_factory=dict)  # of the devices' own models
    method: dict[str, float] = field(default_factory=dict)
    loss: float = 0.0  # summed over steps
    steps: int = 0
    samples: int = 0
    largest_weight: float = 0.0
    bytes_down: int = 0
    bytes_up: int = 0
    told: int = 0  # bytes of the devices' reports
    selecting: float = 0.0  # seconds

    def add(self, exchange: Exchange, tick: int) -> None:
        self.selected.update(exchange.chosen)
        self.counted.update(exchange.counted)
        self.refused |= {f"{device}@{tick}": why for device, why in sorted(exchange.refused.items())}
        steps = exchange.over_counted("steps")
        self.loss += (exchange.loss or 0.0) * steps
        self.steps += steps
        self.samples += exchange.over_counted("samples")
        self.largest_weight = max(self.largest_weight, exchange.largest_weight or 0.0)
        self.bytes_down += exchange.bytes_down
        self.bytes_up += exchange.bytes_up
        for device in exchange.counted:
            correct = exchange.replies[device].correct
            if correct is not None:
                self.correct[device] = correct


@dataclass
class _SiteStates:
    """The states of a site's devices during a round: read where they are kept, collected until the round counts."""

    recall: Recall
    new: dict[int, State] = field(default_factory=dict)
    known: dict[int, bool] = field(default_factory=dict)

    def __contains__(self, device: int) -> bool:
        if device not in self.new and device not in self.known:
            self.known[device] = self.recall(device) is not None
        return device in self.new or self.known[device]

    def get(self, device: int) -> State | None:
        return clone(self.new[device]) if device in self.new else self.recall(device)

    def put(self, device: int, state: State, round: int) -> None:
        self.new[device] = state


class Site:
    """Plays the rounds of any site with one worker's networks."""

    def __init__(self, worker: Worker, plan: SitePlan) -> None:
        self.worker, self.plan = worker, plan
        self.engine = SerialEngine(worker.task, worker)
        self.scratch = worker.task.network()
        self.pool = Pool.of(worker, plan.topology, plan.rules.quorum)

    def play(self, job: SiteJob, ctx: Context) -> SiteReply:
        task, plan = self.worker.task, self.plan
        members = plan.members[job.site]
        ctx = replace(ctx, devices=len(members), net=self.scratch)
        states = _SiteStates(job.recall)
        server = Server(
            task.method,
            task.merge,
            plan.plain,
            plan.rules,
            self.scratch,
            states,
            job.w,
            job.state["srv"],
            {},
            job.expected,
        )
        used = dict(job.state["used"])
        chooser = Chooser(
            plan.select, task.fleet, members, plan.per_exchange, plan.rules.seed, job.whole, dict(job.state["told"])
        )
        log = SiteLog()
        for moment in _iterations(ctx, plan.topology.iterations):
            last = moment.tick == ctx.round * plan.topology.iterations
            started = time.perf_counter()
            chosen = chooser.choose(moment.tick, moment.round, used, (job.site,))
            log.selecting += time.perf_counter() - started
            log.told += chooser.bytes
            if chosen:
                log.mixes.append(task.fleet.joint(chosen, moment.tick, used))
                log.add(self._exchange(server, moment, chosen, used, job.own and last), moment.tick)
            use_up(task.fleet, chosen, used)
        state = {"srv": server.srv, "used": used, "told": chooser.told}
        log.method = task.method.facts(server.srv)
        return SiteReply(job.site, server.w, log.samples, state, states.new, log, server.sent)

    def _exchange(self, server: Server, ctx: Context, chosen: list[int], used: dict[int, int], own: bool) -> Exchange:
        pooled = None if self.pool is None else self.pool.exchange(server, ctx, chosen, used, own)
        return pooled or server.exchange(ctx, self.engine, chosen, used, own)


def _iterations(ctx: Context, iterations: int) -> Iterator[Context]:
    for tick in range((ctx.round - 1) * iterations + 1, ctx.round * iterations + 1):
        yield replace(ctx, tick=tick, scratch={})
