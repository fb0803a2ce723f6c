"""NumPy archives."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from remanence.data.arrays import Names, npz_class_names, npz_parts
from remanence.data.assemble import About, Raw, assemble, assemble_whole
from remanence.data.files import existing
from remanence.data.layout import Layout
from remanence.data.samples import Dataset
from remanence.registry import datasets, options


@datasets.register("npz")
@options
class Npz:
    """Arrays x_train, y_train, x_test, y_test, or x and y, of which the share `test` is set aside.

    `x`, `y` and `group` rename them: with `group = "machine"` the arrays are machine_train and machine_test.
    """

    path: Path
    x: str = Field(default="x", min_length=1)
    y: str = Field(default="y", min_length=1)
    group: str | None = Field(default=None, min_length=1)
    layout: Layout = "auto"
    test: float = Field(default=0.2, gt=0, lt=1)
    classes: int | None = Field(default=None, ge=1)
    class_names: tuple[str, ...] = ()
    normalise: Literal["training", "none"] = "training"

    def load(self) -> Dataset:
        path = existing(self.path)
        parts = npz_parts(path, Names(self.x, self.y, self.group), self.layout)
        names = self.class_names or npz_class_names(path)
        about = About(path.stem, str(path), self.classes, names, normalise=self.normalise)
        if isinstance(parts, Raw):
            return assemble_whole(parts, self.test, about)
        return assemble(*parts, about)
