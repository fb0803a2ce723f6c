"""Tables of text: CSV, plain or `.gz`, and Parquet."""

from collections.abc import Sequence
from pathlib import Path

from remanence.data.csv_tables import csv_cells, csv_header
from remanence.data.duckdb_tables import parquet_cells, parquet_names


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def column_names(path: Path, separator: str = ",") -> list[str]:
    return parquet_names(path) if is_parquet(path) else csv_header(path, separator)


def column_cells(path: Path, names: Sequence[str], separator: str = ",") -> dict[str, Sequence[str]]:
    """The named columns, every cell as text."""
    if is_parquet(path):
        return parquet_cells(path, names)
    cells = csv_cells(path, csv_header(path, separator), separator)
    return {name: cells[name] for name in names}
