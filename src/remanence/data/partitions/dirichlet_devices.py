"""Device-wise Dirichlet split: each device has its own class proportions, all are equally large."""

from bisect import bisect_right

import numpy as np
from pydantic import Field

from remanence.data.partition import Partition, check_devices, class_sizes, deal_classes
from remanence.registry import options, partitions


@partitions.register("dirichlet-devices")
@options
class DirichletDevices:
    """Small `alpha`: one or two classes lead on each device. What runs out is replaced by what is left."""

    alpha: float = Field(default=0.1, gt=0, le=1e6)

    def split(
        self,
        y: np.ndarray,
        classes: int,
        devices: int,
        generator: np.random.Generator,
        group: np.ndarray | None = None,
    ) -> Partition:
        check_devices(len(y), devices)
        each = len(y) // devices
        share = generator.dirichlet(np.full(classes, self.alpha), size=devices)
        counts = draw_counts(share, class_sizes(y, classes), each, generator)
        unused = len(y) - each * devices
        notes = [f"unused: {unused} samples, so that all devices are equally large"] if unused else []
        return Partition(deal_classes(y, counts, generator), notes)


def draw_counts(share: np.ndarray, left: np.ndarray, each: int, generator: np.random.Generator) -> np.ndarray:
    """Sample by sample, a random device with room draws one of the classes left: (classes, devices)."""
    turns = random_turns(len(share), each, generator)
    chances = generator.random(len(turns))
    counts = [[0] * len(left) for _ in share]
    remaining = left.tolist()
    table = cumulative(share, left > 0)
    # Plain lists: at one step per sample, array scalars would take ten times as long.
    for device, chance in zip(turns.tolist(), chances.tolist(), strict=True):
        number = bisect_right(table[device], chance)
        counts[device][number] += 1
        remaining[number] -= 1
        if not remaining[number]:
            table = cumulative(share, np.array(remaining) > 0)
    return np.array(counts, dtype=np.int64).T


def random_turns(devices: int, each: int, generator: np.random.Generator) -> np.ndarray:
    """Which device is next, uniformly among those that have had fewer than `each` turns.

    Devices that ring at random times at equal rates ring in exactly this order, each until it is full.
    """
    times = generator.exponential(size=(devices, each)).cumsum(1)
    return times.ravel().argsort(kind="stable") // each


def cumulative(share: np.ndarray, open_classes: np.ndarray) -> list[list[float]]:
    """Per device the running sum of its shares of the open classes; uniform where it has none of them."""
    if not open_classes.any():
        return []
    share = share * open_classes
    share = np.where(share.sum(1, keepdims=True) > 0, share, open_classes)
    running = share.cumsum(1)
    table: list[list[float]] = (running / running[:, -1:]).tolist()
    return table
