"""Every device holds its data from the start and keeps them."""

import numpy as np

from remanence.data.stream import Stream
from remanence.registry import options, streams


@streams.register("static")
@options
class Static(Stream):
    """All of a device's samples, at any time."""

    def rows(self, device: int, samples: int, tick: int, used: int, seed: int) -> np.ndarray:
        return np.arange(samples)
