"""The limit of an engine: the same devices train in as many processes, with no server and no messages."""

import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Protocol

import torch

from benchmarks.federated import workload_plan
from benchmarks.workloads import Settings
from remanence.core.federation import Federation
from remanence.core.state import State
from remanence.engine.choose import choose_engine
from remanence.engine.memory import keep_freed_blocks, one_thread
from remanence.engine.worker import Job, Worker

Work = Sequence[tuple[int, int]]  # (round, device)


class Carrier(Protocol):
    def train(self, work: Work) -> None: ...

    def close(self) -> None: ...


@contextmanager
def bare_loop(settings: Settings) -> Iterator[tuple[Callable[[int], None], dict[str, Any]]]:
    with one_thread():
        federation = Federation(workload_plan(settings))  # never entered: it only says who trains with what
        carrier = _carrier(federation, settings)
        try:
            yield BareLoop(federation, carrier).play, {}
        finally:
            carrier.close()


class BareLoop:
    def __init__(self, federation: Federation, carrier: Carrier) -> None:
        self.federation, self.carrier, self.round = federation, carrier, 0

    def play(self, rounds: int) -> None:
        first, self.round = self.round + 1, self.round + rounds
        self.carrier.train(
            [(number, device) for number in range(first, self.round + 1) for device in self.federation.choose(number)]
        )


class Single:
    """One device after another, from the model that the run began with."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.worker = Worker(federation.plan.task)
        self.states: dict[int, State] = {}

    def train(self, work: Work) -> None:
        for number, device in work:
            job = bare_job(self.federation, number, device, partial(self.states.get, device))
            context = replace(self.federation.plan.task.context, round=number, tick=number)
            self.states[device] = self.worker.work(job, context).dev

    def close(self) -> None: ...


class Stacked:
    """The devices of a round in one stack."""

    def __init__(self, federation: Federation) -> None:
        plan = federation.plan
        options = replace(plan.engine, cohort="on")
        self.federation, self.engine = federation, choose_engine(plan.task, options, plan.per_round)[0]
        self.states: dict[int, State] = {}

    def train(self, work: Work) -> None:
        for number in sorted({number for number, _ in work}):
            jobs = [
                bare_job(self.federation, number, device, partial(self.states.get, device))
                for other, device in work
                if other == number
            ]
            for reply in self.engine.run(self.federation.context(number), jobs):
                self.states[reply.device] = reply.dev

    def close(self) -> None:
        self.engine.close()


class Pooled:
    """Forked processes with one thread each that take the next device as soon as they are free."""

    def __init__(self, federation: Federation, workers: int) -> None:
        fork = multiprocessing.get_context("fork")
        self.next = fork.Value("q", 0)
        self.connections: list[Connection] = []
        for _ in range(workers):
            ours, theirs = fork.Pipe()
            self.connections.append(ours)
            fork.Process(
                target=_serve, args=(federation, self.next, theirs, list(self.connections)), daemon=True
            ).start()
            theirs.close()

    def train(self, work: Work) -> None:
        self.next.value = 0
        for connection in self.connections:
            connection.send_bytes(json.dumps(work).encode())
        for connection in self.connections:
            connection.recv_bytes()

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


def _serve(federation: Federation, following: Any, connection: Connection, others: list[Connection]) -> None:
    for other in others:  # inherited ends: while one is open here, the parent's end would go unnoticed
        other.close()
    keep_freed_blocks()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    single = Single(federation)
    while True:
        try:
            work = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        while (position := _take(following)) < len(work):
            single.train([work[position]])
        connection.send_bytes(b"done")


def _take(following: Any) -> int:
    with following.get_lock():
        position: int = following.value
        following.value += 1
    return position


def bare_job(federation: Federation, number: int, device: int, recall: Callable[[], State | None]) -> Job:
    message = federation.method.down(federation.w, device, federation.srv, federation.context(number))
    return Job(device, message, recall)


def _carrier(federation: Federation, settings: Settings) -> Carrier:
    if settings.carrier == "cohort":
        return Stacked(federation)
    return Pooled(federation, settings.workers) if settings.carrier == "pool" else Single(federation)
