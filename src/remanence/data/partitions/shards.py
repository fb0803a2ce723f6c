"""Shards of one class each, dealt at random, the same number to every device."""

import numpy as np
from pydantic import Field

from remanence.data.partition import Partition, by_owner, check_devices, class_sizes
from remanence.errors import UserError
from remanence.registry import options, partitions


@partitions.register("shards")
@options
class Shards:
    """`per_device` shards each; a device may get the same class twice."""

    per_device: int = Field(default=2, ge=1)

    def split(
        self,
        y: np.ndarray,
        classes: int,
        devices: int,
        generator: np.random.Generator,
        group: np.ndarray | None = None,
    ) -> Partition:
        check_devices(len(y), devices)
        each = self._shards_per_class(class_sizes(y, classes), devices)
        taker = deal_shards(classes, each, self.per_device, generator)
        owner = np.empty(len(y), dtype=np.int64)
        for number in range(classes):
            members = np.flatnonzero(y == number)
            owner[members] = taker[number][shard_numbers(len(members), each)]
        return Partition(by_owner(owner, devices))

    def _shards_per_class(self, sizes: np.ndarray, devices: int) -> int:
        shards, classes = self.per_device * devices, len(sizes)
        if shards % classes:
            raise UserError(
                f"devices.per_device: {devices} devices x {self.per_device} = {shards} shards cannot be cut "
                f"evenly from {classes} classes; choose a product that {classes} divides"
            )
        each, rarest = shards // classes, int(sizes.argmin())
        if sizes[rarest] < each:
            raise UserError(
                f"devices.per_device: class {rarest} has {sizes[rarest]} samples for its {each} shards; "
                "take fewer devices or fewer shards per device"
            )
        return each


def shard_numbers(samples: int, shards: int) -> np.ndarray:
    """The shard of each sample of a class in file order: equal runs, then one more for the first shards."""
    run = samples // shards
    return np.concatenate([np.repeat(np.arange(shards), run), np.arange(samples - run * shards)])


def deal_shards(classes: int, each: int, per_device: int, generator: np.random.Generator) -> np.ndarray:
    """The device that takes each shard: (classes, shards of a class)."""
    dealt = generator.permutation(np.repeat(np.arange(classes), each))
    taker = np.empty((classes, each), dtype=np.int64)
    for number in range(classes):
        # Each device's label draws one of the class's remaining shards: a random order of them.
        taker[number, generator.permutation(each)] = np.flatnonzero(dealt == number) // per_device
    return taker
