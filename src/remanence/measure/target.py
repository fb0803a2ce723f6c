"""Rounds until a curve reaches a target: the first time, and with its 5-round mean, which noise does not fool."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

WINDOW = 5


def rounds_to(target: float, rounds: Sequence[int], values: Sequence[float]) -> int | None:
    """The first round whose value is at least `target`; None if there is none."""
    return next((number for number, value in zip(rounds, values, strict=True) if value >= target), None)


def rounds_to_mean(target: float, rounds: Sequence[int], values: Sequence[float]) -> int | None:
    """The same for the mean over five rounds, which needs a value in each of them."""
    ends = [end for end in range(WINDOW, len(values) + 1) if rounds[end - 1] - rounds[end - WINDOW] == WINDOW - 1]
    # Not sum / 5: five times the target would often come to a little less than the target.
    return rounds_to(target, [rounds[end - 1] for end in ends], [mean(values[end - WINDOW : end]) for end in ends])


def series(events: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """The rounds in which `name` was measured, and its values."""
    found = [(event["round"], event[name]) for event in events if event.get(name) is not None]
    return [number for number, _ in found], [value for _, value in found]
