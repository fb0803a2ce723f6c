"""How numbers are written: once for the page, the terminal and the values behind a chart."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

MISSING = "-"
_PREFIXES = ("", "k", "M", "G", "T", "P")


def finite(value: Any) -> float | None:
    """A number that can be drawn, or None: a diverged run holds NaN and infinity."""
    if value is None or isinstance(value, (str, bool)) or not math.isfinite(value):
        return None
    return float(value)


def present(values: Iterable[Any]) -> list[float]:
    return [number for number in map(finite, values) if number is not None]


def mean(values: Iterable[Any]) -> float | None:
    known = present(values)
    return statistics.fmean(known) if known else None


def deviation(values: Iterable[Any]) -> float | None:
    """The sample standard deviation (n-1); None for fewer than two values."""
    known = present(values)
    return statistics.stdev(known) if len(known) > 1 else None


def percent(value: float) -> str:
    return f"{100 * value:.2f}"


def whole(value: float) -> str:
    return f"{value:,.0f}"


def decimal(value: float) -> str:
    """Four significant digits, with an exponent only where it is shorter."""
    return f"{value:.4g}"


def size(value: float) -> str:
    """Bytes in steps of 1000, three digits: `19.2 kB`."""
    unit, name = unit_of(value)
    number = value / unit
    digits = 0 if unit == 1 or number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f} {name}"


def unit_of(value: float) -> tuple[float, str]:
    """The unit in which a number of bytes is best told."""
    step = 0
    while value >= 999.5 * 1000**step and step < len(_PREFIXES) - 1:
        step += 1
    return 1000.0**step, f"{_PREFIXES[step]}B"


def duration(seconds: float) -> str:
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left:02d} min" if hours else f"{minutes} min {rest:02d} s"


def count(number: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def thin(length: int, limit: int) -> list[int]:
    """At most `limit` positions out of `length`, evenly spread, the first and the last among them."""
    if length <= limit:
        return list(range(length))
    return sorted({round(step * (length - 1) / (limit - 1)) for step in range(limit)})


def joined(texts: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)
