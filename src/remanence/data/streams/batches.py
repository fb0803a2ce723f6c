"""One batch at a time, which stays pending until it is trained on: in a circle, or never twice."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from remanence.data.stream import Stream, of_device, permutation
from remanence.registry import options, streams

Rate = Annotated[float, Field(ge=0, le=1e9)]


@streams.register("cycle")
@options
class Cycle(Stream):
    """Batches of one size for ever: shuffled anew in every pass, and filled across its end."""

    size: int = Field(32, ge=1, le=10**6, description="samples per batch")
    consumes = True
    equal = True

    def rows(self, device: int, samples: int, tick: int, used: int, seed: int) -> np.ndarray:
        if not samples:
            return np.empty(0, dtype=np.int64)
        start, stop = used * self.size, (used + 1) * self.size
        first, last = start // samples, (stop - 1) // samples
        passes = np.concatenate([permutation(samples, seed, device, number) for number in range(first, last + 1)])
        return passes[start - first * samples : stop - first * samples]


@streams.register("one-shot")
@options
class OneShot(Stream):
    """No sample is trained on twice; the last batch may be smaller, and then the device has nothing left."""

    size: int = Field(32, ge=1, description="samples per batch")
    rate: Rate | Annotated[tuple[Rate, ...], Field(min_length=1)] = Field(
        0.0, description="samples that arrive per exchange, or a list with one rate per device; 0 = all from the start"
    )
    order: Literal["shuffled", "file"] = "shuffled"
    consumes = True

    def rows(self, device: int, samples: int, tick: int, used: int, seed: int) -> np.ndarray:
        start, stop = used * self.size, min((used + 1) * self.size, samples)
        rate = of_device(self.rate, device)
        if start >= stop or (rate and int(rate * tick + 1e-9) < stop):
            return np.empty(0, dtype=np.int64)
        order = permutation(samples, seed, device) if self.order == "shuffled" else np.arange(samples)
        return order[start:stop]
