"""Class-wise Dirichlet split: each class is shared out by its own random proportions; sizes differ widely.

A device that already holds an even share (samples / devices) takes nothing more, and everything is drawn
again until the smallest device is large enough. Only counts are drawn; the samples are dealt at the end.
"""

import numpy as np
from pydantic import Field

from remanence.data.partition import Partition, check_devices, class_sizes, deal_classes
from remanence.errors import UserError
from remanence.registry import options, partitions

_BATCH = 64  # draws made side by side once the first few have failed


@partitions.register("dirichlet")
@options
class Dirichlet:
    """Small `alpha`: few classes per device and very uneven sizes. Large `alpha`: towards i.i.d."""

    alpha: float = Field(default=0.1, gt=0, le=1e6)
    smallest: int = Field(default=10, ge=0)  # samples that every device must reach
    redraws: int = Field(default=1000, ge=1)  # after so many draws the best one is repaired

    def split(
        self,
        y: np.ndarray,
        classes: int,
        devices: int,
        generator: np.random.Generator,
        group: np.ndarray | None = None,
    ) -> Partition:
        check_devices(len(y), devices)
        self._check_smallest(len(y), devices)
        counts = self._counts(class_sizes(y, classes), devices, generator)
        moved = repair(counts, self.smallest)
        reason = f"no draw of {self.redraws} gave every device {self.smallest} samples"
        notes = [f"repaired: {moved} samples moved ({reason})"] if moved else []
        return Partition(deal_classes(y, counts, generator), notes)

    def _check_smallest(self, samples: int, devices: int) -> None:
        if devices * self.smallest > samples:
            raise UserError(
                f"devices.smallest: {devices} devices with {self.smallest} samples each need "
                f"{devices * self.smallest}, the training set has {samples}; at most {samples // devices}"
            )

    def _counts(self, sizes: np.ndarray, devices: int, generator: np.random.Generator) -> np.ndarray:
        """The first draw (classes, devices) without a short device, or the one that lacks least."""
        best, least, done, batch = np.empty(0), np.inf, 0, 1
        while done < self.redraws and least > 0:
            drawn = draw_counts(sizes, devices, self.alpha, min(batch, self.redraws - done), generator)
            lacking = np.maximum(self.smallest - drawn.sum(1), 0).sum(1)
            first = int(lacking.argmin())
            if lacking[first] < least:
                best, least = drawn[first], lacking[first]
            done, batch = done + len(drawn), min(2 * batch, _BATCH)
        return best


def draw_counts(
    sizes: np.ndarray, devices: int, alpha: float, draws: int, generator: np.random.Generator
) -> np.ndarray:
    """Independent draws of how many samples of each class each device gets: (draws, classes, devices)."""
    counts = np.zeros((draws, len(sizes), devices), dtype=np.int64)
    held = np.zeros((draws, devices), dtype=np.int64)
    for number in np.flatnonzero(sizes):
        room = held * devices < sizes.sum()
        share = generator.dirichlet(np.full(devices, alpha), size=draws) * room
        # Underflow can leave no share at all to the devices with room: then all of them get the same.
        share = np.where(share.sum(1, keepdims=True) > 0, share, room)
        share /= share.sum(1, keepdims=True)
        cuts = np.floor(share.cumsum(1) * sizes[number]).astype(np.int64)
        cuts = np.minimum(cuts, sizes[number])
        cuts[:, -1] = sizes[number]  # the last device takes what rounding left
        counts[:, number] = np.diff(cuts, axis=1, prepend=0)
        held += counts[:, number]
    return counts


def repair(counts: np.ndarray, smallest: int) -> int:
    """Move samples, in place, from the largest devices (their commonest class) to the short ones."""
    held = counts.sum(0)
    moved = 0
    for device in np.flatnonzero(held < smallest):
        while held[device] < smallest:
            donor = held.argmax()
            number = counts[:, donor].argmax()
            counts[number, [donor, device]] += [-1, 1]
            held[[donor, device]] += [-1, 1]
            moved += 1
    return moved
