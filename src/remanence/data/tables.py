"""CSV and Parquet: one row per sample, a label column, an optional group column, numbers in all others."""

import csv
import gzip
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from remanence.data.assemble import Raw
from remanence.data.checks import as_numbers
from remanence.data.files import first_line, reading
from remanence.errors import UserError, suggestion

_NUMERIC = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "BOOLEAN", "REAL")


@dataclass(frozen=True)
class Columns:
    """Which column is what; those that are neither label, group nor dropped are features."""

    label: str = "label"
    group: str | None = None
    drop: tuple[str, ...] = ()

    def features(self, present: Sequence[str], path: Path) -> list[str]:
        roles = {"data.label": (self.label,), "data.group": (self.group,), "data.drop": self.drop}
        for key, names in roles.items():
            for name in names:
                if name is not None and name not in present:
                    raise UserError(f"{key}: {path} has no column '{name}'; {suggestion(name, present)}")
        features = [name for name in present if name not in (self.label, self.group, *self.drop)]
        if not features:
            raise UserError(f"{path}: no feature columns besides {', '.join(present)}")
        return features


def read_csv(path: Path, columns: Columns, separator: str) -> Raw:
    """Read by duckdb where it is installed (10 times faster); what it refuses, the plain reader explains."""
    header = _header(path, separator)
    features = columns.features(header, path)
    return _csv_by_duckdb(path, columns, header, features, separator) or _csv_by_hand(
        path, columns, header, features, separator
    )


def read_parquet(path: Path, columns: Columns) -> Raw:
    duckdb = _duckdb()
    if duckdb is None:
        raise UserError(f"{path}: reading Parquet needs the extra 'tables': pip install 'remanence[tables]'")
    source, values = "read_parquet($path)", {"path": str(path)}
    try:
        with _link(duckdb) as link:
            types = {row[0]: row[1] for row in link.execute(f"DESCRIBE FROM {source}", values).fetchall()}
            features = columns.features(list(types), path)
            _check_numeric(path, {name: types[name] for name in features})
            return _raw(_fetch(link, source, values, features, columns), features, path, columns)
    except duckdb.Error as error:
        raise UserError(f"{path}: broken or not a Parquet file ({first_line(error)})") from None


def _csv_by_duckdb(
    path: Path, columns: Columns, header: list[str], features: list[str], separator: str
) -> Raw | None:
    """Nothing when duckdb is missing, refuses the file, or finds a cell that is no number."""
    duckdb = _duckdb()
    if duckdb is None:
        return None
    # All dialect settings are fixed: sniffing could read the same file differently.
    names = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in header)
    source = (
        f"read_csv($path, columns = {{{names}}}, header = true, auto_detect = false, "
        f"delim = {_text(separator)}, quote = '\"', escape = '\"')"
    )
    try:
        with _link(duckdb) as link:
            table = _fetch(link, source, {"path": str(path)}, features, columns)
    except duckdb.Error:
        return None
    if any(np.ma.is_masked(column) for column in table.values()):
        return None
    return _raw(table, features, path, columns)


def _duckdb() -> Any:
    try:
        return importlib.import_module("duckdb")
    except ImportError:
        return None


def _link(duckdb: Any) -> Any:
    """A database in memory that never fetches extensions."""
    return duckdb.connect(config={"autoinstall_known_extensions": "false"})


def _fetch(
    link: Any, source: str, values: dict[str, str], features: list[str], columns: Columns
) -> dict[str, np.ndarray]:
    """Features as numbers, label and group as text; cells that do not convert are masked."""
    wanted = [f"TRY_CAST({_quoted(name)} AS DOUBLE) AS f{place}" for place, name in enumerate(features)]
    wanted.append(f"CAST({_quoted(columns.label)} AS VARCHAR) AS label")
    if columns.group is not None:
        wanted.append(f"CAST({_quoted(columns.group)} AS VARCHAR) AS owner")
    table: dict[str, np.ndarray] = link.execute(
        f"SELECT {', '.join(wanted)} FROM {source}", values
    ).fetchnumpy()
    return table


def _raw(table: dict[str, np.ndarray], features: list[str], path: Path, columns: Columns) -> Raw:
    label = np.ma.filled(table["label"], "")
    x = np.empty((len(label), len(features)), dtype=np.float32)
    with np.errstate(over="ignore"):
        for place in range(len(features)):
            x[:, place] = np.ma.filled(table[f"f{place}"], np.nan)
    group = None if columns.group is None else _owners(np.ma.filled(table["owner"], ""), path)
    return Raw(x, label.astype(str), str(path), group)


def _check_numeric(path: Path, types: dict[str, str]) -> None:
    for name, kind in types.items():
        if not any(word in kind for word in _NUMERIC) or "[" in kind:
            raise UserError(
                f"{path}: column '{name}' is {kind}: features must be numbers; leave it out with data.drop"
            )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _header(path: Path, separator: str) -> list[str]:
    with reading(path, "CSV"), _open(path) as stream:
        header = next(csv.reader(stream, delimiter=separator, strict=True), [])
    if not header:
        raise UserError(f"{path}: is empty: no header line")
    doubled = sorted({name for name in header if header.count(name) > 1})
    if doubled:
        raise UserError(f"{path}: column '{doubled[0]}' is there twice")
    return header


def _csv_by_hand(
    path: Path, columns: Columns, header: list[str], features: list[str], separator: str
) -> Raw:
    with reading(path, "CSV"), _open(path) as stream:
        lines = csv.reader(stream, delimiter=separator, strict=True)
        rows = [row for row in lines if row][1:]
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise UserError(f"{path}: row {number} has {len(row)} cells, the header has {len(header)}")
    cells = dict(zip(header, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(header, ())
    x = np.empty((len(rows), len(features)), dtype=np.float32)
    with np.errstate(over="ignore"):
        for place, name in enumerate(features):
            x[:, place] = _numbers(cells[name], name, path)
    group = None if columns.group is None else _owners(np.array(cells[columns.group], dtype=str), path)
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


def _owners(values: np.ndarray, path: Path) -> np.ndarray:
    """Group names; whole numbers stay numbers, so that machine 10 comes after machine 9."""
    missing = np.flatnonzero(np.char.strip(values.astype(str)) == "")
    if len(missing):
        raise UserError(f"{path}: {len(missing)} rows name no group, the first is row {missing[0] + 1}")
    numbers = as_numbers(values.astype(str))
    whole = numbers.dtype.kind == "f" and np.isfinite(numbers).all() and (numbers == numbers.round()).all()
    return numbers.astype(np.int64) if whole else np.char.strip(values.astype(str))
