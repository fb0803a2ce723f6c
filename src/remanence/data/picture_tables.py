"""Parquet tables in which every row is a picture, its class and its owner."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remanence.data import checks
from remanence.data.assemble import Raw
from remanence.data.columns import check_present
from remanence.data.duckdb_tables import PARQUET, column_types, parquet, quoted
from remanence.data.pictures import grey_pictures
from remanence.errors import UserError

Choose = Callable[[np.ndarray], np.ndarray]  # from every row's owner to the rows that are wanted
_ROWS = 4096  # fetched at a time


@dataclass(frozen=True)
class PictureTable:
    """What the columns of one are called, and what its pictures and classes are."""

    image: str
    group: str
    labels: tuple[str, ...]  # the first that is there counts
    side: int
    names: tuple[str, ...]


def picture_table(files: Sequence[Path], form: PictureTable, choose: Choose) -> Raw:
    """The wanted rows of the files, in their order; only their pictures are decoded."""
    paths, where = [str(path) for path in files], files[0] if len(files) == 1 else files[0].parent
    with parquet(where) as link:
        types = column_types(link, paths)
        label = next((name for name in form.labels if name in types), form.labels[0])
        check_present({"data.path": (form.image, form.group, label)}, list(types), where)
        y = _labels(_text(link, label, paths), types[label], form, str(where))
        group = checks.owners(_text(link, form.group, paths), len(y), str(where))
        rows = np.sort(choose(group))
        contents = _contents(link, _bytes(form.image, types[form.image], where), paths, rows)
        return Raw(grey_pictures(contents, len(rows), form.side, str(where)), y[rows], str(where), group[rows])


def _text(link: Any, name: str, paths: list[str]) -> np.ndarray:
    query = f"SELECT CAST({quoted(name)} AS VARCHAR) AS cell FROM {PARQUET}"
    cells: np.ndarray = np.ma.filled(link.execute(query, {"path": paths}).fetchnumpy()["cell"], "").astype(str)
    return cells


def _labels(cells: np.ndarray, kind: str, form: PictureTable, where: str) -> np.ndarray:
    """In text, "7" is a name; among numbers, 7 is the number of a class."""
    y = cells if kind == "VARCHAR" else checks.as_numbers(cells)
    return checks.class_numbers([(y, where)], len(form.names), form.names)[0][0]


def _bytes(name: str, kind: str, where: Path) -> str:
    if kind == "BLOB":
        return quoted(name)
    if kind.startswith("STRUCT(") and "bytes BLOB" in kind:
        return f"{quoted(name)}.bytes"
    raise UserError(f"{where}: column '{name}' is {kind}: pictures are expected, as bytes of PNG or the like")


def _contents(link: Any, column: str, paths: list[str], rows: np.ndarray) -> Iterator[tuple[int, bytes]]:
    """Row, counted from 1, and content of the pictures in these ascending rows."""
    cursor = link.execute(f"SELECT {column} FROM {PARQUET}", {"path": paths})
    start = 0
    while found := cursor.fetchmany(_ROWS):
        first, last = np.searchsorted(rows, [start, start + len(found)])
        for row in rows[first:last].tolist():
            yield row + 1, found[row - start][0] or b""
        start += len(found)
