"""When devices see their data: a device's samples at a moment, as a function of the moment alone.

A moment is a tick, one per exchange with the device's server, and the number of batches that the device has used up;
nothing else has to be remembered to go on with a stream.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from remanence.core.rng import numpy_generator


class Stream:
    """Which of a device's samples, in their order, it trains on next."""

    name: ClassVar[str]
    consumes: ClassVar[bool] = False  # training uses up what it was given
    equal: ClassVar[bool] = False  # every batch has the same size

    def rows(self, device: int, samples: int, tick: int, used: int, seed: int) -> np.ndarray:
        """Positions among the device's samples; empty when nothing is there to train on."""
        raise NotImplementedError


def permutation(samples: int, seed: int, device: int, number: int = 0) -> np.ndarray:
    """The order in which a device sees its samples in its `number`-th pass over them."""
    return numpy_generator(seed, "stream", device, number).permutation(samples)


def of_device(rate: float | Sequence[float], device: int) -> float:
    """One rate for all, or a list that is gone through again for larger fleets."""
    return float(rate[device % len(rate)]) if isinstance(rate, Sequence) else float(rate)
