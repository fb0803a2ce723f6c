"""Sites on this machine: each plays its round in one of the worker processes, or one after another in this one."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.server import Sent
from remanence.core.site import Site, SiteJob, SiteLog, SitePlan, SiteReply
from remanence.core.state import State
from remanence.engine.choose import number_of_workers
from remanence.engine.local import PoolEngine, SerialEngine, WorkerServer
from remanence.engine.options import EngineOptions
from remanence.engine.worker import Task
from remanence.errors import UserError


class SiteEngine(Protocol):
    def play(self, ctx: Context, jobs: Sequence[SiteJob]) -> Iterator[SiteReply]:
        """The sites' rounds, in any order."""
        ...

    def measure(self, w: Tensor) -> tuple[Tensor, float]: ...
    def close(self) -> None: ...

    @property
    def workers(self) -> list[int]: ...


def choose_site_engine(task: Task, plan: SitePlan, options: EngineOptions) -> tuple[SiteEngine, str]:
    if options.cohort == "on":
        raise UserError("engine.cohort: 'on' is not possible here: devices of sites are not stacked")
    workers = number_of_workers(options, len(plan.members))
    many = f"{len(plan.members)} sites"
    if workers == 1:
        return SerialSites(task, plan), f"{many}, one after another in this process"
    return PoolSites(task, plan, workers), f"{many} in {workers} worker processes, one thread each"


class SerialSites(SerialEngine):
    def __init__(self, task: Task, plan: SitePlan) -> None:
        super().__init__(task)
        self.site = Site(self.worker, plan)

    def play(self, ctx: Context, jobs: Sequence[SiteJob]) -> Iterator[SiteReply]:
        for job in jobs:
            yield self.site.play(job, ctx)


class PoolSites(PoolEngine):
    def __init__(self, task: Task, plan: SitePlan, workers: int) -> None:
        super().__init__(task, workers, lambda: SiteServer(task, plan))

    def play(self, ctx: Context, jobs: Sequence[SiteJob]) -> Iterator[SiteReply]:
        if not jobs:
            return
        self.recall = jobs[0].recall
        first = jobs[0]
        expected = None if first.expected is None else [list(each) for each in _kinds(first.expected)]
        whole = None if first.whole is None else torch.from_numpy(first.whole)
        common = {"w": first.w, "whole": whole, "expected": expected, "own": first.own}
        self._tell_all({"do": "round", "facts": self.facts(ctx), "common": common})
        for answer in self._share({"do": "site", "site": job.site, "state": job.state} for job in jobs):
            yield _reply(answer)


class SiteServer(WorkerServer):
    """A worker behind a pipe that plays whole sites; it asks for its devices' states one by one."""

    def __init__(self, task: Task, plan: SitePlan) -> None:
        super().__init__(task)
        self.site = Site(self.worker, plan)

    def _answer(self, order: dict[str, Any]) -> dict[str, Any] | None:
        if order["do"] != "site":
            return super()._answer(order)
        common = self.common
        job = SiteJob(
            order["site"],
            common["w"],
            order["state"],
            None if common["whole"] is None else common["whole"].numpy(),
            None if common["expected"] is None else _outline(common["expected"]),
            self.ask,
            common["own"],
        )
        return _answer(self.site.play(job, replace(self.worker.task.context, **self.facts)))


def _kinds(expected: Message) -> Iterator[tuple[str, str, list[int] | None]]:
    """Names, types and shapes, without the tensors; no shape for numbers."""
    for name, value in expected.items():
        tensor = isinstance(value, Tensor)
        yield name, str(value.dtype if tensor else type(value).__name__), list(value.shape) if tensor else None


def _outline(kinds: Sequence[Sequence[Any]]) -> Message:
    numbers = {"int": 0, "float": 0.0}
    return Message(
        {
            name: numbers[kind]
            if shape is None
            else torch.zeros((), dtype=getattr(torch, kind.removeprefix("torch."))).expand(shape)
            for name, kind, shape in kinds
        }
    )


def _answer(reply: SiteReply) -> dict[str, Any]:
    log = dict(vars(reply.log)) | {
        "selected": dict(reply.log.selected),
        "counted": dict(reply.log.counted),
        "mixes": [torch.from_numpy(mix) for mix in reply.log.mixes],
    }
    names = ("site", "w", "samples", "state", "devices")
    return {name: getattr(reply, name) for name in names} | {"log": log, "sent": reply.sent.tree()}


def _reply(answer: dict[str, Any]) -> SiteReply:
    log: State = answer["log"]
    log |= {
        "selected": Counter(log["selected"]),
        "counted": Counter(log["counted"]),
        "mixes": [mix.numpy() for mix in log["mixes"]],
    }
    return SiteReply(**answer | {"log": SiteLog(**log), "sent": Sent(**answer["sent"])})
