"""What a replaceable part must offer. Parts are frozen options; what they must remember is a tree they are handed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch import Tensor

from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.state import State
from remanence.data.samples import Batch, Samples
from remanence.errors import UserError

if TYPE_CHECKING:
    from remanence.core.method import Method
    from remanence.core.vector import FlatModel


class Part:
    name: ClassVar[str]

    def check(self, method: "Method", ctx: Context) -> None:
        """Refuse, before the first round, what cannot work together."""


@dataclass(frozen=True)
class Offers:
    """What candidates tell before they are chosen: the class counts of the data that they would train on next."""

    counts: np.ndarray  # a row per candidate
    sizes: np.ndarray  # samples per candidate
    whole: np.ndarray  # class counts of the fleet
    steady: np.random.Generator  # the same in all exchanges of a round


class Select(Part):
    """Who takes part in a round."""

    reports: ClassVar[bool] = False  # candidates tell their class counts: `offers`

    @property
    def exact(self) -> bool:
        """Whether what they tell is exact."""
        return True

    def protect(self, counts: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """What a device tells of its counts; called only when `reports`."""
        return counts

    def choose(
        self, candidates: Sequence[int], count: int, generator: np.random.Generator, offers: Offers | None = None
    ) -> list[int]:
        """At most `count` of the candidates, in their order."""
        raise NotImplementedError


class Merge(Part):
    """What every upload counts for, and how the entries that a method declares as `weighted` are reduced."""

    needs_all: ClassVar[bool] = False  # `merge` sees all uploads at once
    weighs: ClassVar[bool] = False  # `weigh` gives the weights instead of the method
    public_data: ClassVar[bool] = False  # needs unlabelled samples at the server: `ctx.public`

    @property
    def public_on_devices(self) -> bool:
        """Whether every device gets the public samples, once, into its `dev["public"]`."""
        return False

    def check(self, method: "Method", ctx: Context) -> None:
        if self.weighs and method.has_weights:
            raise UserError(f"merge.name: '{self.name}' is not allowed with {method.name}: both set the weights")

    def stacks(self) -> bool:
        """Whether devices can train stacked: neither `watch` nor `report` is used."""
        return not self.watches() and type(self).report is Merge.report

    def watches(self) -> bool:
        """Whether `watch` is used."""
        return type(self).watch is not Merge.watch

    # device, in every step of training
    def watch(self, logits: Tensor, batch: Batch, epoch: int, ctx: Context) -> None:
        """Look at the answer to a batch, before the step that it leads to; epochs count from 1."""

    # device, after training
    def report(self, net: "FlatModel", data: Samples, dev: State, ctx: Context) -> Mapping[str, Any]:
        """Further entries of the upload."""
        return {}

    # server, when an upload arrives
    def arrive(self, upload: Message, ctx: Context) -> Mapping[str, Any]:
        """Further entries that the server derives from an upload, which holds what the method derived from it."""
        return {}

    # server, after a round
    def weigh(self, messages: Mapping[int, Message], ctx: Context) -> Tensor:
        """A weight per message, in their order; called only when `weighs`."""
        raise NotImplementedError

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

    def raw(self, state: State) -> Tensor | None:
        """The newest model before it was averaged over rounds, to be measured beside the one that `step` returned."""
        return None


class Privacy(Part):
    """What happens to an upload before it leaves the device."""

    def protect(self, upload: Message, ctx: Context) -> Message:
        raise NotImplementedError


class Topology(Part):
    """Who talks to whom in a round."""

    iterations: int = 1  # exchanges with devices in a round
    weights: str = "equal"  # what a site counts for at the cloud
    pooled: bool = False  # one step then average may train as one batch where that is equal
    sites: ClassVar[bool] = False  # whether devices talk to the edges of their sites, and these to the cloud


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
