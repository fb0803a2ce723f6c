"""Tables of text."""

from pathlib import Path

import numpy as np
from pydantic import Field

from remanence.data.assemble import About
from remanence.data.columns import check_present
from remanence.data.files import existing
from remanence.data.samples import Dataset
from remanence.data.text import LARGEST, Form, Texts, Unit, joined, text_dataset
from remanence.data.text_tables import column_cells, column_names
from remanence.registry import datasets, options


@datasets.register("text")
@options
class Text:
    """CSV (also `.gz`) or Parquet (extra `tables`): a label and one or several columns of text, for `fasttext`."""

    path: Path
    label: str = "label"
    text: tuple[str, ...] = Field(default=("text",), min_length=1, description="columns, joined in this order")
    group: str | None = None
    separator: str | None = Field(
        default=None, min_length=1, max_length=1, description="of a CSV; by default a tab in .tsv, else a comma"
    )
    unit: Unit = Field(default="words", description="what a token is; characters for text without spaces")
    vocabulary: int = Field(
        default=20_002, ge=3, le=LARGEST, description="token numbers: padding, unknown, then the most frequent tokens"
    )
    length: int = Field(
        default=128, ge=1, le=10_000, description="tokens kept of each text; shorter ones are padded at the end"
    )
    test: float = Field(default=0.2, gt=0, lt=1)
    classes: int | None = Field(default=None, ge=1)
    class_names: tuple[str, ...] = ()

    def load(self) -> Dataset:
        path = existing(self.path)
        about = About(path.stem, str(path), self.classes, self.class_names)
        return text_dataset(self._read(path), Form(self.vocabulary, self.length, self.unit), self.test, about)

    def _read(self, path: Path) -> Texts:
        separator = self.separator or ("\t" if ".tsv" in path.suffixes else ",")
        wanted = {"data.label": (self.label,), "data.text": self.text, "data.group": (self.group,)}
        check_present(wanted, column_names(path, separator), path)
        names = [name for name in (self.label, *self.text, self.group) if name is not None]
        cells = column_cells(path, names, separator)
        group = None if self.group is None else np.array(cells[self.group], dtype=str)
        content = joined([cells[name] for name in self.text])
        return Texts(content, np.array(cells[self.label], dtype=str), str(path), group)
