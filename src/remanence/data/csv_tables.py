"""CSV files: one row per sample, a label column, an optional group column, numbers in all others."""

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from remanence.data.assemble import Raw
from remanence.data.columns import Columns
from remanence.data.duckdb_tables import csv_by_duckdb
from remanence.data.files import reading
from remanence.errors import UserError


def read_csv(path: Path, columns: Columns, separator: str) -> Raw:
    """Read by duckdb where it is installed (10 times faster); what it refuses, the plain reader explains."""
    header = csv_header(path, separator)
    features = columns.features(header, path)
    return csv_by_duckdb(path, columns, header, features, separator) or _csv_by_hand(
        path, columns, header, features, separator
    )


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def csv_first_row(path: Path, separator: str) -> list[str]:
    with reading(path, "CSV"), _open(path) as stream:
        first = next(csv.reader(stream, delimiter=separator, strict=True), [])
    if not first:
        raise UserError(f"{path}: is empty: no header line")
    return first


def csv_header(path: Path, separator: str) -> list[str]:
    header = csv_first_row(path, separator)
    doubled = sorted({name for name in header if header.count(name) > 1})
    if doubled:
        raise UserError(f"{path}: column '{doubled[0]}' is there twice")
    return header


def csv_cells(path: Path, names: Sequence[str], separator: str, header: bool = True) -> dict[str, Sequence[str]]:
    """Every column as text; `names` are those of the header, or of a file that has none."""
    with reading(path, "CSV"), _open(path) as stream:
        lines = csv.reader(stream, delimiter=separator, strict=True)
        rows = [row for row in lines if row][1 if header else 0 :]
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            first = "the header" if header else "the first"
            raise UserError(f"{path}: row {number} has {len(row)} cells, {first} has {len(names)}")
    return dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(names, ())


def _csv_by_hand(path: Path, columns: Columns, header: list[str], features: list[str], separator: str) -> Raw:
    cells = csv_cells(path, header, separator)
    x = np.empty((len(cells[columns.label]), len(features)), dtype=np.float32)
    with np.errstate(over="ignore"):
        for place, name in enumerate(features):
            x[:, place] = _numbers(cells[name], name, path)
    group = None if columns.group is None else np.array(cells[columns.group], dtype=str)
    return Raw(x, np.array(cells[columns.label], dtype=str), str(path), group)


def _numbers(cells: Sequence[str], name: str, path: Path) -> list[float]:
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        return [_number(cell, row, name, path) for row, cell in enumerate(cells, 1)]


def _number(cell: str, row: int, name: str, path: Path) -> float:
    """An empty cell is a missing value, reported together with the others."""
    try:
        return float(cell) if cell.strip() else np.nan
    except ValueError:
        raise UserError(
            f"{path}: column '{name}' has '{cell}' in row {row}: features must be numbers; "
            "leave the column out with data.drop"
        ) from None
