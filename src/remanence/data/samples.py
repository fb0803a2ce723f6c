"""What exists (`Dataset`), and what one device or the server holds ready for training (`Samples`)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from remanence.core.aligned import aligned


@dataclass(frozen=True)
class Split:
    """One part of a dataset, as stored: images (N, channels, height, width) uint8 or float32, tables (N, features)."""

    x: Tensor
    y: Tensor  # int64 class numbers
    group: np.ndarray | None = None  # natural owner of each sample: writer, machine, role

    def __len__(self) -> int:
        return len(self.y)

    def take(self, indices: np.ndarray) -> "Split":
        rows = torch.from_numpy(np.ascontiguousarray(indices))
        return Split(self.x[rows], self.y[rows], None if self.group is None else self.group[indices])


@dataclass(frozen=True)
class Dataset:
    name: str
    train: Split
    test: Split
    classes: int
    mean: tuple[float, ...] = ()  # per channel of x in 0..1 (uint8 is divided by 255 first); empty: as it is
    std: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()  # class names, when known
    origin: str = ""  # what was read, for the run's evidence
    words: tuple[str, ...] = ()  # of text, whose samples are rows of token numbers: what each number stands for

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.train.x.shape[1:])

    @property
    def black(self) -> tuple[float, ...]:
        """What a black pixel becomes, per channel."""
        return tuple(-mean / std for mean, std in zip(self.mean, self.std, strict=True)) or (0.0,)

    def prepare(self, split: Split) -> "Samples":
        """Float32, normalised: what a model sees."""
        return Samples(self._scaled(split.x), split.y, self.classes)

    def _scaled(self, x: Tensor) -> Tensor:
        x = x.to(torch.float32).div_(255) if x.dtype == torch.uint8 else x
        if not self.mean:
            return x
        shape = (1, -1) + (1,) * (x.dim() - 2)
        return (x - torch.tensor(self.mean).view(shape)) / torch.tensor(self.std).view(shape)


@dataclass(slots=True)  # made for every step: freezing it would cost more than gathering a small batch
class Batch:
    x: Tensor
    y: Tensor
    ids: Tensor  # stable positions of the samples on their device
    weight: Tensor | None = None  # per sample, when devices are stacked: 1 / (its device's batch), 0 for padding
    devices: int = 1  # how many are stacked, with equally many samples each
    pull: Tensor | None = None  # stacked: slope of the plain loss by log-probabilities, -weight at the label

    def first(self, rows: int, devices: int) -> "Batch":
        weight, pull = (None if t is None else t[:rows] for t in (self.weight, self.pull))
        return Batch(self.x[:rows], self.y[:rows], self.ids[:rows], weight, devices, pull)


class Samples:
    """Ready data of one device. Images are stored channels last and seen through a channels-first view."""

    def __init__(self, x: Tensor, y: Tensor, classes: int) -> None:
        self.image = x.dim() == 4
        self.stored = aligned(x.permute(0, 2, 3, 1).contiguous() if self.image else x.contiguous())
        self.y = y
        self.classes = classes

    def __len__(self) -> int:
        return len(self.y)

    @property
    def x(self) -> Tensor:
        return self.stored.permute(0, 3, 1, 2) if self.image else self.stored

    def batch(self, ids: Tensor) -> Batch:
        x = self.stored.index_select(0, ids)
        return Batch(x.permute(0, 3, 1, 2) if self.image else x, self.y.index_select(0, ids), ids)

    def take(self, rows: np.ndarray) -> "Samples":
        """Some of them, in this order."""
        chosen = self.batch(torch.from_numpy(rows))
        return Samples(chosen.x, chosen.y, self.classes)

    @cached_property
    def flat(self) -> Tensor:
        """A row of numbers per sample."""
        return self.x.reshape(len(self.y), -1)

    @cached_property
    def counts(self) -> Tensor:
        """Samples per class."""
        return torch.bincount(self.y, minlength=self.classes)
