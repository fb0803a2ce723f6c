"""Synthetic writers, a stand-in where no handwriting by writer is at hand: not FEMNIST, and not handwriting of people.

Images of a set that ships with a dependency (scikit-learn's digits) are redrawn in the hands of made-up writers, each
with a slant, size, place, pen, ink, paper and noise of its own. Like FEMNIST's, the pictures are 28x28, dark on light
and not standardised; writers have Normal(226.8, 88.9) samples, at least 100, a tenth of them for testing, and are the
natural owners of their samples. Unlike FEMNIST there are 10 classes, not 62, and only as many shapes as the base has:
its images are drawn with replacement, those for testing from images that no writer trains on. Numbers measured here say
how methods compare on writers that differ, not what they reach on FEMNIST.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch.nn import functional

from remanence.core.rng import numpy_generator
from remanence.data.assemble import About, Raw, assemble
from remanence.data.handwriting import Style, written
from remanence.data.samples import Dataset, Split
from remanence.errors import UserError
from remanence.registry import datasets, options

_MEAN, _DEVIATION, _LEAST = 226.8, 88.9, 100  # samples of FEMNIST's writers
_TRAIN = 0.9


@datasets.register("digit-writers")
@options
class DigitWriters:
    """Stand-in for data by writer: digits in the hands of synthetic writers, made on the spot; 10 classes."""

    base: Literal["digits", "mnist", "fashion-mnist"] = Field("digits", description="whose images are redrawn")
    writers: int = Field(350, ge=1, le=100_000)
    alpha: float = Field(2.0, gt=0, le=1e6, description="class mix of a writer ~ Dirichlet; small: few classes each")
    size: float = Field(1.0, gt=0, le=100, description="samples per writer, as a multiple of FEMNIST's")
    style_seed: int = Field(0, ge=0, lt=2**53, description="of the writers and all that they write")

    def load(self) -> Dataset:
        base = self._base()
        pools = _Pool.of(base.train, base.classes), _Pool.of(base.test, base.classes)
        pages = [self._page(writer, *pools) for writer in range(self.writers)]
        origin = (
            f"synthetic stand-in for handwriting by writer, not FEMNIST: {base.origin}, redrawn in the hands of "
            f"{self.writers} made-up writers (seed {self.style_seed})"
        )
        about = About("digit-writers", origin, base.classes, base.labels, normalise="none")
        return assemble(_part(pages, 0), _part(pages, 1), about)

    def _base(self) -> Dataset:
        try:
            base: Dataset = datasets.get(self.base)().load()
        except UserError as error:
            reason = str(error).partition("\n")[0].removeprefix("data.name: ")
            raise UserError(f"data.base: {reason}\ndata.base = 'digits' needs no files") from None
        return base

    def _page(self, writer: int, *pools: "_Pool") -> list[tuple[np.ndarray, np.ndarray]]:
        """Pictures and labels for training, and those for testing; the same for any number of writers."""
        generator = numpy_generator(self.style_seed, "writer", writer)
        style = Style.drawn(generator)
        known = np.flatnonzero(np.minimum(*(pool.sizes for pool in pools)))
        mix = generator.dirichlet(np.full(len(known), self.alpha))
        count = max(2, round(self.size * max(_LEAST, generator.normal(_MEAN, _DEVIATION))))
        labels = np.split(generator.choice(known, count, p=mix), [max(1, int(_TRAIN * count))])
        return [(pool.written(own, style, generator), own) for pool, own in zip(pools, labels, strict=True)]


@dataclass(frozen=True)
class _Pool:
    """The characters to choose from, ordered by class."""

    characters: np.ndarray  # ink from 0 to 1
    first: np.ndarray  # of every class
    sizes: np.ndarray

    @classmethod
    def of(cls, split: Split, classes: int) -> "_Pool":
        y = split.y.numpy()
        characters = split.x[torch.from_numpy(np.argsort(y, kind="stable"))].float() / 255
        if characters.shape[-1] < 16:  # small images have few pixels and no margin
            characters = functional.interpolate(characters, scale_factor=4, mode="bicubic").clamp_(0, 1)
            characters = functional.pad(characters, [8, 8, 8, 8])
        sizes = np.bincount(y, minlength=classes)
        return cls(functional.pad(characters, [1, 1, 1, 1])[:, 0].numpy(), np.cumsum(sizes) - sizes, sizes)

    def written(self, labels: np.ndarray, style: Style, generator: np.random.Generator) -> np.ndarray:
        rows = self.first[labels] + (generator.random(len(labels)) * self.sizes[labels]).astype(np.int64)
        return written(self.characters, rows, style, generator)


def _part(pages: list[list[tuple[np.ndarray, np.ndarray]]], part: int) -> Raw:
    x, y = zip(*(page[part] for page in pages), strict=True)
    group = np.repeat(np.arange(len(pages)), [len(labels) for labels in y])
    return Raw(np.concatenate(x), np.concatenate(y), "digit-writers", group)
