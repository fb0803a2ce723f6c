"""What a replaceable part must offer. Parts are frozen options; what they must remember is a tree they are handed."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.state import State


class Part:
    name: ClassVar[str]


class Select(Part):
    """Who takes part in a round."""

    def choose(self, candidates: Sequence[int], count: int, generator: np.random.Generator) -> list[int]:
        raise NotImplementedError


class Merge(Part):
    """How the entries that a method declares as `weighted` are reduced."""

    needs_all: ClassVar[bool] = False

    def samples(self, n: int) -> int:
        """How many samples a device counts for."""
        return n

    def merge(self, rows: Tensor, weights: Tensor) -> Tensor:
        """One vector from a row per upload; called only when `needs_all`."""
        raise NotImplementedError


class Optimise(Part):
    """A server optimiser: a step from `w` towards `target`, the method's new model."""

    def open(self, w: Tensor) -> State:
        return {}

    def step(self, w: Tensor, target: Tensor, state: State) -> Tensor:
        raise NotImplementedError


class Privacy(Part):
    """What happens to an upload before it leaves the device."""

    def protect(self, upload: Message, ctx: Context) -> Message:
        raise NotImplementedError


class Topology(Part):
    """Who talks to whom in a round."""


class Attack(Part):
    """What a hostile device does."""


KINDS: dict[str, type[Any]] = {
    "select": Select,
    "merge": Merge,
    "optimise": Optimise,
    "privacy": Privacy,
    "topology": Topology,
    "attack": Attack,
}
DEFAULTS = {
    "select": "uniform",
    "merge": "mean",
    "optimise": "none",
    "privacy": "none",
    "topology": "flat",
    "attack": "none",
}
