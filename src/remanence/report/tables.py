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

_LABEL = 24  # letters of a name in one line of the terminal
_LEAST_COLUMNS = 3  # name, runs, accuracy
_GAP = 2


@dataclass(frozen=True)
class Column:
    name: str
    title: str
    about: str
    text: Callable[[float], str]
    best: Callable[[Sequence[float]], float]  # max or min
    spread: bool = False  # show the deviation over seeds


COLUMNS = (
    Column(
        "accuracy", "Accuracy %", "the global model on the common test set after the last round", percent, max, True
    ),
    Column(
        "own", "Own model %", "the last round's devices' own models, each on its own mix of classes", percent, max, True
    ),
    Column(
        "forgetting",
        "Forgetting %",
        "mean over classes of the best earlier accuracy minus the last one",
        percent,
        min,
        True,
    ),
    Column("up", "Up / round", "what the devices sent in a round, all together", size, min),
    Column("down", "Down / round", "what was sent to the devices in a round, all together", size, min),
    Column("state", "Device keeps", "what a device keeps from one round to its next", size, min),
    Column("time", "Time", "wall clock of a run on the machine that made it", duration, min),
)


@dataclass(frozen=True)
class Cell:
    text: str
    best: bool = False


@dataclass(frozen=True)
class ResultRow:
    label: str
    seeds: str  # how many runs the means are of
    cells: tuple[Cell, ...]  # in the order of COLUMNS
    notes: tuple[str, ...] = ()


def result_rows(runs: Sequence[RunRecord]) -> list[ResultRow]:
    return group_rows(group_runs(runs))


def group_rows(groups: Sequence[Group]) -> list[ResultRow]:
    """One row per label: means over seeds, the best of every column marked."""
    columns = [_cells(column, groups) for column in COLUMNS]
    return [
        ResultRow(group.label, str(len(group.runs)), tuple(column[place] for column in columns), _notes(group))
        for place, group in enumerate(groups)
    ]


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
    return tuple(notes)


def run_numbers(run: RunRecord) -> dict[str, float | None]:
    """A run in the numbers of COLUMNS; of an unfinished run, the rounds there are."""
    result = run.result if run.result is not None else so_far(run)
    rounds = result.get("rounds") or len(run.rounds)
    state = result.get("state_bytes") or {}
    return {
        "accuracy": finite(result.get("accuracy")),
        "own": finite(result.get("client_acc_local")),
        "forgetting": finite(result.get("forgetting")),
        "up": _share(result.get("bytes_up"), rounds),
        "down": _share(result.get("bytes_down"), rounds),
        "state": finite(state.get("device_kept")),
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


def result_table(runs: Sequence[RunRecord], width: int = 100) -> Table:
    """The rows for a terminal of `width`: narrower, the spreads go below their means, then columns are left out."""
    rows = result_rows(runs)
    grid = _grid(rows, stacked=False)
    if _width(grid) > width:
        grid = _grid(rows, stacked=True)
    shown = len(grid)
    while shown > _LEAST_COLUMNS and _width(grid[:shown]) > width:
        shown -= 1
    left_out = [column.title for column in COLUMNS[shown - 2 :]]
    return _table(grid[:shown], [row.label for row in rows], _caption(rows, left_out))


def _grid(rows: Sequence[ResultRow], stacked: bool) -> list[list[Text]]:
    """Columns of text, the heading first."""
    names = [Text("Method"), *(Text(_limited(row.label)) for row in rows)]
    number_of_runs = [Text("Runs"), *(Text(row.seeds) for row in rows)]
    numbers = [
        [Text(_two_lines(column.title)), *(_terminal(row.cells[place], stacked) for row in rows)]
        for place, column in enumerate(COLUMNS)
    ]
    return [names, number_of_runs, *numbers]


def _limited(label: str) -> str:
    """Long names in lines of 24 letters."""
    return "\n".join(label[start : start + _LABEL] for start in range(0, len(label), _LABEL))


def _two_lines(title: str) -> str:
    first, _, rest = title.partition(" ")
    return f"{first}\n{rest}"


def _terminal(cell: Cell, stacked: bool) -> Text:
    text = cell.text + ("*" if cell.best else "")
    return Text(text.replace(" ±", "\n±") if stacked else text, style="bold" if cell.best else "")


def _width(columns: Sequence[Sequence[Text]]) -> int:
    return sum(map(_column_width, columns)) + _GAP * (len(columns) - 1)


def _column_width(column: Sequence[Text]) -> int:
    return max(line.cell_len for text in column for line in text.split(allow_blank=True))


def _table(columns: Sequence[Sequence[Text]], labels: Sequence[str], caption: Text | None) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        caption=caption,
        caption_justify="left",
    )
    for place, column in enumerate(columns):
        table.add_column(column[0], justify="right" if place else "left", no_wrap=True)
    for place in range(len(labels)):
        table.add_row(*(column[place + 1] for column in columns))
    return table


def _caption(rows: Sequence[ResultRow], left_out: Sequence[str]) -> Text | None:
    cells = [cell for row in rows for cell in row.cells]
    lines = ["* best of its column"] if any(cell.best for cell in cells) else []
    if any("±" in cell.text for cell in cells):
        lines.append("mean ±sample standard deviation over runs; bytes, state and time: means")
    if left_out:
        lines.append(f"no room for: {', '.join(left_out)}")
    lines += [f"{row.label}: {note}" for row in rows for note in row.notes]
    return Text("\n".join(lines)) if lines else None
