"""How devices are carried on this machine: stacked, in worker processes, or one by one; and why."""

import os
import sys
import time

from remanence.core.batches import plan
from remanence.core.method import Method
from remanence.engine.cohort import LARGEST_MODEL, CohortEngine, dense_chain
from remanence.engine.local import Engine, PoolEngine, SerialEngine
from remanence.engine.options import EngineOptions
from remanence.engine.worker import Task, Worker
from remanence.errors import UserError

WORTH_A_PROCESS = 0.02  # seconds of work per round; below, handing it to processes costs more than it gains


def choose_engine(task: Task, options: EngineOptions, per_round: int) -> tuple[Engine, str]:
    """The engine, and a line for people. Only what gives the same bits is decided by a measurement."""
    worker = Worker(task)
    obstacle = _obstacle(task, worker, per_round)
    if options.cohort == "on" and obstacle:
        raise UserError(f"engine.cohort: 'on' is not possible here: {obstacle}")
    if options.cohort != "off" and not obstacle:
        chain = dense_chain(worker.net.module)
        assert chain is not None
        return CohortEngine(task, chain), f"cohort: {per_round} devices in one stack of dense models"
    workers = number_of_workers(options, per_round)
    if workers == 1:
        return SerialEngine(task), "one by one in this process"
    if options.workers == "auto" and worker.net.size <= LARGEST_MODEL:
        seconds = _seconds_per_device(task, worker) * per_round
        if seconds < WORTH_A_PROCESS:
            return SerialEngine(task), f"one by one: a round is {1000 * seconds:.1f} ms of work"
    return PoolEngine(task, workers), f"{workers} worker processes, one thread each"


def number_of_workers(options: EngineOptions, jobs: int) -> int:
    if not sys.platform.startswith("linux"):  # forking is safe with torch only there
        return 1
    wanted = len(os.sched_getaffinity(0)) if options.workers == "auto" else options.workers
    return min(wanted, max(1, jobs))


def _obstacle(task: Task, worker: Worker, per_round: int) -> str:
    """Why devices cannot be stacked, or nothing."""
    method, net = task.method, worker.net
    if not method.stacks() or method.teachers or type(method).end_epoch is not Method.end_epoch:
        return f"{method.name} treats samples together or needs a network of its own"
    if not task.merge.stacks():
        return f"{task.merge.name} looks at every device's model"
    if task.augment is not None:
        return "images are augmented"
    if task.bfloat16:
        return "precision is bfloat16"
    if task.fleet.stream is not None:
        return "data arrive as a stream"
    if per_round < 2:
        return "one device per round"
    if net.size > LARGEST_MODEL:
        return f"the model has {net.size:,} parameters, more than {LARGEST_MODEL:,}"
    if len(net.w) != net.size or dense_chain(net.module) is None:
        return "the model is not a plain chain of Linear and ReLU or tanh"
    return ""


def _seconds_per_device(task: Task, worker: Worker) -> float:
    """A middling device's round, from one step of it."""
    sizes = task.fleet.sizes
    device = sorted(range(len(sizes)), key=lambda d: sizes[d])[len(sizes) // 2]
    if not sizes[device]:
        return 0.0
    data, context = task.fleet.whole(device), task.context
    steps = [
        ids
        for epoch in plan(task.batches, len(data), 1, context.seed, 1, device, worker.net.batch_norm)
        for ids in epoch
    ]
    if not steps:
        return 0.0
    worker.net.train()
    for _ in range(2):  # the first pays for what is only done once
        started = time.perf_counter()
        worker.net(data.batch(steps[0]).x).sum().backward()
    return (time.perf_counter() - started) * len(steps) * context.train.epochs
