"""Every device has the same chance in every round."""

from collections.abc import Sequence

import numpy as np

from remanence.core.parts import Select
from remanence.registry import options, parts


@parts["select"].register("uniform")
@options
class Uniform(Select):
    def choose(self, candidates: Sequence[int], count: int, generator: np.random.Generator) -> list[int]:
        return sorted(candidates[k] for k in generator.choice(len(candidates), size=count, replace=False).tolist())
