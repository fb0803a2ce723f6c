"""What each command does, once its arguments are parsed."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from remanence.config import Tree, apply_settings, read
from remanence.errors import RunError, UserError
from remanence.progress import Reporter
from remanence.registry import methods
from remanence.runs.compare import Cell, comparison_path, plan_cells, play_cells, read_runs, reference_first
from remanence.runs.play import play
from remanence.runs.record import RunRecord

WIDTH = 120  # letters of a line that is not shown in a terminal


def run(arguments: argparse.Namespace) -> None:
    tree = _tree(arguments, arguments.experiment)
    cells = plan_cells([tree], 1)
    if len(cells) > 1:
        _compare(arguments, cells)
        return
    console = _console(arguments)
    with Reporter(console, arguments.quiet) as reporter:
        label = cells[0].label
        result = play(
            cells[0].experiment,
            arguments.runs,
            arguments.resume,
            lambda kind, facts: reporter.tell(kind, facts, label),
        )
    records = read_runs(Path(result["run"]))
    _close(arguments, console, records, Path(result["run"]), result)


def compare(arguments: argparse.Namespace) -> None:
    trees = [_tree(arguments, name) for name in arguments.experiments]
    if arguments.methods:
        names = [name.strip() for name in arguments.methods.split(",") if name.strip()]
        for name in names:
            if name not in methods.names():
                methods.get(name, "--methods")
        trees = [{**tree, "method": [{"name": name} for name in names]} for tree in trees]
    cells = plan_cells(trees, arguments.seeds)
    if arguments.reference is not None:
        cells = reference_first(cells, arguments.reference)
    _compare(arguments, cells)


def _compare(arguments: argparse.Namespace, cells: Sequence[Cell]) -> None:
    console = _console(arguments)
    path = comparison_path(cells, arguments.runs, arguments.resume)
    with Reporter(console, arguments.quiet) as reporter:
        results = play_cells(
            cells,
            path,
            arguments.resume,
            lambda cell: (
                lambda kind, facts: reporter.tell(
                    kind,
                    facts,
                    cell.label if len({c.seed for c in cells}) == 1 else f"{cell.label} (seed {cell.seed})",
                )
            ),
        )
    _close(arguments, console, read_runs(path), path, {**results[0], "run": str(path), "runs": results})


def _close(
    arguments: argparse.Namespace,
    console: Console,
    records: Sequence[RunRecord],
    path: Path,
    result: dict[str, Any],
) -> None:
    """The table, the page where its packages are installed, and the JSON line."""
    page, trouble = None, None
    try:
        page = _page(records, path / "report.html")
    except UserError as error:
        trouble = error  # told last: the run itself is whole
    if not arguments.quiet:
        from remanence.report.groups import group_runs
        from remanence.report.paired import paired_table
        from remanence.report.tables import result_table

        console.print(result_table(records))
        differences = paired_table(group_runs(records))
        if differences is not None:
            console.print(differences)
        if trouble is None:
            line = f"report: {page}" if page else "report: install remanence[report] for a page with curves"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    if arguments.json:
        sys.stdout.write(json.dumps(result | {"report": None if page is None else str(page)}) + "\n")
    if trouble is not None:
        raise RunError(str(trouble))


def _page(records: Sequence[RunRecord], path: Path) -> Path | None:
    try:
        import altair  # noqa: F401
    except ImportError:
        return None
    from remanence.report.page import write_report

    write_report(records, path)
    return path


def _tree(arguments: argparse.Namespace, name: str) -> Tree:
    return apply_settings(read(name), arguments.settings)


def _console(arguments: argparse.Namespace) -> Console:
    """People read stdout, unless it is kept for JSON. In a file nothing needs to fit a window."""
    console = Console(stderr=arguments.json)
    return console if console.is_terminal else Console(stderr=arguments.json, width=WIDTH)


def reproduce(arguments: argparse.Namespace) -> None:
    from remanence.reproduce.command import reproduce_tables

    answer = reproduce_tables(arguments, _console(arguments))
    if arguments.json:
        sys.stdout.write(json.dumps(answer) + "\n")
    if answer["failed"]:
        raise RunError("; ".join(f"{name}: {reason}" for name, reason in answer["failed"].items()))


def report(arguments: argparse.Namespace) -> None:
    from remanence.report.page import write_report

    records = [record for path in arguments.runs for record in read_runs(path)]
    if not records:
        raise UserError(f"{arguments.runs[0]}: no run has begun there")
    page = arguments.out or arguments.runs[0] / "report.html"
    if page.is_dir():
        raise UserError(f"--out: {page} is a folder")
    write_report(records, page)
    sys.stdout.write(f"report: {page}\n")


def plan(arguments: argparse.Namespace) -> None:
    from remanence.planning.command import plan_rounds

    answer = plan_rounds(arguments, None if arguments.json else _console(arguments))
    if arguments.json:
        sys.stdout.write(json.dumps(answer) + "\n")


def list(arguments: argparse.Namespace) -> None:
    from remanence.catalogue import entries

    found = entries(arguments.kind)
    if arguments.json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(arguments.kind, no_wrap=True)
    table.add_column("what it is")
    for entry in found:
        table.add_row(entry["name"], entry["summary"])
    _console(arguments).print(table)


def show(arguments: argparse.Namespace) -> None:
    from remanence.catalogue import describe, description_table

    entry = describe(arguments.name)
    if arguments.json:
        sys.stdout.write(json.dumps(entry) + "\n")
        return
    console = _console(arguments)
    for each in (entry, *entry["also"]):
        console.print(f"{each['name']} ({each['kind']})", style="bold", highlight=False, markup=False)
        if each["summary"] not in each["text"]:
            console.print(each["summary"], highlight=False, markup=False)
        console.print(each["text"], highlight=False, markup=False)
        if each["options"]:
            console.print(description_table(each))


def doctor(arguments: argparse.Namespace) -> None:
    from remanence.doctor import findings

    for line in findings():
        sys.stdout.write(line + "\n")
