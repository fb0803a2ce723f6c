"""Everything that defines a run, checked, and what a round hands back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from remanence.core.parts import Merge, Optimise, Select, Topology
from remanence.engine.options import EngineOptions
from remanence.engine.worker import Task
from remanence.errors import UserError
from remanence.measure.record import Measure

Event = dict[str, Any]
Schedule = Callable[[int], Sequence[int]]  # round -> the devices that take part


@dataclass(frozen=True)
class Plan:
    task: Task
    rounds: int
    per_round: int  # devices in a round, or with sites in an exchange of each site
    select: Select
    optimise: Optimise
    engine: EngineOptions
    measure: Measure
    topology: Topology
    sites: Sequence[Sequence[int]]  # the devices of each site
    sampling_seed: int = 0
    schedule: Schedule | None = None  # given by the user instead of `select`

    def __post_init__(self) -> None:
        """Refuse what cannot work together."""
        method, context = self.task.method, self.task.context
        for part in (self.select, self.merge, self.optimise, self.task.privacy, self.topology):
            part.check(method, context)
        for name, public in ((method.name, method.public_data), (self.merge.name, self.merge.public_data)):
            if public and context.public is None:
                raise UserError(f"public: {name} needs unlabelled samples at the server: data.public, or public=x")
        if method.freezes and self.optimise.name != "none":
            raise UserError(
                f"optimise.name: '{self.optimise.name}' is not allowed with {method.name}, which freezes a part of the "
                "model: a server optimiser would go on moving it"
            )
        if method.remembers_samples and self.task.fleet.stream is not None:
            raise UserError(
                f"stream.kind: '{self.task.fleet.stream.name}' is not allowed with {method.name}, which remembers "
                "every sample of a device: use 'static'"
            )
        drawn = getattr(self.select, "random", 0)
        if drawn > self.per_round:
            raise UserError(f"select.random: {drawn} is not allowed: {self.per_round} devices take part at a time")
        if self.topology.sites:
            self._check_sites()
        self.notes()

    def _check_sites(self) -> None:
        if self.schedule is not None:
            raise UserError("participation: lists are not allowed with topology 'sites', whose edges choose")
        if self.measure.all:
            raise UserError("measure.all: is not possible with topology 'sites'")
        largest = max(map(len, self.sites))
        if self.per_round > largest:
            raise UserError(
                f"devices.per_round: {self.per_round} is not allowed: with topology 'sites' so many take part in each "
                f"site, and the largest has {largest} devices"
            )

    def notes(self) -> list[str]:
        """About who holds what, for people."""
        told = []
        if self.select.reports:
            told.append(
                f"{self.select.name}: devices tell the class counts of what they train on next"
                f"{'' if self.select.exact else ', with noise'}; training alone does not disclose them"
            )
        return [*self.task.method.examine(self.task.fleet), *told]

    @property
    def merge(self) -> Merge:
        return self.task.merge

    @cached_property
    def mix(self) -> np.ndarray:
        """The fleet's class mix, exact, for the event log."""
        fleet = self.task.fleet
        counts = sum((fleet.counts(device) for device in range(len(fleet.sizes))), np.zeros(fleet.classes))
        mix: np.ndarray = counts / counts.sum()
        return mix

    def divergence(self, groups: Sequence[np.ndarray]) -> float | None:
        """How far the joint class counts of groups are from the fleet's mix, on average.  Eq. 6 of FedGS"""
        shares = [counts / counts.sum() for counts in groups if counts.any()]
        return float(np.mean([np.linalg.norm(share - self.mix) for share in shares])) if shares else None


class Played(NamedTuple):
    """A round's part of the event log, and the correct answers of the devices' own models."""

    event: Event
    correct: Mapping[int, Tensor | None]
    selecting: float = 0.0  # seconds
