"""CSV tables, plain or `.gz`."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from remanence.data.assemble import About, assemble_whole
from remanence.data.columns import Columns
from remanence.data.csv_tables import read_csv
from remanence.data.files import existing
from remanence.data.samples import Dataset
from remanence.registry import datasets, options


@datasets.register("csv")
@options
class Csv:
    """A header line, then one row per sample: the label, perhaps its group, and numbers in all others."""

    path: Path
    label: str = "label"
    group: str | None = None
    drop: tuple[str, ...] = ()  # columns that are no features
    separator: str | None = Field(default=None, min_length=1, max_length=1)  # default: tab in .tsv, else comma
    test: float = Field(default=0.2, gt=0, lt=1)
    classes: int | None = Field(default=None, ge=1)
    class_names: tuple[str, ...] = ()
    normalise: Literal["training", "none"] = "training"

    def load(self) -> Dataset:
        path = existing(self.path)
        separator = self.separator or ("\t" if ".tsv" in path.suffixes else ",")
        table = read_csv(path, Columns(self.label, self.group, self.drop), separator)
        about = About(path.stem, str(path), self.classes, self.class_names, normalise=self.normalise)
        return assemble_whole(table, self.test, about)
