"""Many devices with almost no data, whose states are what takes room: SCAFFOLD by default."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.federated import facts_of, make_plan, rounds_of
from benchmarks.synthetic import TinyDevices
from remanence.core.federation import Federation
from remanence.core.plan import Plan
from remanence.data.fleet import TensorFleet
from remanence.engine.memory import one_thread
from remanence.errors import UserError
from remanence.registry import models
from remanence.runs.devices import DeviceStates

TABLE, IMAGE = (64,), (3, 32, 32)
LOCAL_WORK = {"epochs": 1, "batch": 2, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5}


@dataclass(frozen=True)
class TinyFleet:
    devices: int
    model: str
    rounds: int  # in which every device takes part once
    method: str = "scaffold"
    folder: str = ""  # for states that are too many for memory

    @property
    def per_round(self) -> int:
        return math.ceil(self.devices / self.rounds)

    def plan(self) -> Plan:
        if self.rounds > self.devices:
            raise UserError(f"--rounds: {self.rounds} is more than the {self.devices} devices")
        torch.manual_seed(0)
        shape = TABLE if self.model == "mlp" else IMAGE
        model = models.create(self.model, {}, "--model").build(shape, TinyDevices.classes)
        fleet = TensorFleet(TinyDevices(self.devices, shape), TinyDevices.classes)
        return make_plan(self.method, model, fleet, LOCAL_WORK, self.rounds + 1, self.per_round, {}, self.group)

    def group(self, number: int) -> range:
        """Who takes part: one slice of the fleet after another, then the first again."""
        start = (number - 1) % self.rounds * self.per_round
        return range(start, min(start + self.per_round, self.devices))


@contextmanager
def tiny_federation(fleet: TinyFleet) -> Iterator[Federation]:
    states = DeviceStates(Path(fleet.folder) if fleet.folder else None)
    with one_thread(), Federation(fleet.plan(), states) as federation:
        yield federation


@contextmanager
def tiny_rounds(fleet: TinyFleet) -> Iterator[tuple[Callable[[int], None], dict[str, Any]]]:
    with tiny_federation(fleet) as federation:
        yield rounds_of(federation), facts_of(federation)
