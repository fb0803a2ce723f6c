"""A server and the devices that it talks to directly: one exchange, from what is sent to the new model.

The cloud is one; so is the edge of a site, towards its devices; and so is the cloud again, towards its sites.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from remanence.core.collect import Collector
from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.method import Method
from remanence.core.parts import Merge, Optimise
from remanence.core.rng import key, numpy_generator
from remanence.core.state import State
from remanence.core.vector import FlatModel
from remanence.engine.local import Engine
from remanence.engine.worker import Job, Reply


class States(Protocol):
    """What devices keep between rounds."""

    def __contains__(self, device: int) -> bool: ...
    def get(self, device: int) -> State | None: ...
    def put(self, device: int, state: State, round: int) -> None: ...


@dataclass(frozen=True)
class Rules:
    """How a server treats what its devices send."""

    seed: int  # of what it draws
    quorum: float = 1.0
    lost: float = 0.0
    deadline: float = 0.0
    largest: int = 2**31
    least: int = 1  # samples behind an upload


class Trained(NamedTuple):
    """What is left of a reply once its upload and state have been handed on."""

    loss: float
    steps: int
    samples: int
    correct: Tensor | None


@dataclass
class Exchange:
    """What an exchange came to."""

    chosen: Sequence[int]
    counted: list[int]
    refused: dict[int, str]
    replies: Mapping[int, Trained]
    bytes_down: int
    bytes_up: int
    largest_weight: float | None

    def over_counted(self, name: str) -> int:
        return sum(getattr(self.replies[device], name) for device in self.counted)

    @property
    def loss(self) -> float | None:
        """Mean over the steps of the counted devices."""
        steps = self.over_counted("steps")
        return sum(self.replies[d].loss * self.replies[d].steps for d in self.counted) / steps if steps else None


@dataclass
class Sent:
    """Bytes of one message down, one up, and what a device holds in training."""

    down: int = 0
    up: int = 0
    held: int = 0

    def tree(self) -> State:
        return dict(vars(self))

    def most(self, other: Mapping[str, int]) -> None:
        for name, number in other.items():
            setattr(self, name, max(getattr(self, name), number))


@dataclass
class Server:
    method: Method
    merge: Merge
    optimise: Optimise
    rules: Rules
    net: FlatModel  # scratch
    states: States
    w: Tensor
    srv: State
    optimiser: State
    expected: Message | None = None  # what an upload must look like; None: like the first
    sent: Sent = field(default_factory=Sent)
    bytes_down: int = 0  # of the messages of this exchange
    pending: dict[int, State] = field(default_factory=dict)  # of devices whose uploads may still be refused

    def exchange(
        self, ctx: Context, engine: Engine, chosen: Sequence[int], used: Mapping[int, int], own: bool
    ) -> Exchange:
        """`used`: batches that devices have taken from their streams; `own`: whether their models are measured."""
        self.bytes_down = 0
        messages = {device: self.message(device, ctx) for device in chosen}
        collector = self.collector(chosen, ctx)
        replies = self._carry(messages, collector, engine, ctx, used, own)
        self.finish(collector, ctx)
        return Exchange(
            chosen,
            collector.counted,
            collector.refused,
            replies,
            self.bytes_down,
            collector.bytes,
            collector.largest_weight,
        )

    def finish(self, collector: Collector, ctx: Context) -> None:
        """The new model, and the states of the devices that were counted."""
        merged = collector.finish()
        if merged:
            self._step(merged, ctx)
        for device in collector.counted:
            if device in self.pending:
                self.states.put(device, self.pending[device], ctx.round)
        self.pending.clear()
        if collector.size:
            self.sent.up = collector.size

    def message(self, device: int, ctx: Context) -> Message:
        message = self.method.down(self.w, device, self.srv, ctx)
        usual = Message({name: value for name, value in message.items() if name not in self.method.once})
        size = message.size()
        self.sent.down = usual.size() if len(usual) < len(message) else size  # without what is sent but once
        if self.merge.public_on_devices and device not in self.states:
            assert ctx.public is not None
            message["public"] = ctx.public.x
            size = message.size()
        self.bytes_down += size
        return message

    def _draw(self, purpose: str, ctx: Context) -> Any:
        return numpy_generator(self.rules.seed, purpose, ctx.tick)

    def collector(self, chosen: Sequence[int], ctx: Context) -> Collector:
        quorum = math.ceil(self.rules.quorum * len(chosen) - 1e-9)  # 0.07 * 100 is a little more than 7
        # Who answers first is drawn, not measured, so that a quorum gives the same result on any machine.
        arrivals = self._draw("arrivals", ctx).permutation(chosen).tolist() if quorum < len(chosen) else chosen
        return Collector(
            self.method,
            self.merge,
            self.w,
            self.srv,
            replace(ctx, net=self.net),
            arrivals,
            quorum,
            self.rules.largest,
            self.net.integers,
            self.expected,
            self.rules.least,
        )

    def _carry(
        self,
        messages: dict[int, Message],
        collector: Collector,
        engine: Engine,
        ctx: Context,
        used: Mapping[int, int],
        own: bool,
    ) -> dict[int, Trained]:
        """Let the devices train; hand every answer to the collector as it comes."""
        lost = {device for device in messages if self.is_lost(device, ctx)}
        for device in sorted(lost):
            collector.take(device, None, "lost on the way")
        jobs = [
            Job(device, message, partial(self.states.get, device), own, used.get(device, 0))
            for device, message in messages.items()
            if device not in lost
        ]
        replies: dict[int, Trained] = {}
        started = time.monotonic()
        for reply in engine.run(ctx, jobs):
            if self.rules.deadline and time.monotonic() - started > self.rules.deadline:
                break
            self._receive(reply, collector, ctx.round)
            self.sent.held = max(self.sent.held, reply.held)
            replies[reply.device] = Trained(reply.loss, reply.steps, reply.samples, reply.correct)
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

    def is_lost(self, device: int, ctx: Context) -> bool:
        share = self.rules.lost
        return bool(share) and key(self.rules.seed, "lost", ctx.tick, device) < share * 2**63

    def _step(self, merged: dict[str, Any], ctx: Context) -> None:
        target = self.method.step(self.w, merged, self.srv, ctx)
        trained, integers = self.net.size, self.net.integers
        stepped = self.optimise.step(self.w[:trained], target[:trained], self.optimiser)
        if stepped.data_ptr() != target.data_ptr():
            target = torch.cat([stepped, target[trained:]])
        if integers.stop > integers.start:
            target[integers] = merged["counters"]
        self.w = target
