"""Parquet tables."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from remanence.data.assemble import About, assemble_whole
from remanence.data.columns import Columns
from remanence.data.duckdb_tables import read_parquet
from remanence.data.files import existing
from remanence.data.samples import Dataset
from remanence.registry import datasets, options


@datasets.register("parquet")
@options
class Parquet:
    """One row per sample: the label, perhaps its group, and numbers in all other columns (extra `tables`)."""

    path: Path
    label: str = "label"
    group: str | None = None
    drop: tuple[str, ...] = ()  # columns that are no features
    test: float = Field(default=0.2, gt=0, lt=1)
    classes: int | None = Field(default=None, ge=1)
    class_names: tuple[str, ...] = ()
    normalise: Literal["training", "none"] = "training"

    def load(self) -> Dataset:
        path = existing(self.path)
        table = read_parquet(path, Columns(self.label, self.group, self.drop))
        about = About(path.stem, str(path), self.classes, self.class_names, normalise=self.normalise)
        return assemble_whole(table, self.test, about)
