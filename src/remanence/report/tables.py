"""The result of runs as rows of text: the page and the terminal show the same ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from remanence.measure.forgetting import forgetting
from remanence.report.groups import Group, group_runs
from remanence.report.numbers import MISSING, count, deviation, duration, finite, mean, percent, size
from remanence.runs.record import RunRecord


@dataclass(frozen=True)
class Column:
    name: str
    title: str
    about: str
    text: Callable[[float], str]
    best: Callable[[Sequence[float]], float]  # max or min
    spread: bool = False  # show the deviation over seeds


COLUMNS = (
    Column("accuracy", "Accuracy %", "the global model on the common test set after the last round", percent, max, True),
    Column("own", "Own model %", "the last round's devices' own models, each on its own mix of classes", percent, max, True),
    Column("forgetting", "Forgetting %", "mean over classes of the best earlier accuracy minus the last one", percent, min,
           True),
    Column("up", "Up / round", "what the devices sent in a round, all together", size, min),
    Column("down", "Down / round", "what was sent to the devices in a round, all together", size, min),
    Column("state", "Kept on device", "what a device keeps from one round to its next", size, min),
    Column("time", "Time", "wall clock of a run on the machine that made it", duration, min),
)


@dataclass(frozen=True)
class Cell:
    text: str
    best: bool = False


@dataclass(frozen=True)
class ResultRow:
    label: str
    seeds: str
    cells: tuple[Cell, ...]  # in the order of COLUMNS
    notes: tuple[str, ...] = ()


def result_rows(runs: Sequence[RunRecord]) -> list[ResultRow]:
    return group_rows(group_runs(runs))


def group_rows(groups: Sequence[Group]) -> list[ResultRow]:
    """One row per label: means over seeds, the best of every column marked."""
    columns = [_cells(column, groups) for column in COLUMNS]
    return [ResultRow(group.label, _seeds(group), tuple(column[place] for column in columns), _notes(group))
            for place, group in enumerate(groups)]


def _seeds(group: Group) -> str:
    return str(len(group.runs))


def _cells(column: Column, groups: Sequence[Group]) -> list[Cell]:
    values = [[run_numbers(run)[column.name] for run in group.runs] for group in groups]
    means = [mean(row) for row in values]
    shown = [MISSING if value is None else column.text(value) for value in means]
    # An unfinished run has sent and forgotten less than it will: it does not compete.
    competing = [value for value, group in zip(means, groups, strict=True) if value is not None and group.finished]
    best = column.text(column.best(competing)) if len(competing) > 1 else None
    marks = [text == best and group.finished for text, group in zip(shown, groups, strict=True)]
    if all(marks):
        marks = [False] * len(marks)
    return [Cell(text + _spread(column, row), mark) for text, row, mark in zip(shown, values, marks, strict=True)]


def _spread(column: Column, values: Sequence[float | None]) -> str:
    spread = deviation(values) if column.spread else None
    return "" if spread is None else f" ±{column.text(spread)}"


def _notes(group: Group) -> tuple[str, ...]:
    notes = []
    if not group.finished:
        notes.append(f"unfinished: round {group.rounds:,} of {group.planned:,}")
    if group.left_out:
        notes.append(f"{count(group.left_out, 'run')} left out (unfinished, or the same seed again)")
    if group.diverged:
        notes.append("diverged: the model held NaN or infinity")
    if group.refused:
        notes.append(f"{count(group.refused, 'upload')} refused")
    return tuple(notes)


def run_numbers(run: RunRecord) -> dict[str, float | None]:
    """A run in the numbers of COLUMNS; of an unfinished run, the rounds there are."""
    result = run.result if run.result is not None else so_far(run)
    rounds = result.get("rounds") or len(run.rounds)
    state = result.get("state_bytes") or {}
    return {
        "accuracy": finite(result.get("accuracy")), "own": finite(result.get("client_acc_local")),
        "forgetting": finite(result.get("forgetting")), "up": _share(result.get("bytes_up"), rounds),
        "down": _share(result.get("bytes_down"), rounds), "state": finite(state.get("device_kept")),
        "time": finite(result.get("seconds")),
    }


def _share(total: Any, rounds: int) -> float | None:
    number = finite(total)
    return None if number is None or not rounds else number / rounds


def so_far(run: RunRecord) -> dict[str, Any]:
    """The part of a result that the events of an unfinished run already tell."""
    tested = [event for event in run.rounds if event.get("per_class")]
    return {
        "rounds": len(run.rounds),
        "accuracy": _last(run.rounds, "accuracy"),
        "client_acc_local": _last(run.rounds, "client_acc_local"),
        "forgetting": forgetting([event["per_class"] for event in tested])[0],
        "bytes_up": sum(event.get("bytes_up") or 0 for event in run.rounds),
        "bytes_down": sum(event.get("bytes_down") or 0 for event in run.rounds),
        "seconds": sum(line.get("seconds") or 0.0 for line in run.timing) if run.timing else None,
    }


def _last(events: Sequence[Mapping[str, Any]], name: str) -> Any:
    return next((event[name] for event in reversed(events) if event.get(name) is not None), None)


def result_table(runs: Sequence[RunRecord]) -> Table:
    """The rows for the terminal: 100 columns wide at most for names of usual length, folded when there is less."""
    rows = result_rows(runs)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption_justify="left",
                  caption=_caption(rows))
    table.add_column("Method", overflow="fold")
    table.add_column("Runs", justify="right")
    for place, column in enumerate(COLUMNS):
        words = [word for row in rows for word in _terminal(row.cells[place]).split()]
        table.add_column(column.title, justify="right", min_width=max(map(len, [*words, *column.title.split()])))
    for row in rows:
        table.add_row(Text(row.label), row.seeds,
                      *(Text(_terminal(cell), style="bold" if cell.best else "") for cell in row.cells))
    return table


def _terminal(cell: Cell) -> str:
    return cell.text + ("*" if cell.best else "")


def _caption(rows: Sequence[ResultRow]) -> Text | None:
    lines = [f"{row.label}: {note}" for row in rows for note in row.notes]
    cells = [cell for row in rows for cell in row.cells]
    if any("±" in cell.text for cell in cells):
        lines.insert(0, "mean ±sample standard deviation over seeds; bytes, state and time: means")
    if any(cell.best for cell in cells):
        lines.insert(0, "* best of its column")
    return Text("\n".join(lines)) if lines else None
