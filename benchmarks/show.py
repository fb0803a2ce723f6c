"""What was measured, as one line of JSON or as a small table."""

import json
from collections.abc import Iterator, Mapping
from typing import Any


def text_of(result: Mapping[str, Any], as_json: bool) -> str:
    if as_json:
        return json.dumps({name: _rounded(value) for name, value in result.items()})
    rows = list(_rows(result))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _rows(result: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in result.items():
        label = f"{before}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from _rows(value, f"{label}: ")
        else:
            yield label, _readable(value)


def _readable(value: Any) -> str:
    if value is None:
        return "-"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{_rounded(value):,}" if number else str(value)


def _rounded(value: Any) -> Any:
    """Four significant digits, and all that stand before the point."""
    if isinstance(value, Mapping):
        return {name: _rounded(inner) for name, inner in value.items()}
    if not isinstance(value, float):
        return value
    return round(value, 1) if abs(value) >= 1000 else float(f"{value:.4g}")
