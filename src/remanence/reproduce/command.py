"""`remanence reproduce`: which cells, run them, keep their metrics, write the page."""

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from remanence.config import Tree, apply_settings
from remanence.errors import RunError, UserError
from remanence.progress import CellProgress
from remanence.reproduce.keep import keep_cells
from remanence.reproduce.page import page_text
from remanence.reproduce.play import Cell, plan_cells, play_cells, wanted
from remanence.reproduce.suite import PaperTable, Suite, find_tables
from remanence.runs.compare import numbered_path

SEEDS = 3  # as many as the papers run; the page looks for so many


def reproduce_tables(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    paper, suite, tables = find_tables(arguments.table)
    played = numbered_path(arguments.runs, paper, arguments.resume or arguments.page_only)
    kept = arguments.out or played
    cells = _cells(arguments, suite, tables)
    failed: dict[str, str] = {}
    if not arguments.page_only:
        failed = _play(arguments, console, cells, played, kept)
        keep_cells(cells, played, kept) if kept != played else None
    page = kept / f"{paper}.md"
    everything = _all_cells(arguments, suite)
    _write(page, page_text(paper, suite, everything, [kept, played], arguments.settings))
    if not arguments.quiet:
        console.print(f"page: {page}", markup=False, highlight=False, soft_wrap=True)
    rounds = {cell.name: max(cell.rounds_in(kept), cell.rounds_in(played)) for cell in cells}
    return {"page": str(page), "runs": str(played), "rounds": rounds, "failed": failed}


def _cells(arguments: argparse.Namespace, suite: Suite, tables: Sequence[PaperTable]) -> list[Cell]:
    patterns = [pattern.strip() for pattern in arguments.cells.split(",") if pattern.strip()]
    if not patterns:
        raise UserError(f"--cells: {arguments.cells!r} names no cell")
    chosen = suite.chosen(tables, patterns)
    return plan_cells(suite, chosen, arguments.seeds, lambda tree: _settled(tree, arguments))


def _all_cells(arguments: argparse.Namespace, suite: Suite) -> list[Cell]:
    """Of every table of the paper: the page shows what was run at any time."""
    cells: list[Cell] = []
    for chosen in suite.chosen(suite.tables, ["*"]):
        with suppress(UserError):  # what the user set does not fit this cell: it cannot have been run
            cells += plan_cells(suite, [chosen], max(arguments.seeds, SEEDS), lambda tree: _settled(tree, arguments))
    return cells


def _settled(tree: Tree, arguments: argparse.Namespace) -> Tree:
    return apply_settings(tree, arguments.settings)


def _play(
    arguments: argparse.Namespace, console: Console, cells: Sequence[Cell], played: Path, kept: Path
) -> dict[str, str]:
    rounds = arguments.rounds
    missing = [cell for cell in cells if max(cell.rounds_in(kept), cell.rounds_in(played)) < wanted(cell, rounds)]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    jobs = arguments.jobs or cores
    with CellProgress(console, arguments.quiet, sum(wanted(cell, rounds) for cell in missing)) as progress:
        progress.say(f"{len(cells)} cells, {len(cells) - len(missing)} of them done; runs in {played}")
        return play_cells(missing, played, rounds, min(jobs, max(1, len(missing))), progress.tell)


def _write(page: Path, text: str) -> None:
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"{page}: could not be written: {str(error.strerror).lower()}") from None
