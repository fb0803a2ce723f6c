"""A federation: the models, the states, and the rounds that change them."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from remanence.core.context import Context
from remanence.core.direct import Direct
from remanence.core.hierarchy import Hierarchy
from remanence.core.plan import Event, Plan
from remanence.core.state import State
from remanence.engine.worker import Job
from remanence.measure.record import Recorder
from remanence.runs.devices import DeviceStates


def _finite(event: Event) -> Event:
    """JSON has no infinity."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in event.items()}


class Federation:
    def __init__(self, plan: Plan, states: DeviceStates | None = None) -> None:
        self.plan, self.method = plan, plan.task.method
        self.states = DeviceStates() if states is None else states
        self.net = plan.task.network()
        self.recorder = Recorder(plan.measure, plan.rounds, plan.task.fleet, plan.task.test)
        self.round = 0
        self.selecting = 0.0  # seconds of the last round in which devices were chosen
        shape = Hierarchy if plan.topology.sites else Direct
        self.rounds: Direct | Hierarchy = shape(plan, self.net, self.states, self.context(0))
        self.engine: Any = None
        self.engine_line = ""

    def __enter__(self) -> "Federation":
        self.engine, self.engine_line = self.rounds.open_engine()
        return self

    def __exit__(self, *_: object) -> None:
        if self.engine is not None:
            self.engine.close()

    @property
    def w(self) -> Tensor:
        return self.rounds.server.w

    @property
    def srv(self) -> State:
        return self.rounds.srv

    @property
    def optimiser(self) -> State:
        return self.rounds.server.optimiser

    @property
    def sent(self) -> dict[str, int]:
        return self.rounds.server.sent.tree()

    def choose(self, round: int) -> list[int]:
        """Who takes part in a round without sites."""
        assert isinstance(self.rounds, Direct)
        return self.rounds.choose(round)

    def context(self, round: int) -> Context:
        base = self.plan.task.context
        return replace(base, round=round, tick=round, lr=base.train.rate(max(1, round)), net=self.net, scratch={})

    def play(self) -> Iterator[Event]:
        """The rounds that are left, one event each."""
        while self.round < self.plan.rounds:
            yield self.play_round()

    def play_round(self) -> Event:
        assert self.engine is not None, "a federation is used as a context manager"
        ctx = self.context(self.round + 1)
        played = self.rounds.play(ctx, self.engine, self.recorder.measures_devices(ctx.round))
        self.round, self.selecting = ctx.round, played.selecting
        event = {"event": "round", "round": ctx.round, "lr": ctx.lr} | _finite(played.event)
        if self.recorder.measures(ctx.round):
            event |= self.recorder.server(self.w, self.engine)
            raw = self.plan.optimise.raw(self.optimiser)
            if raw is not None:
                event["raw"] = self.recorder.server(torch.cat([raw, self.w[self.net.size :]]), self.engine)
        event |= self.recorder.devices(played.correct)
        return event | (self._everyone() if self.recorder.measures_all(ctx.round) else {})

    def _everyone(self) -> Event:
        """What every device would make of the model; nothing of it is kept."""
        assert isinstance(self.rounds, Direct)
        ctx, server = self.context(min(self.round + 1, self.plan.rounds)), self.rounds.server
        jobs = [
            Job(device, server.message(device, ctx), partial(self.states.get, device), True)
            for device in range(len(self.plan.task.fleet.sizes))
        ]
        own = {reply.device: reply.correct for reply in self.engine.run(ctx, jobs)}
        return {"client_acc_all": self.recorder.devices(own).get("client_acc_global")}

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
            "optimise": self.optimiser,
            "sent": self.sent,
            "devices": self.states.checkpoint(),
            **self.rounds.tree(),
        }

    def restore(self, tree: State) -> None:
        server = self.rounds.server
        self.round, server.w, server.optimiser = tree["round"], tree["w"], tree["optimise"]
        server.sent.most(tree["sent"])
        self.rounds.restore(tree)
        self.states.restore(tree["devices"])
