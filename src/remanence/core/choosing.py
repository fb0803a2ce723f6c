"""Who is asked: the candidates that have data, what they tell of it, and the selector's choice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from remanence.core.message import Message
from remanence.core.parts import Offers, Select
from remanence.core.rng import numpy_generator
from remanence.data.fleet import Fleet

Told = dict[int, int]  # device -> the moment of its data that it told last


@dataclass
class Chooser:
    """Chooses `count` of the members, at every tick anew."""

    select: Select
    fleet: Fleet
    members: Sequence[int]
    count: int
    seed: int
    whole: np.ndarray | None = None  # class counts of the fleet, for selectors that look at them
    told: Told = field(default_factory=dict)
    bytes: int = 0  # of what was told since the last choice

    def choose(self, tick: int, round: int, used: Mapping[int, int], site: Sequence[int] = ()) -> list[int]:
        """`site`: its number, where there are several choosers."""
        self.bytes = 0
        candidates = self._candidates(tick, used)
        generator = numpy_generator(self.seed, "select", tick, *site)
        offers = self._offers(candidates, tick, round, used) if self.select.reports else None
        return self.select.choose(candidates, self.count, generator, offers) if candidates else []

    def _candidates(self, tick: int, used: Mapping[int, int]) -> Sequence[int]:
        """On a stream, those that have something to train on."""
        if self.fleet.stream is None:
            return self.members
        return [device for device in self.members if self.fleet.size(device, tick, used.get(device, 0))]

    def _offers(self, candidates: Sequence[int], tick: int, round: int, used: Mapping[int, int]) -> Offers:
        assert self.whole is not None
        counts = np.zeros((len(candidates), self.fleet.classes), dtype=np.int64)
        sizes = np.zeros(len(candidates), dtype=np.int64)
        for row, device in enumerate(candidates):
            own = used.get(device, 0)
            moment = self._moment(tick, own)
            sizes[row] = self.fleet.size(device, tick, own)
            noise = numpy_generator(self.seed, "offer", device, moment)
            counts[row] = self.select.protect(self.fleet.pending(device, tick, own), noise)
            if self.told.get(device) != moment:
                self.told[device] = moment
                self.bytes += report(counts[row]).size()
        return Offers(counts, sizes, self.whole, numpy_generator(self.seed, "steady", round))

    def _moment(self, tick: int, used: int) -> int:
        """What changes when the device's next data do."""
        if self.fleet.stream is None:
            return 0
        return used if self.fleet.consumes else tick


def report(counts: np.ndarray) -> Message:
    """What a device tells: class counts, as small as they fit."""
    kind = torch.uint8 if counts.max(initial=0) < 256 else torch.int32
    return Message(counts=torch.from_numpy(counts).to(kind))


def told_once(select: Select, fleet: Fleet, seed: int) -> tuple[np.ndarray, dict[int, int]]:
    """The fleet's class counts as its devices tell them before the first round, and the bytes that this takes."""
    whole, sizes = np.zeros(fleet.classes, dtype=np.int64), {}
    for device in range(len(fleet.sizes)):
        counts = select.protect(fleet.counts(device), numpy_generator(seed, "whole", device))
        whole += counts
        sizes[device] = report(counts).size()
    if not whole.any():  # noise can drown a small fleet
        whole += 1
    return whole, sizes


def use_up(fleet: Fleet, chosen: Sequence[int], used: dict[int, int]) -> None:
    """A batch that was trained on is spent, whether or not the upload arrived."""
    if fleet.consumes:
        for device in chosen:
            used[device] = used.get(device, 0) + 1
