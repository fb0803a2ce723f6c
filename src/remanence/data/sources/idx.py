"""Any dataset in the four IDX files of MNIST."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from remanence.data.assemble import About, assemble
from remanence.data.files import existing
from remanence.data.idx import idx_parts
from remanence.data.samples import Dataset
from remanence.registry import datasets, options


@datasets.register("idx")
@options
class Idx:
    """A folder with train-images, train-labels, t10k-images (or test-images) and its labels, also `.gz`."""

    path: Path
    classes: int | None = Field(default=None, ge=1)
    class_names: tuple[str, ...] = ()
    normalise: Literal["training", "none"] = "training"

    def load(self) -> Dataset:
        path = existing(self.path)
        about = About(path.name, str(path), self.classes, self.class_names, normalise=self.normalise)
        return assemble(*idx_parts(path), about)
