"""Run the cells of a table: one by one or several at a time, each resumable, none twice."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from remanence.config import Experiment, Tree, parse
from remanence.errors import RunError, UserError
from remanence.reproduce.suite import Suite
from remanence.runs.compare import with_seed
from remanence.runs.folder import RunFolder
from remanence.runs.play import first_difference, play

Progress = Callable[[str, int, int], None]  # cell, rounds played, rounds wanted
LOOK = 0.5  # seconds between two looks at the folders


@dataclass(frozen=True)
class Cell:
    """One run: a method in a setting with a seed."""

    method: str
    setting: str
    tree: Tree
    experiment: Experiment

    @property
    def seed(self) -> int:
        return self.experiment.general.seed

    @property
    def name(self) -> str:
        return f"{self.method}.{self.setting}-seed{self.seed}"

    def rounds_in(self, folder: Path) -> int:
        """Rounds of this very experiment that have been played there."""
        found = RunFolder(folder / self.name)
        if not found.events.exists() or first_difference(found.config(), self.experiment):
            return 0
        return sum(event["event"] == "round" for event in found.read_events())


def plan_cells(
    suite: Suite, chosen: Sequence[tuple[str, str]], seeds: int, settle: Callable[[Tree], Tree]
) -> list[Cell]:
    """All are checked before the first one runs; `settle` applies what the user sets for all of them."""
    cells = []
    for method, setting in chosen:
        for number in range(seeds):
            tree = with_seed(settle(suite.cell(method, setting)), number)
            cells.append(Cell(method, setting, tree, parse(tree)))
    return cells


def play_cells(cells: Sequence[Cell], folder: Path, rounds: int | None, jobs: int, tell: Progress) -> dict[str, str]:
    """Play every cell up to `rounds`, `jobs` at a time; those that failed, with the reason."""
    failed: dict[str, str] = {}
    # A fresh interpreter each: torch must not be forked once it has threads, and memory is measured from its start.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1) as pool:
        futures = {pool.submit(_play, cell.tree, folder / cell.name, rounds, jobs): cell for cell in cells}
        try:
            for future, cell in _ended(futures, folder, rounds, tell):
                error = future.exception()
                if error is not None:
                    failed[cell.name] = str(error)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def _ended(
    futures: dict[Future[None], Cell], folder: Path, rounds: int | None, tell: Progress
) -> Iterator[tuple[Future[None], Cell]]:
    left = dict(futures)
    while left:
        done, _ = wait(left, timeout=LOOK, return_when="FIRST_COMPLETED")
        for future, cell in left.items():
            if future.running() or future in done:
                tell(cell.name, _lines(folder / cell.name / "timing.jsonl"), wanted(cell, rounds))
        for future in done:
            yield future, left.pop(future)


def _lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


def wanted(cell: Cell, rounds: int | None) -> int:
    planned = cell.experiment.general.rounds
    return planned if rounds is None else min(rounds, planned)


def _play(tree: Tree, path: Path, rounds: int | None, jobs: int) -> None:
    """In a process of its own, which shares the cores with the others; only plain errors may leave it."""
    workers = max(1, len(os.sched_getaffinity(0)) // jobs) if hasattr(os, "sched_getaffinity") else 1
    engine = {"workers": workers, **tree.get("engine", {})}
    try:
        play(parse({**tree, "engine": engine}), path.parent, True, path=path, until=rounds)
    except (UserError, RunError):
        raise
    except Exception as error:
        raise RunError(f"{type(error).__name__}: {str(error)[:200]}") from None
