"""AG News: 120,000 English news items in four even classes, title and description.

The 120,000 items of the original training file are divided again, 84,000 and 36,000 by the default share; its 7,600
test items are not used. Taken are CSV (also `.gz`) and Parquet, with a header (label, title, description; `text`
instead of the last two or of the last; rows whose column `split` is not "train" are left out) or, as published,
without one: class from 1 to 4, title, description.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import Field

from remanence.core.rng import numpy_generator
from remanence.data.assemble import About
from remanence.data.csv_tables import csv_cells, csv_first_row
from remanence.data.hub import HubName, hub_texts
from remanence.data.named import cache_folder, find, not_found
from remanence.data.samples import Dataset
from remanence.data.text import LARGEST, Form, Texts, joined, text_dataset
from remanence.data.text_tables import column_cells, column_names, is_parquet
from remanence.errors import UserError
from remanence.registry import datasets, options

_NAMES = ("World", "Sports", "Business", "Sci/Tech")
_LABELS = ("label", "class index", "class")
_TEXTS = (("title", "description"), ("title", "text"), ("text",))
_HUB = HubName("fancyzhx/ag_news", label="label")
_ADVICE = "a CSV (also .gz) or Parquet file with the columns label, title, description, or the original train.csv"


@datasets.register("ag-news")
@options
class AgNews:
    """News in four classes (World, Sports, Business, Sci/Tech), words as token numbers, for `fasttext`."""

    path: Path | None = None
    vocabulary: int = Field(
        default=20_002,
        ge=3,
        le=LARGEST,
        description="token numbers: padding, unknown, then the most frequent words of the training part",
    )
    length: int = Field(
        default=128, ge=1, le=10_000, description="words kept of each item; shorter ones are padded at the end"
    )
    test: float = Field(default=0.3, gt=0, lt=1, description="share of every class, drawn at random")
    split_seed: int = Field(default=0, ge=0, lt=2**53, description="of that draw")

    def load(self) -> Dataset:
        texts, origin = _found(self.path)
        texts = texts.take(numpy_generator(self.split_seed, "split").permutation(len(texts.y)))
        about = About("ag-news", origin, len(_NAMES), _NAMES)
        return text_dataset(texts, Form(self.vocabulary, self.length), self.test, about)


def _found(path: Path | None) -> tuple[Texts, str]:
    """From the path given, else the user's cache, else the hub."""
    places = [cache_folder() / f"ag-news{ending}" for ending in (".csv", ".csv.gz", ".parquet")]
    found = find(path, places)
    if found is not None:
        return _read(found), str(found)
    try:
        return _checked(hub_texts(_HUB, ("text",)), 0), f"hub: {_HUB.dataset}"
    except UserError as error:
        raise not_found("ag-news", places, error, _ADVICE) from None


def _read(path: Path) -> Texts:
    if path.is_dir():
        raise UserError(f"data.path: {path} is a folder; ag-news is read from {_ADVICE}")
    if not is_parquet(path) and csv_first_row(path, ",")[0].strip().isdecimal():
        return _without_header(path)
    role = {name.strip().lower(): name for name in column_names(path)}
    label = next((name for name in _LABELS if name in role), None)
    text = next((columns for columns in _TEXTS if set(columns) <= role.keys()), None)
    if label is None or text is None:
        raise UserError(
            f"{path}: needs the columns label and text, or label, title and description; "
            f"it has {', '.join(role.values())}"
        )
    wanted = [role[name] for name in (label, *text, "split") if name in role]
    cells = column_cells(path, wanted)
    content = joined([cells[role[name]] for name in text])
    texts = Texts(content, np.array(cells[role[label]], dtype=str), str(path))
    texts = _checked(texts, 1 if label == "class index" else None)
    return _training(texts, np.array(cells[role["split"]], dtype=str)) if "split" in role else texts


def _without_header(path: Path) -> Texts:
    names = ("class", "title", "description")
    width = len(csv_first_row(path, ","))
    if width != len(names):
        raise UserError(f"{path}: without a header line it needs class, title, description; it has {width} columns")
    cells = csv_cells(path, names, ",", header=False)
    content = joined([cells["title"], cells["description"]])
    return _checked(Texts(content, np.array(cells["class"], dtype=str), str(path)), 1)


def _training(texts: Texts, split: np.ndarray) -> Texts:
    rows = np.flatnonzero(np.char.lower(np.char.strip(split)) == "train")
    if not len(rows):
        raise UserError(f"{texts.where}: no row has 'train' in the column 'split'")
    return texts.take(rows)


def _checked(texts: Texts, first: int | None) -> Texts:
    """With class numbers for names and numbers; `first` is the lowest, None leaves it to the file to tell."""
    labels = np.char.strip(texts.y)
    if first is None:
        first = int("4" in labels and "0" not in labels)
    known = {name: number for number, name in enumerate(_NAMES)}
    known |= {str(first + number): number for number in range(len(_NAMES))}
    for row, label in enumerate(labels.tolist(), 1):
        if label not in known:
            raise UserError(
                f"{texts.where}: label '{label}' in row {row} is not allowed: "
                f"{first} to {first + len(_NAMES) - 1}, or {', '.join(_NAMES)}"
            )
    return replace(texts, y=np.array([known[label] for label in labels.tolist()], dtype=np.int64))
