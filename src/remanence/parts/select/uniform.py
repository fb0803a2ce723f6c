"""Every device has the same chance in every round."""

from collections.abc import Mapping, Sequence

import numpy as np

from remanence.core.message import Message
from remanence.core.parts import Select
from remanence.core.state import State
from remanence.registry import options, parts


@parts["select"].register("uniform")
@options
class Uniform(Select):
    def choose(self, candidates: Sequence[int], count: int, offers: Mapping[int, Message], state: State,
               generator: np.random.Generator) -> list[int]:
        return sorted(generator.choice(np.asarray(candidates), size=count, replace=False).tolist())
