"""Who holds what: the result of a partition, and the steps that every rule shares."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from remanence.errors import UserError


@dataclass(frozen=True)
class Partition:
    """Positions in the training set: one ascending int64 array per device, none in two of them."""

    indices: list[np.ndarray]
    notes: list[str] = field(default_factory=list)  # what the user should know: repairs, samples left out

    @property
    def sizes(self) -> np.ndarray:
        return np.array([len(rows) for rows in self.indices], dtype=np.int64)


class PartitionRule(Protocol):
    """What every class under `data/partitions` offers."""

    def split(
        self,
        y: np.ndarray,
        classes: int,
        devices: int,
        generator: np.random.Generator,
        group: np.ndarray | None = None,
    ) -> Partition: ...


def check_devices(samples: int, devices: int) -> None:
    if devices < 1:
        raise UserError(f"devices.count: {devices} is not allowed: at least 1")
    if devices > samples:
        raise UserError(f"devices.count: {devices} devices, but only {samples} training samples to share out")


def class_sizes(y: np.ndarray, classes: int) -> np.ndarray:
    sizes = np.bincount(y, minlength=classes)
    assert len(sizes) == classes, f"labels up to {len(sizes) - 1} for {classes} classes"
    return sizes


def by_owner(owner: np.ndarray, devices: int) -> list[np.ndarray]:
    """The positions of each device, ascending; a sample whose owner is `devices` belongs to nobody."""
    order = np.argsort(owner, kind="stable").astype(np.int64, copy=False)
    ends = np.cumsum(np.bincount(owner, minlength=devices)[:devices])
    return np.split(order[: ends[-1]], ends[:-1])


def deal_classes(y: np.ndarray, counts: np.ndarray, generator: np.random.Generator) -> list[np.ndarray]:
    """Give device i `counts[c, i]` random samples of class c."""
    devices = counts.shape[1]
    owner = np.full(len(y), devices, dtype=np.int64)
    for number, row in enumerate(counts):
        members = generator.permutation(np.flatnonzero(y == number))
        owner[members[: row.sum()]] = np.repeat(np.arange(devices), row)
    return by_owner(owner, devices)
