"""What the charts show, computed from the events of runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from remanence.measure.participation import participation_counts, turns
from remanence.report.groups import Group, unique
from remanence.report.numbers import finite, mean, present
from remanence.runs.record import RunRecord

Values = list[float | None]


@dataclass(frozen=True)
class Point:
    round: int
    x: float
    mean: float
    low: float  # of the seeds
    high: float


@dataclass(frozen=True)
class Line:
    label: str
    points: tuple[Point, ...]
    seeds: int
    number: int = 0  # its place in the comparison: its colour and its dashes


@dataclass(frozen=True)
class Refusal:
    label: str
    reason: str
    uploads: int
    rounds: int


def over_rounds(group: Group, name: str) -> Line:
    """One number of the events over the rounds: the mean of the seeds that have it, and their range."""
    return _line(group, name, lambda event, total: float(event["round"]))


def over_bytes(group: Group, name: str) -> Line:
    """The same over what had been sent until then, up and down."""
    return _line(group, name, lambda event, total: total)


def _line(group: Group, name: str, x: Callable[[Mapping[str, Any], float], float]) -> Line:
    found: dict[int, list[tuple[float, float]]] = {}
    for run in group.runs:
        for event, total in _with_bytes(run):
            value = finite(event.get(name))
            if value is not None:
                found.setdefault(int(event["round"]), []).append((x(event, total), value))
    points = tuple(_point(round, found[round]) for round in sorted(found))
    return Line(group.label, points, len(group.runs))


def _with_bytes(run: RunRecord) -> Iterator[tuple[dict[str, Any], float]]:
    total = 0.0
    for event in run.rounds:
        total += (event.get("bytes_up") or 0) + (event.get("bytes_down") or 0)
        yield event, total


def _point(round: int, found: Sequence[tuple[float, float]]) -> Point:
    places, values = zip(*found, strict=True)
    return Point(round, float(np.mean(places)), float(np.mean(values)), min(values), max(values))


def class_names(groups: Sequence[Group]) -> list[str]:
    """Names of the classes of the runs, as many as the widest run has."""
    starts = [run.start for group in groups for run in group.runs]
    names = max(([str(label) for label in start.get("labels") or []] for start in starts), key=len)
    classes = max([int(start.get("classes") or 0) for start in starts] + [len(names)])
    return unique(names + [str(number) for number in range(len(names), classes)])


def final_accuracy(group: Group) -> Values:
    """Accuracy per class after the last test, mean over seeds."""
    return _mean_rows([table[-1] for table in map(_class_table, group.runs) if table])


def final_forgetting(group: Group) -> Values:
    """Best earlier accuracy minus the last one, per class, mean over seeds."""
    return _mean_rows([_falls(table) for table in map(_class_table, group.runs) if len(table) > 1])


def _class_table(run: RunRecord) -> list[Values]:
    """A row per tested round; of a run whose events hold none, the result's row."""
    rows = [event["per_class"] for event in run.rounds if event.get("per_class")]
    result = (run.result or {}).get("per_class")
    return rows or ([result] if result else [])


def _falls(table: Sequence[Values]) -> Values:
    return [
        None if last is None else max(present(earlier), default=last) - last
        for *earlier, last in zip(*table, strict=True)
    ]


def _mean_rows(rows: Sequence[Values]) -> Values:
    width = max(map(len, rows), default=0)
    return [mean(row[place] for row in rows if place < len(row)) for place in range(width)]


def participation(run: RunRecord) -> list[int]:
    """How many of each device's uploads were counted."""
    counted = [turns({"counted": [], **event}) for event in run.rounds]
    devices = max([int(run.start.get("devices") or 0), *(max(row) + 1 for row in counted if row)])
    return [int(number) for number in participation_counts(counted, devices)]


def refusals(groups: Sequence[Group]) -> list[Refusal]:
    """Who was refused and why, the most frequent first."""
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for group in groups:
        for run, event in group.events():
            for reason in (event.get("refused") or {}).values():
                found.setdefault((group.label, str(reason)), []).append((run.seed, int(event["round"])))
    table = [Refusal(label, reason, len(cases), len(set(cases))) for (label, reason), cases in found.items()]
    return sorted(table, key=lambda refusal: -refusal.uploads)


def asked(group: Group) -> int:
    """How often a device was asked to take part."""
    return sum(len(event.get("selected") or []) for _, event in group.events())


def totals(group: Group, name: str) -> float | None:
    """Sum of one number of the events over a run, mean over seeds."""
    return mean(sum(present(event.get(name) for event in run.rounds)) for run in group.runs)


def links(group: Group) -> dict[str, dict[str, float | None]]:
    """Bytes of every link in a run, mean over seeds; empty without sites."""
    known = [[event["links"] for event in run.rounds if "links" in event] for run in group.runs]
    if not any(known):
        return {}
    names = known[0][0] if known[0] else {}
    return {
        name: {way: mean(sum(links[name][way] for links in rounds) for rounds in known) for way in ("up", "down")}
        for name in names
    }


def state_bytes(group: Group, name: str) -> float | None:
    return mean(((run.result or {}).get("state_bytes") or {}).get(name) for run in group.runs)
