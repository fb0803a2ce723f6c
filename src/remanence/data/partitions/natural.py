"""Samples stay with whom they came from: writer, machine, person."""

import numpy as np

from remanence.data.partition import Partition, by_owner, check_devices
from remanence.errors import UserError
from remanence.registry import options, partitions


@partitions.register("natural")
@options
class Natural:
    """Whole groups per device; with more groups than devices they are dealt evenly, in random order.

    With one group per device, device i is the i-th group in ascending order.
    """

    def split(
        self,
        y: np.ndarray,
        classes: int,
        devices: int,
        generator: np.random.Generator,
        group: np.ndarray | None = None,
    ) -> Partition:
        check_devices(len(y), devices)
        if group is None:
            raise UserError(
                "devices.partition: 'natural' needs to know who owns each sample, and the data do not say; "
                "name the column or array with data.group, or choose another partition"
            )
        names, member = np.unique(group, return_inverse=True)
        if len(names) < devices:
            raise UserError(
                f"devices.count: {devices} devices, but the data have only {len(names)} groups "
                "('natural' never divides a group)"
            )
        order = np.arange(len(names)) if len(names) == devices else generator.permutation(len(names))
        return Partition(by_owner((order % devices)[member], devices))
