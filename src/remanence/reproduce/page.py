"""The page of a paper's tables: published, ours, rounds run, and why they may differ. Made from run folders alone."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from remanence.measure.forgetting import forgetting
from remanence.measure.target import rounds_to, rounds_to_mean, series
from remanence.report.numbers import size
from remanence.reproduce.play import Cell
from remanence.reproduce.suite import PaperTable, Suite
from remanence.runs.record import RunRecord, read_run

NOT_RUN = "not run"


@dataclass(frozen=True)
class Measured:
    """What the runs of one cell came to."""

    text: str
    rounds: int
    planned: int
    seeds: int


class Evidence:
    """The cells that were run, wherever they lie."""

    def __init__(self, cells: Sequence[Cell], folders: Sequence[Path]) -> None:
        self.records: dict[tuple[str, str], list[RunRecord]] = {}
        for cell in cells:
            best = max(folders, key=cell.rounds_in)
            if cell.rounds_in(best):
                self.records.setdefault((cell.method, cell.setting), []).append(read_run(best / cell.name))

    def measured(self, table: PaperTable, method: str, setting: str) -> Measured | None:
        records = self.records.get((method, setting), [])
        numbers = [(record, self.number(table, record, setting)) for record in records]
        found = [(record, number) for record, number in numbers if number is not None]
        if not found:
            return None
        played = min(len(record.rounds) for record, _ in found)
        text = _text(table.metric, [number for _, number in found])
        text += self._beside(table, [record for record, _ in found], setting, [number for _, number in found])
        return Measured(text, played, int(found[0][0].config["rounds"]), len(found))

    def _beside(self, table: PaperTable, records: Sequence[RunRecord], setting: str, numbers: Sequence[float]) -> str:
        """What must not be read without the number: runs that diverged, the raw model, the ratio to FedAvg."""
        texts = []
        if table.metric == "forgetting":
            raw = [value for record in records if (value := _raw_forgetting(record)) is not None]
            texts += [f"raw {mean(raw):.2f}"] if raw else []
        if table.metric == "links" and "links" in records[0].rounds[0]:
            texts += [
                f"{name} {size(sum(sum(event['links'][name].values()) for event in records[0].rounds))}"
                for name in records[0].rounds[0]["links"]
            ]
        if table.metric == "memory":
            plain = [self.number(table, record, setting) for record in self.records.get(("fedavg", setting), [])]
            known = [number for number in plain if number]
            texts += [f"{median(numbers) / median(known):.2f} of FedAvg's"] if known else []
        diverged = sum(any(event.get("diverged") for event in record.rounds) for record in records)
        texts += [f"{diverged} of {len(records)} diverged"] if diverged else []
        return f" ({', '.join(texts)})" if texts else ""

    def number(self, table: PaperTable, record: RunRecord, setting: str) -> float | None:
        if table.metric == "forgetting":
            return _forgetting([event for event in record.rounds if "per_class" in event])
        if table.metric == "memory":
            peak = (record.result or {}).get("peak_memory")
            return None if peak is None else peak / 1e9
        if table.metric == "links":
            return float(sum(event["bytes_up"] + event["bytes_down"] for event in record.rounds))
        if table.metric == "selecting":
            spent = sum(entry.get("selecting", 0.0) for entry in record.timing)
            return 100 * spent / sum(entry["seconds"] for entry in record.timing) if record.timing else None
        if table.metric.startswith("rounds_to_"):
            return self._rounds_to(table, record, setting)
        values = series(record.rounds, table.metric)[1]
        if table.metric == "divergence":
            return mean(values) if values else None
        return (values[-1] if table.metric == "test_loss" else 100 * values[-1]) if values else None

    def _rounds_to(self, table: PaperTable, record: RunRecord, setting: str) -> float | None:
        """To the last value of the reference with the same seed; infinity if never."""
        goal = self._goal(table, record, setting)
        if goal is None:
            return None
        found = rounds_to(goal[0], *series(record.rounds[: goal[1]], table.metric.removeprefix("rounds_to_")))
        return float("inf") if found is None else float(found)

    def _goal(self, table: PaperTable, record: RunRecord, setting: str) -> tuple[float, int] | None:
        """The value to be reached, and the rounds in which that may happen."""
        if table.target is not None:
            return table.target, len(record.rounds)
        others = self.records.get((table.reference, setting), [])
        reference = next((other for other in others if other.seed == record.seed), None)
        if reference is None:
            return None
        until = min(len(reference.rounds), len(record.rounds))
        values = series(reference.rounds[:until], table.metric.removeprefix("rounds_to_"))[1]
        return (values[-1], until) if values else None

    def moving(self, table: PaperTable, method: str, setting: str) -> str:
        """Rounds to the target by the moving mean, seed by seed."""
        name, texts = table.metric.removeprefix("rounds_to_"), []
        for record in self.records.get((method, setting), []):
            goal = self._goal(table, record, setting)
            if goal is None:
                continue
            measured = series(record.rounds[: goal[1]], name)
            if len(measured[0]) < goal[1]:  # a mean over five rounds needs all of them
                continue
            found = rounds_to_mean(goal[0], *measured)
            texts.append("never" if found is None else str(found))
        return ", ".join(texts)


def _forgetting(models: Sequence[Mapping[str, Any]]) -> float | None:
    value = forgetting([model["per_class"] for model in models])[0]
    return None if value is None else 100 * value


def _raw_forgetting(record: RunRecord) -> float | None:
    """Of the aggregates before a window averaged them, which lowers forgetting by itself."""
    tested = [event for event in record.rounds if "per_class" in event]
    if not any("raw" in event for event in tested):
        return None
    return _forgetting([event.get("raw", event) for event in tested])


def _text(metric: str, numbers: Sequence[float]) -> str:
    if metric.startswith("rounds_to_"):
        reached = [number for number in numbers if number != float("inf")]
        if len(reached) < len(numbers):
            return "N/A" if not reached else f"{len(reached)} of {len(numbers)} seeds"
        return f"{mean(reached):.0f}"
    if metric == "memory":
        return f"{median(numbers):.3f}"
    if metric == "links":
        return size(mean(numbers))
    digits = _digits(metric)
    spread = f" ±{stdev(numbers):.{digits}f}" if len(numbers) > 1 else ""
    return f"{mean(numbers):.{digits}f}{spread}"


def page_text(
    paper: str, suite: Suite, cells: Sequence[Cell], folders: Sequence[Path], settings: Sequence[str] = ()
) -> str:
    evidence = Evidence(cells, folders)
    lines = [
        f"# {paper}: published and measured",
        "",
        suite.source + ".",
        "",
        "Every cell: **published** / ours. Ours is the mean over seeds (± sample standard deviation where there are "
        "several), from the events of the runs beside this page; a number behind it in brackets says how many rounds "
        "were played where these are fewer than the paper's. Nothing is filled in by hand; "
        f'"{NOT_RUN}" is what it says.',
        "",
        f"Made by `{_command(paper, settings)}`.",
    ]
    for table in suite.tables:
        lines += ["", f"## {table.name}", "", table.title + ".", "", *_table(table, suite, evidence)]
    return "\n".join(lines) + "\n"


def _command(paper: str, settings: Sequence[str]) -> str:
    return " ".join(["remanence reproduce", paper, *(f"--set {shlex.quote(setting)}" for setting in settings)])


def _table(table: PaperTable, suite: Suite, evidence: Evidence) -> list[str]:
    head = ["", *(suite.title(column) for column in table.columns)]
    rows = [
        [
            suite.title(method),
            *(_cell(table, method, column, place, evidence) for place, column in enumerate(table.columns)),
        ]
        for method in table.published
    ]
    reasons = [f"- {text}" for text in _reasons(table, suite, evidence)]
    return [*_grid([head, *rows]), "", *(["Why ours may differ:", "", *reasons] if reasons else [])]


def _cell(table: PaperTable, method: str, setting: str, place: int, evidence: Evidence) -> str:
    printed = table.published[method]
    published = _published(table, printed[place]) if place < len(printed) else "not printed"
    measured = evidence.measured(table, method, setting)
    if measured is None:
        return f"**{published}** / {NOT_RUN}"
    partly = f" ({measured.rounds})" if measured.rounds < measured.planned else ""
    mean5 = evidence.moving(table, method, setting) if table.metric.startswith("rounds_to_") else ""
    return f"**{published}** / {measured.text}{f'; {mean5}' if mean5 else ''}{partly}"


def _published(table: PaperTable, number: float) -> str:
    if table.metric.startswith("rounds_to_"):
        return f"{number:.0f}" if number else "N/A"
    return f"{number:.{_digits(table.metric)}f}"


def _digits(metric: str) -> int:
    """Losses and distances are printed in thousandths, shares of 100 in hundredths."""
    return 3 if metric in ("test_loss", "divergence") else 2


def _reasons(table: PaperTable, suite: Suite, evidence: Evidence) -> list[str]:
    names = [".".join(cell) for cell in table.cells() if cell in evidence.records]
    texts = [
        f"`{reason.cells}`: {reason.text}"
        for reason in suite.reasons
        if reason.metric in (None, table.metric) and any(fnmatchcase(name, reason.cells) for name in names)
    ]
    records = [record for cell in table.cells() for record in evidence.records.get(cell, [])]
    short = {len(record.rounds) for record in records if len(record.rounds) < int(record.config["rounds"])}
    if short:
        texts.append(
            "Cells with a number in brackets were stopped after so many rounds of the paper's schedule (learning rate "
            "and, for FedPSD, the distillation's share follow the whole schedule), so they are not at their last value."
        )
    if records and max(len(evidence.records.get(cell, [])) for cell in table.cells()) == 1:
        texts.append("One seed: the spread between seeds is unknown here.")
    if table.metric.startswith("rounds_to_") and records:
        texts.append(
            f"Ours: the first measured round that reaches {_target(table)}; behind the semicolon by the mean over five "
            "rounds, which is known only where every round was measured."
        )
    return texts


def _target(table: PaperTable) -> str:
    return f"{table.target:.0%}" if table.target is not None else "FedAvg's value at the last common round"


def _grid(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return [lines[0], rule, *lines[1:]]
