"""Every device has the same chance in every round."""

from collections.abc import Sequence

import numpy as np

from remanence.core.parts import Offers, Select
from remanence.registry import options, parts


@parts["select"].register("uniform")
@options
class Uniform(Select):
    def choose(
        self, candidates: Sequence[int], count: int, generator: np.random.Generator, offers: Offers | None = None
    ) -> list[int]:
        count = min(count, len(candidates))
        return sorted(candidates[k] for k in generator.choice(len(candidates), size=count, replace=False).tolist())
