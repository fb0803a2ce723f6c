"""A federation: the server's state, the devices' states, and the rounds that change them."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from remanence.core.collect import Collector
from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.parts import Merge, Optimise, Select
from remanence.core.rng import key, numpy_generator
from remanence.core.state import State
from remanence.engine.choose import choose_engine
from remanence.engine.local import Engine
from remanence.engine.options import EngineOptions
from remanence.engine.worker import Job, Reply, Task, Worker
from remanence.errors import UserError
from remanence.measure.record import Measure, Recorder
from remanence.runs.devices import DeviceStates

Event = dict[str, Any]
Schedule = Callable[[int], Sequence[int]]  # round -> the devices that take part


@dataclass(frozen=True)
class Plan:
    """Everything that defines a run."""

    task: Task
    rounds: int
    per_round: int
    select: Select
    optimise: Optimise
    engine: EngineOptions
    measure: Measure
    sampling_seed: int = 0
    schedule: Schedule | None = None  # given by the user instead of `select`

    def __post_init__(self) -> None:
        """Refuse what cannot work together."""
        method, context = self.task.method, self.task.context
        for part in (self.select, self.merge, self.optimise, self.task.privacy):
            part.check(method, context)
        for name, public in ((method.name, method.public_data), (self.merge.name, self.merge.public_data)):
            if public and context.public is None:
                raise UserError(f"public: {name} needs unlabelled samples at the server: data.public, or public=x")
        self.notes()

    def notes(self) -> list[str]:
        """About who holds what, for people."""
        return self.task.method.examine(self.task.fleet)

    @property
    def merge(self) -> Merge:
        return self.task.merge


class Trained(NamedTuple):
    """What is left of a reply once its upload and state have been handed on."""

    loss: float
    steps: int
    correct: Tensor | None


class Federation:
    def __init__(self, plan: Plan, states: DeviceStates | None = None) -> None:
        self.plan, self.method = plan, plan.task.method
        self.states = DeviceStates() if states is None else states
        self.net = plan.task.network()
        self.recorder = Recorder(plan.measure, plan.rounds, plan.task.fleet, plan.task.test)
        self.round = 0
        self.w = self.net.copy()
        self.srv: State = self.method.open_server(self.net, self.context(0))
        self.optimiser: State = plan.optimise.open(self.w[: self.net.size])
        self.pending: dict[int, State] = {}  # of devices whose uploads may still be refused in this round
        self.expected: Message | None = None
        self.engine: Engine | None = None
        self.engine_line = ""
        self.sent = {"down": 0, "up": 0, "held": 0}  # bytes of one message down, one up, and held in training

    def __enter__(self) -> "Federation":
        self.engine, self.engine_line = choose_engine(self.plan.task, self.plan.engine, self.plan.per_round)
        return self

    def __exit__(self, *_: object) -> None:
        if self.engine is not None:
            self.engine.close()

    def context(self, round: int) -> Context:
        base = self.plan.task.context
        return replace(base, round=round, lr=base.train.rate(max(1, round)), net=self.net, scratch={})

    def play(self) -> Iterator[Event]:
        """The rounds that are left, one event each."""
        while self.round < self.plan.rounds:
            yield self.play_round()

    def play_round(self) -> Event:
        ctx = self.context(self.round + 1)
        chosen = self.choose(ctx.round)
        messages = {device: self._message(device, ctx) for device in chosen}
        collector = self._collector(chosen, ctx)
        replies = self._carry(messages, collector, ctx)
        merged = collector.finish()
        if merged:
            self._step(merged, ctx)
        for device in collector.counted:
            if device in self.pending:
                self.states.put(device, self.pending[device], ctx.round)
        self.pending.clear()
        self.round = ctx.round
        if collector.size:
            self.sent["up"] = collector.size
        return self._event(ctx, chosen, messages, collector, replies)

    def _message(self, device: int, ctx: Context) -> Message:
        message = self.method.down(self.w, device, self.srv, ctx)
        self.sent["down"] = message.size()  # without what is sent but once
        if self.plan.merge.public_on_devices and device not in self.states:
            assert ctx.public is not None
            message["public"] = ctx.public.x
        return message

    def choose(self, round: int) -> list[int]:
        if self.plan.schedule is not None:
            return sorted(self.plan.schedule(round))
        everyone = range(len(self.plan.task.fleet.sizes))
        return self.plan.select.choose(everyone, self.plan.per_round, self._draw("select", round))

    def _draw(self, purpose: str, round: int) -> Any:
        return numpy_generator(self.plan.sampling_seed, purpose, round)

    def _collector(self, chosen: Sequence[int], ctx: Context) -> Collector:
        options = self.plan.engine
        quorum = math.ceil(options.quorum * len(chosen) - 1e-9)  # 0.07 * 100 is a little more than 7
        # Who answers first is drawn, not measured, so that a quorum gives the same result on any machine.
        arrivals = self._draw("arrivals", ctx.round).permutation(chosen).tolist() if quorum < len(chosen) else chosen
        return Collector(
            self.method,
            self.plan.merge,
            self.w,
            self.srv,
            ctx,
            arrivals,
            quorum,
            options.largest_upload,
            self.net.integers,
            self._expected(ctx),
        )

    def _expected(self, ctx: Context) -> Message:
        """What an upload must look like, whoever sends it."""
        if self.expected is None:
            message = self._message(0, ctx)
            self.expected = Worker(self.plan.task).rehearse(message, replace(ctx, scratch={}))
        return self.expected

    def _carry(self, messages: dict[int, Message], collector: Collector, ctx: Context) -> dict[int, Trained]:
        """Let the devices train; hand every answer to the collector as it comes."""
        assert self.engine is not None, "a federation is used as a context manager"
        lost = {device for device in messages if self._is_lost(device, ctx.round)}
        for device in sorted(lost):
            collector.take(device, None, "lost on the way")
        own = self.recorder.measures_devices(ctx.round)
        jobs = [
            Job(device, message, partial(self.states.get, device), own)
            for device, message in messages.items()
            if device not in lost
        ]
        replies: dict[int, Trained] = {}
        deadline, started = self.plan.engine.deadline, time.monotonic()
        for reply in self.engine.run(ctx, jobs):
            if deadline and time.monotonic() - started > deadline:
                break
            self._receive(reply, collector, ctx.round)
            self.sent["held"] = max(self.sent["held"], reply.held)
            replies[reply.device] = Trained(reply.loss, reply.steps, reply.correct)
        return replies

    def _receive(self, reply: Reply, collector: Collector, round: int) -> None:
        """The device's new state is kept as soon as it is certain that its upload counts."""
        collector.take(reply.device, reply.upload, reply.reason)
        if reply.device in collector.refused:
            return
        if collector.holds:
            self.pending[reply.device] = reply.dev
        elif reply.dev:
            self.states.put(reply.device, reply.dev, round)

    def _is_lost(self, device: int, round: int) -> bool:
        share = self.plan.engine.lost
        return bool(share) and key(self.plan.sampling_seed, "lost", round, device) < share * 2**63

    def _step(self, merged: dict[str, Any], ctx: Context) -> None:
        target = self.method.step(self.w, merged, self.srv, ctx)
        trained, integers = self.net.size, self.net.integers
        stepped = self.plan.optimise.step(self.w[:trained], target[:trained], self.optimiser)
        if stepped.data_ptr() != target.data_ptr():
            target = torch.cat([stepped, target[trained:]])
        if integers.stop > integers.start:
            target[integers] = merged["counters"]
        self.w = target

    def _event(
        self,
        ctx: Context,
        chosen: Sequence[int],
        messages: dict[int, Message],
        collector: Collector,
        replies: dict[int, Trained],
    ) -> Event:
        counted = collector.counted
        steps = sum(replies[device].steps for device in counted)
        loss = sum(replies[device].loss * replies[device].steps for device in counted) / steps if steps else None
        event = {
            "event": "round",
            "round": ctx.round,
            "lr": ctx.lr,
            "selected": list(chosen),
            "counted": counted,
            "refused": {str(device): reason for device, reason in sorted(collector.refused.items())},
            "loss": loss,
            "largest_weight": collector.largest_weight,
            "bytes_down": sum(message.size() for message in messages.values()),
            "bytes_up": collector.bytes,
        }
        event |= self.method.facts(self.srv)
        if self.recorder.measures(ctx.round):
            assert self.engine is not None
            event |= self.recorder.server(self.w, self.engine)
            raw = self.plan.optimise.raw(self.optimiser)
            if raw is not None:
                event["raw"] = self.recorder.server(torch.cat([raw, self.w[self.net.size :]]), self.engine)
        own = {device: replies[device].correct for device in counted}
        event |= self.recorder.devices(own)
        return event | (self._everyone() if self.recorder.measures_all(ctx.round) else {})

    def _everyone(self) -> Event:
        """What every device would make of the model; nothing of it is kept."""
        assert self.engine is not None
        ctx = self.context(self.round + 1)
        jobs = [
            Job(device, self._message(device, ctx), partial(self.states.get, device), True)
            for device in range(len(self.plan.task.fleet.sizes))
        ]
        own = {reply.device: reply.correct for reply in self.engine.run(ctx, jobs)}
        return {"client_acc_all": self.recorder.devices(own)["client_acc_global"]}

    def model(self) -> Any:
        """A plain module with the present weights."""
        net = self.plan.task.network()
        net.load(self.w)
        return net.module

    def tree(self) -> State:
        """All that a checkpoint must hold."""
        return {
            "round": self.round,
            "w": self.w,
            "srv": self.srv,
            "optimise": self.optimiser,
            "sent": dict(self.sent),
            "devices": self.states.checkpoint(),
        }

    def restore(self, tree: State) -> None:
        self.round, self.w, self.srv, self.optimiser = tree["round"], tree["w"], tree["srv"], tree["optimise"]
        self.sent = dict(tree["sent"])
        self.states.restore(tree["devices"])
