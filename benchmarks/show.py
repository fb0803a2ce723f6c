"""What was measured, as one line of JSON or as a small table."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """Rows with the same columns; a column may be a group of columns."""

    rows: Sequence[Mapping[str, Any]]
    decimals: Mapping[str, int]  # of the numbers in a column or group


def text_of(result: Mapping[str, Any], as_json: bool) -> str:
    if as_json:
        return json.dumps({name: _rounded(value) for name, value in result.items()})
    plain = {name: value for name, value in result.items() if not isinstance(value, Table)}
    rows = list(_rows(plain))
    width = max(len(name) for name, _ in rows)
    tables = [line for name, value in result.items() if isinstance(value, Table) for line in _table(name, value)]
    return "\n".join([*(f"{name:<{width}}  {value}" for name, value in rows), *tables])


def _rows(result: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in result.items():
        label = f"{before}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from _rows(value, f"{label}: ")
        else:
            yield label, _readable(value)


def _table(name: str, table: Table) -> list[str]:
    """The first column to the left, the others to the right."""
    paths = list(_paths(table.rows[0]))
    lines = [[path[-1].replace("_", " ") for path in paths]]
    lines += [[_cell(row, path, table.decimals.get(path[0], 0)) for path in paths] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = [[line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines]
    return ["", f"{name.replace('_', ' ')}:", _groups(paths, widths), *map("  ".join, texts)]


def _paths(row: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, value in row.items():
        yield from ((name, inner) for inner in value) if isinstance(value, Mapping) else [(name,)]


def _groups(paths: Sequence[tuple[str, ...]], widths: Sequence[int]) -> str:
    """Each group's name over its first column."""
    line, start, before = "", 0, ""
    for path, width in zip(paths, widths, strict=True):
        if len(path) > 1 and path[0] != before:
            line = line.ljust(start) + path[0].replace("_", " ")
        start, before = start + width + 2, path[0]
    return line


def _cell(row: Mapping[str, Any], path: tuple[str, ...], decimals: int) -> str:
    value: Any = row
    for name in path:
        value = value[name]
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,.{decimals}f}"


def _readable(value: Any) -> str:
    if value is None:
        return "-"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{_rounded(value):,}" if number else str(value)


def _rounded(value: Any) -> Any:
    """Four significant digits, and all that stand before the point."""
    if isinstance(value, Table):
        return [_rounded(row) for row in value.rows]
    if isinstance(value, Mapping):
        return {name: _rounded(inner) for name, inner in value.items()}
    if not isinstance(value, float):
        return value
    return round(value, 1) if abs(value) >= 1000 else float(f"{value:.4g}")
