"""A device with little memory: what arrives overwrites what is oldest."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from remanence.data.stream import Stream, of_device, permutation
from remanence.registry import options, streams

Rate = Annotated[float, Field(gt=0, le=1e9)]


@streams.register("window")
@options
class Window(Stream):
    """First in, first out: the newest samples, as many as the device can hold."""

    size: int = Field(100, ge=1, description="samples that a device can hold")
    rate: Rate | Annotated[tuple[Rate, ...], Field(min_length=1)] = Field(
        10.0, description="samples that arrive per exchange, or a list with one rate per device"
    )
    order: Literal["file", "shuffled"] = "file"
    repeat: bool = Field(False, description="begin anew when all have been seen; otherwise the last stay")

    def rows(self, device: int, samples: int, tick: int, used: int, seed: int) -> np.ndarray:
        arrived = int(of_device(self.rate, device) * max(1, tick) + 1e-9)
        if not self.repeat:
            arrived = min(arrived, samples)
        elif not samples:
            arrived = 0
        places = np.arange(max(0, arrived - min(self.size, samples)), arrived)
        order = permutation(samples, seed, device) if self.order == "shuffled" else np.arange(samples)
        held: np.ndarray = order[places % max(1, samples)]
        return held
