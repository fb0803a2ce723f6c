"""The read-only facts of the moment, the same in simulation and on a device."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from remanence.core.optimiser import Training
from remanence.core.rng import torch_generator
from remanence.data.samples import Samples

if TYPE_CHECKING:
    from remanence.core.vector import FlatModel


@dataclass(frozen=True)
class Context:
    round: int  # from 1: synchronisations with the cloud
    rounds: int
    lr: float  # of this round
    train: Training
    devices: int  # size of the fleet
    classes: int
    seed: int = 0  # of the draws a device makes
    device: int = -1  # -1: the server
    tick: int = 0  # exchanges of devices with their server, from 1; without sites the same as the round
    steps: int = 0  # local steps of this device in this round
    task: int = 0
    start: Tensor | None = None  # w^0, the model the run began with
    net: "FlatModel | None" = None  # the server's scratch network
    teachers: "tuple[FlatModel, ...]" = ()  # frozen copies of the received model, for methods that declare them
    public: Samples | None = None  # unlabelled samples at the server, for what declares `public_data`
    scratch: dict[str, Any] = field(default_factory=dict)  # of one device, or the server, in one round

    def on(self, device: int, steps: int, start: Tensor, teachers: "tuple[FlatModel, ...]" = ()) -> "Context":
        """The same moment, as seen on a device."""
        # `dataclasses.replace` does the same in ten times the time, for every device and round.
        other = object.__new__(Context)
        own = {"device": device, "steps": steps, "start": start, "net": None, "teachers": teachers, "scratch": {}}
        other.__dict__.update(self.__dict__, **own)
        return other

    def generator(self, purpose: str, *numbers: int) -> torch.Generator:
        return torch_generator(self.seed, purpose, self.tick, self.device, *numbers)
