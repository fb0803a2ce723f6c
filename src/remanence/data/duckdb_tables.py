"""CSV and Parquet through duckdb, which the extra `tables` brings."""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from remanence.data.assemble import Raw
from remanence.data.columns import Columns
from remanence.data.files import first_line
from remanence.errors import UserError

_NUMERIC = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "BOOLEAN", "REAL")
PARQUET = "read_parquet($path)"


def read_parquet(path: Path, columns: Columns) -> Raw:
    with parquet(path) as link:
        types = column_types(link, str(path))
        features = columns.features(list(types), path)
        _check_numeric(path, {name: types[name] for name in features})
        return _raw(_fetch(link, PARQUET, {"path": str(path)}, features, columns), features, path, columns)


def parquet_names(path: Path) -> list[str]:
    with parquet(path) as link:
        return list(column_types(link, str(path)))


def parquet_cells(path: Path, names: Sequence[str]) -> dict[str, Sequence[str]]:
    """The named columns as text; what is missing is empty."""
    wanted = ", ".join(f"CAST({quoted(name)} AS VARCHAR) AS c{place}" for place, name in enumerate(names))
    with parquet(path) as link:
        table = link.execute(f"SELECT {wanted} FROM {PARQUET}", {"path": str(path)}).fetchnumpy()
    return {name: np.ma.filled(table[f"c{place}"], "").tolist() for place, name in enumerate(names)}


@contextmanager
def parquet(path: Path) -> Iterator[Any]:
    """A database to read the file with; whatever is wrong with the file is one line."""
    duckdb = _duckdb()
    if duckdb is None:
        raise UserError(f"{path}: reading Parquet needs the extra 'tables': pip install 'remanence[tables]'")
    try:
        with _link(duckdb) as link:
            yield link
    except duckdb.Error as error:
        raise UserError(f"{path}: broken or not a Parquet file ({first_line(error)})") from None


def column_types(link: Any, path: str | list[str]) -> dict[str, str]:
    rows = link.execute(f"DESCRIBE FROM {PARQUET}", {"path": path}).fetchall()
    return {row[0]: row[1] for row in rows}


def csv_by_duckdb(path: Path, columns: Columns, header: list[str], features: list[str], separator: str) -> Raw | None:
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
    wanted = [f"TRY_CAST({quoted(name)} AS DOUBLE) AS f{place}" for place, name in enumerate(features)]
    wanted.append(f"CAST({quoted(columns.label)} AS VARCHAR) AS label")
    if columns.group is not None:
        wanted.append(f"CAST({quoted(columns.group)} AS VARCHAR) AS owner")
    table: dict[str, np.ndarray] = link.execute(f"SELECT {', '.join(wanted)} FROM {source}", values).fetchnumpy()
    return table


def _raw(table: dict[str, np.ndarray], features: list[str], path: Path, columns: Columns) -> Raw:
    label = np.ma.filled(table["label"], "")
    x = np.empty((len(label), len(features)), dtype=np.float32)
    with np.errstate(over="ignore"):
        for place in range(len(features)):
            x[:, place] = np.ma.filled(table[f"f{place}"], np.nan)
    group = None if columns.group is None else np.ma.filled(table["owner"], "").astype(str)
    return Raw(x, label.astype(str), str(path), group)


def _check_numeric(path: Path, types: dict[str, str]) -> None:
    for name, kind in types.items():
        if not any(word in kind for word in _NUMERIC) or "[" in kind:
            raise UserError(f"{path}: column '{name}' is {kind}: features must be numbers; leave it out with data.drop")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
