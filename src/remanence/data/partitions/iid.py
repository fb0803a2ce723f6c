"""Every device draws from the same distribution; sizes differ by at most one."""

import numpy as np

from remanence.data.partition import Partition, by_owner, check_devices
from remanence.registry import options, partitions


@partitions.register("iid")
@options
class Iid:
    """Shuffle everything and deal it evenly."""

    def split(
        self,
        y: np.ndarray,
        classes: int,
        devices: int,
        generator: np.random.Generator,
        group: np.ndarray | None = None,
    ) -> Partition:
        check_devices(len(y), devices)
        return Partition(by_owner(generator.permutation(len(y)) % devices, devices))
