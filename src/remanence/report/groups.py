"""Runs that differ in their seed alone belong together; everything else gets a line of its own."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remanence.errors import UserError
from remanence.runs.record import RunRecord

_NOT_SETTINGS = ("seed", "seeds", "label", "name")
_MOST_SETTINGS = 2  # in a name


@dataclass(frozen=True)
class Group:
    label: str
    runs: tuple[RunRecord, ...]  # the finished ones; all of them if none has finished
    left_out: int = 0

    @property
    def finished(self) -> bool:
        return all(run.result is not None for run in self.runs)

    @property
    def rounds(self) -> int:
        return max(len(run.rounds) for run in self.runs)

    @property
    def planned(self) -> int:
        return max(int(run.start.get("rounds") or run.config.get("rounds") or len(run.rounds)) for run in self.runs)

    @property
    def diverged(self) -> bool:
        return any(event.get("diverged") for _, event in self.events())

    def events(self) -> Iterator[tuple[RunRecord, dict[str, Any]]]:
        return ((run, event) for run in self.runs for event in run.rounds)


def group_runs(runs: Sequence[RunRecord]) -> list[Group]:
    if not runs:
        raise UserError("report: no run was given")
    sets: dict[str, list[RunRecord]] = {}
    for run in runs:
        sets.setdefault(json.dumps([run.label, settings(run.config)], default=str), []).append(run)
    together = list(sets.values())
    return [_group(name, members) for name, members in zip(_names(together), together, strict=True)]


def _group(name: str, members: Sequence[RunRecord]) -> Group:
    """One run per seed: the same seed twice is the same number twice and would make the spread look small."""
    by_seed: dict[int, RunRecord] = {}
    for run in members:
        kept = by_seed.setdefault(run.seed, run)
        if kept.result is None and (run.result is not None or len(run.rounds) > len(kept.rounds)):
            by_seed[run.seed] = run
    candidates = [by_seed[seed] for seed in sorted(by_seed)]
    shown = [run for run in candidates if run.result is not None] or candidates
    return Group(name, tuple(shown), len(members) - len(shown))


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a run does, as `section.key: value`, without what only names it and without seeds."""
    rest = {name: value for name, value in config.items() if name not in _NOT_SETTINGS}
    return dict(sorted(flat(rest).items()))


def flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            values |= flat(value, f"{above}{name}.")
        else:
            values[f"{above}{name}"] = value
    return values


def _names(sets: Sequence[Sequence[RunRecord]]) -> list[str]:
    """The runs' labels; where the same label stands for different settings, with what differs."""
    names = []
    for members in sets:
        label = members[0].label
        twins = [settings(other[0].config) for other in sets if other[0].label == label]
        names.append(label if len(twins) == 1 else _told_apart(label, settings(members[0].config), twins))
    return unique(names)


def _told_apart(label: str, own: Mapping[str, Any], twins: Sequence[Mapping[str, Any]]) -> str:
    differing = [name for name in own if any(twin.get(name) != own[name] for twin in twins)]
    values = [f"{name.rpartition('.')[2]}={own[name]}" for name in differing[:_MOST_SETTINGS]]
    return f"{label} {', '.join(values)}".strip()


def unique(names: Sequence[str]) -> list[str]:
    """The same names, told apart by a number where one comes twice."""
    seen: dict[str, int] = {}
    different = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        different.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return different
