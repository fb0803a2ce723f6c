"""remanence itself, played round by round as `remanence.simulate` plays it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.synthetic import StoredDevices
from benchmarks.workloads import WORKLOADS, Settings, Workload
from remanence.choices import resolve_method, resolve_part
from remanence.core.context import Context
from remanence.core.federation import Federation
from remanence.core.method import Method
from remanence.core.optimiser import Training
from remanence.core.parts import DEFAULTS, Merge
from remanence.core.plan import Plan, Schedule
from remanence.data.fleet import SMALL, TensorFleet
from remanence.data.samples import Samples
from remanence.engine.cohort import CohortEngine
from remanence.engine.local import Engine, PoolEngine
from remanence.engine.memory import one_thread
from remanence.engine.options import EngineOptions
from remanence.engine.worker import Task
from remanence.measure.record import Measure
from remanence.registry import build


@contextmanager
def federated(settings: Settings) -> Iterator[tuple[Callable[[int], None], dict[str, Any]]]:
    with one_thread(), Federation(workload_plan(settings)) as federation:
        yield rounds_of(federation), facts_of(federation)


def rounds_of(federation: Federation) -> Callable[[int], None]:
    def play(rounds: int) -> None:
        for _ in range(rounds):
            federation.play_round()

    return play


def facts_of(federation: Federation) -> dict[str, Any]:
    carrier, workers = carrier_of(federation.engine)
    return {
        "engine": federation.engine_line,
        "carrier": carrier,
        "workers": workers,
        "parameters": federation.net.size,
    }


def carrier_of(engine: Engine | None) -> tuple[str, int]:
    """The kind of engine, and the number of processes that train."""
    if isinstance(engine, PoolEngine):
        return "pool", len(engine.processes)
    return ("cohort" if isinstance(engine, CohortEngine) else "serial"), 1


def workload_plan(settings: Settings) -> Plan:
    workload = WORKLOADS[settings.workload]
    torch.manual_seed(0)
    fleet = workload_fleet(workload, Path(settings.folder))
    return make_plan(
        settings.method,
        workload.build_model(),
        fleet,
        workload.training(),
        settings.rounds,
        workload.per_round,
        settings.engine,
    )


def workload_fleet(workload: Workload, folder: Path) -> TensorFleet:
    """What is small is a list of tensors, as a user would bring it; the rest is read when it is needed."""
    devices = StoredDevices(folder)
    small = sum(x.nbytes for x, _ in devices) <= SMALL
    ready = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in devices] if small else devices
    return TensorFleet(ready, workload.classes)


def make_plan(
    method_name: str,
    model: nn.Module,
    fleet: TensorFleet,
    training: Mapping[str, Any],
    rounds: int,
    per_round: int,
    engine: Mapping[str, Any],
    schedule: Schedule | None = None,
) -> Plan:
    train = build(Training, training, "train")
    method, choices = resolve_method(method_name, {}, {})
    parts = {kind: resolve_part(kind, choices.get(kind, name)) for kind, name in DEFAULTS.items()}
    method.check(train)
    options = build(EngineOptions, engine, "engine")
    context = Context(
        round=0,
        rounds=rounds,
        lr=train.lr,
        train=train,
        devices=len(fleet.sizes),
        classes=fleet.classes,
        public=_public(method, parts["merge"], fleet),
    )
    task = Task(
        method=method,
        module=model,
        fleet=fleet,
        batches=train.batch,
        privacy=parts["privacy"],
        merge=parts["merge"],
        context=context,
        bfloat16=options.precision == "bfloat16",
    )
    return Plan(
        task,
        rounds,
        per_round,
        parts["select"],
        parts["optimise"],
        options,
        build(Measure, {}, "measure"),
        parts["topology"],
        [list(range(len(fleet.sizes)))],
        schedule=schedule,
    )


def _public(method: Method, merge: Merge, fleet: TensorFleet) -> Samples | None:
    """For what needs them, the samples of one device without their labels."""
    if not (method.public_data or merge.public_data):
        return None
    known = fleet.samples(0)
    return Samples(known.x, torch.full_like(known.y, -1), fleet.classes)
