"""The engine on this machine: worker processes, or one by one in this process. Both give the same bits."""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import torch
from torch import Tensor

from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.state import State
from remanence.engine import pipe
from remanence.engine.memory import keep_freed_blocks
from remanence.engine.worker import Job, Reply, Task, Worker
from remanence.errors import RunError, UserError
from remanence.measure.accuracy import BATCH


class Engine(Protocol):
    def run(self, ctx: Context, jobs: Sequence[Job]) -> Iterator[Reply]:
        """What the devices send back, in any order."""
        ...

    def measure(self, w: Tensor) -> tuple[Tensor, float]:
        """Correct answers per class and summed loss of the model `w` on the test set."""
        ...

    def close(self) -> None: ...

    @property
    def workers(self) -> list[int]:
        """Process numbers, besides this one's."""
        ...


class SerialEngine:
    """One device after another in this process."""

    workers: list[int] = []

    def __init__(self, task: Task, worker: Worker | None = None) -> None:
        self.worker = worker or Worker(task)

    def run(self, ctx: Context, jobs: Sequence[Job]) -> Iterator[Reply]:
        for job in jobs:
            yield self.worker.work(job, ctx)

    def measure(self, w: Tensor) -> tuple[Tensor, float]:
        assert self.worker.task.test is not None
        return _summed(self.worker.measure(w, start, stop) for start, stop in _pieces(len(self.worker.task.test)))

    def close(self) -> None: ...


class PoolEngine:
    """Forked worker processes with one thread each; they share the data of this process without a copy."""

    def __init__(self, task: Task, workers: int, server: "Callable[[], WorkerServer] | None" = None) -> None:
        self.task = task
        self.recall: Callable[[int], State | None] = lambda device: None  # what a worker that asks is told
        make = server or (lambda: WorkerServer(task))
        self.connections: list[Connection] = []
        self.processes: list[Any] = []
        fork = multiprocessing.get_context("fork")
        for _ in range(workers):
            ours, theirs = fork.Pipe()
            self.connections.append(ours)
            process = fork.Process(target=_serve, args=(make, theirs, list(self.connections)), daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)

    def run(self, ctx: Context, jobs: Sequence[Job]) -> Iterator[Reply]:
        common = _common([job.message for job in jobs])
        self._tell_all({"do": "round", "facts": self.facts(ctx), "common": common})
        orders = (_order(job, common) for job in jobs)
        for answer in self._share(orders):
            yield _reply(answer)

    def facts(self, ctx: Context) -> dict[str, Any]:
        return {"round": ctx.round, "tick": ctx.tick, "lr": ctx.lr, "task": ctx.task}

    def measure(self, w: Tensor) -> tuple[Tensor, float]:
        assert self.task.test is not None
        self._tell_all({"do": "model", "w": w})
        orders = [
            {"do": "measure", "piece": i, "start": start, "stop": stop}
            for i, (start, stop) in enumerate(_pieces(len(self.task.test)))
        ]
        answers = sorted(self._share(orders), key=lambda answer: answer["piece"])
        return _summed((answer["correct"], answer["loss"]) for answer in answers)

    @property
    def workers(self) -> list[int]:
        return [process.pid for process in self.processes]

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        for process in self.processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()

    def _tell_all(self, order: dict[str, Any]) -> None:
        for connection in self.connections:
            self._send(connection, order)

    def _share(self, orders: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Every worker always has one order; it gets the next as soon as it answers."""
        waiting = iter(orders)
        busy: list[Connection] = []
        try:
            for connection, order in zip(self.connections, waiting, strict=False):
                self._send(connection, order)
                busy.append(connection)
            while busy:
                for connection in _ready(busy):
                    answer = self._receive(connection)
                    busy.remove(connection)
                    following = next(waiting, None)
                    if following is not None:
                        self._send(connection, following)
                        busy.append(connection)
                    yield answer
        except GeneratorExit:
            for connection in busy:  # the caller stopped early: leave no answer in a pipe
                self._receive(connection)
            raise

    def _send(self, connection: Connection, order: dict[str, Any]) -> None:
        try:
            pipe.send(connection, order)
        except OSError:
            raise self._death(connection) from None

    def _receive(self, connection: Connection) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = pipe.receive(connection)
            while "ask" in answer:
                pipe.send(connection, {"dev": self.recall(answer["ask"])})
                answer = pipe.receive(connection)
        except (EOFError, OSError):
            raise self._death(connection) from None
        if answer.get("failed"):
            raise (UserError if answer["user"] else RunError)(answer["failed"])
        return answer

    def _death(self, connection: Connection) -> RunError:
        process = self.processes[self.connections.index(connection)]
        process.join(timeout=1)
        return RunError(f"a worker process ended (exit code {process.exitcode}); was the memory used up?")


def _ready(connections: Sequence[Connection]) -> list[Connection]:
    """Those with an answer."""
    return [found for found in wait(connections) if isinstance(found, Connection)]


def _serve(make: "Callable[[], WorkerServer]", connection: Connection, others: list[Connection]) -> None:
    for other in others:  # inherited ends: as long as one is open here, the parent's death would go unnoticed
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_blocks()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    server = make()
    server.connection = connection
    while True:
        try:
            order = pipe.receive(connection)
        except (EOFError, OSError):
            return
        answer = server.answer(order)
        if answer is not None:
            try:
                pipe.send(connection, answer)
            except OSError:  # nobody is there to hear it
                return


class WorkerServer:
    """A worker behind a pipe."""

    connection: Connection

    def __init__(self, task: Task) -> None:
        self.worker = Worker(task)
        self.common: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}
        self.w = torch.empty(0)

    def ask(self, device: int) -> State | None:
        """What a device keeps, from the process that has it."""
        pipe.send(self.connection, {"ask": device})
        told: State | None = pipe.receive(self.connection)["dev"]
        return told

    def answer(self, order: dict[str, Any]) -> dict[str, Any] | None:
        try:
            return self._answer(order)
        except UserError as error:
            return {"failed": str(error), "user": True}
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}", "user": False}

    def _answer(self, order: dict[str, Any]) -> dict[str, Any] | None:
        if order["do"] == "round":
            self.facts, self.common = order["facts"], order["common"]
            return None
        if order["do"] == "model":
            self.w = order["w"]
            return None
        if order["do"] == "measure":
            correct, loss = self.worker.measure(self.w, order["start"], order["stop"])
            return {"piece": order["piece"], "correct": correct, "loss": loss}
        message = Message(self.common | order["message"])
        job = Job(order["device"], message, lambda: order["dev"], order["measure"], order["used"])
        reply = self.worker.work(job, replace(self.worker.task.context, **self.facts))
        return {name: getattr(reply, name) for name in Reply.__slots__}


def _common(messages: Sequence[Message]) -> dict[str, Any]:
    """Entries that are one and the same object in every message: sent to a worker once per round."""
    if not messages:
        return {}
    return {name: value for name, value in messages[0].items() if all(m.get(name) is value for m in messages)}


def _order(job: Job, common: dict[str, Any]) -> dict[str, Any]:
    own = {name: value for name, value in job.message.items() if name not in common}
    return {
        "do": "train",
        "device": job.device,
        "message": own,
        "dev": job.recall(),
        "measure": job.measure,
        "used": job.used,
    }


def _reply(answer: dict[str, Any]) -> Reply:
    upload = answer["upload"]
    return Reply(**answer | {"upload": None if upload is None else Message(upload)})


def _pieces(samples: int) -> list[tuple[int, int]]:
    """Equal shares for measuring, whole batches each, whatever the number of workers."""
    size = 2 * BATCH
    return [(start, min(start + size, samples)) for start in range(0, samples, size)]


def _summed(results: Iterable[tuple[Tensor, float]]) -> tuple[Tensor, float]:
    correct, losses = zip(*results, strict=True)
    return torch.stack(correct).sum(0), float(sum(losses))
