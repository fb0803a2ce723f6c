"""From arrays as they were read to a checked `Dataset`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from remanence.data import checks
from remanence.data.samples import Dataset, Split
from remanence.errors import UserError


@dataclass(frozen=True)
class Raw:
    """One part as read, not checked yet; images have their channels second."""

    x: np.ndarray
    y: np.ndarray
    where: str  # the file, for error lines
    group: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> "Raw":
        group = None if self.group is None else self.group[rows]
        return replace(self, x=self.x[rows], y=self.y[rows], group=group)


@dataclass(frozen=True)
class About:
    """What is known of a dataset besides its samples."""

    name: str
    origin: str
    classes: int | None = None
    class_names: Sequence[str] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    normalise: Literal["training", "none"] = "training"


def assemble(train: Raw, test: Raw, about: About) -> Dataset:
    train, test = _checked(train), _checked(test)
    if train.x.shape[1:] != test.x.shape[1:] or train.x.dtype != test.x.dtype:
        raise UserError(
            f"{test.where}: wrong shape: test samples are {test.x.shape[1:]} {test.x.dtype}, "
            f"training samples {train.x.shape[1:]} {train.x.dtype}"
        )
    labels = [(part.y, part.where) for part in (train, test)]
    numbers, classes, names = checks.class_numbers(labels, about.classes, about.class_names)
    mean, std = _normalisation(train.x, about)
    return Dataset(
        name=about.name,
        train=_split(train, numbers[0]),
        test=_split(test, numbers[1]),
        classes=classes,
        mean=mean,
        std=std,
        labels=names,
        origin=about.origin,
    )


def assemble_whole(whole: Raw, share: float, about: About) -> Dataset:
    """One undivided set: checked first, so that errors name the rows of the file, then divided."""
    whole = _checked(whole)
    numbers, classes, names = checks.class_numbers([(whole.y, whole.where)], about.classes, about.class_names)
    train, test = divided(numbers[0], share, whole.where)
    whole = replace(whole, y=numbers[0])
    known = replace(about, classes=classes, class_names=())
    made = assemble(whole.take(train), whole.take(test), known)
    return replace(made, labels=names)


def divided(y: np.ndarray, share: float, where: str) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the training and of the test part."""
    chosen = rows_for_testing(y, share)
    if not chosen.any() or chosen.all():
        raise UserError(f"{where}: {len(chosen)} samples are too few for a test share of {share}")
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def rows_for_testing(y: np.ndarray, share: float) -> np.ndarray:
    """True for the test part: every so-manieth sample of each class in file order; no randomness in it."""
    order = np.argsort(y, kind="stable")
    steps = np.floor(np.arange(len(y) + 1) * share + 1e-9)
    chosen = np.empty(len(y), dtype=bool)
    chosen[order] = np.diff(steps) > 0
    return chosen


def _normalisation(x: np.ndarray, about: About) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if about.mean or about.normalise == "none":
        return about.mean, about.std
    return channel_statistics(x)


def channel_statistics(x: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel or feature (uint8 taken as 0..1); constant ones are only centred."""
    pairs = [_mean_and_std(x[:, channel]) for channel in range(x.shape[1])]
    mean, std = zip(*pairs, strict=True)
    return mean, std


def _mean_and_std(values: np.ndarray) -> tuple[float, float]:
    if values.dtype == np.uint8:  # by histogram: exact, and without a float copy of the images
        levels, weights = np.arange(256) / 255, np.bincount(values.ravel(), minlength=256)
        mean = float(np.average(levels, weights=weights))
        std = float(np.sqrt(np.average((levels - mean) ** 2, weights=weights)))
    else:
        mean, std = float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64))
    return mean, std if std > 1e-7 * abs(mean) else 1.0


def _checked(part: Raw) -> Raw:
    checks.same_length(part.x, part.y, part.where)
    group = None if part.group is None else checks.owners(part.group, len(part.y), part.where)
    return replace(part, x=checks.features(part.x, part.where), group=group)


def _split(part: Raw, y: np.ndarray) -> Split:
    # A copy only where needed: arrays over file buffers are read-only, transposed ones are not contiguous.
    x = np.require(part.x, requirements=["C", "W"])
    return Split(torch.from_numpy(x), torch.from_numpy(y), part.group)
