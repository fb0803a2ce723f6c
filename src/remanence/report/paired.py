"""Differences to a reference method, seed by seed: the same partition, sampling and start on both sides."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from remanence.report.groups import Group
from remanence.report.numbers import MISSING, present
from remanence.report.tables import run_numbers

MEASURES = {"accuracy": "Accuracy", "own": "Own model", "forgetting": "Forgetting"}
LEVEL = 0.95


@dataclass(frozen=True)
class Difference:
    """Mean over seeds; `half` is half of the confidence interval, None for a single seed."""

    mean: float
    half: float | None
    seeds: int

    @property
    def text(self) -> str:
        """In points of percent; a star where the interval leaves out 0."""
        spread = "" if self.half is None else f" ±{100 * self.half:.2f}"
        sure = "*" if self.half is not None and abs(self.mean) > self.half else ""
        return f"{100 * self.mean:+.2f}{spread}{sure}"


def difference(group: Group, reference: Group, measure: str) -> Difference | None:
    """Over the seeds that both have finished."""
    theirs = {run.seed: run_numbers(run)[measure] for run in reference.runs if run.result is not None}
    pairs = [(run_numbers(run)[measure], theirs.get(run.seed)) for run in group.runs if run.result is not None]
    gaps = present(a - b for a, b in pairs if a is not None and b is not None)
    if not gaps:
        return None
    return Difference(statistics.fmean(gaps), _half_interval(gaps), len(gaps))


def _half_interval(gaps: Sequence[float]) -> float | None:
    """By Student's t with n - 1 degrees of freedom."""
    if len(gaps) < 2:
        return None
    from scipy.special import stdtrit

    return float(stdtrit(len(gaps) - 1, (1 + LEVEL) / 2)) * statistics.stdev(gaps) / math.sqrt(len(gaps))


def headings() -> list[str]:
    return ["Method", "Seeds", *(f"{title}, points" for title in MEASURES.values())]


def rows(groups: Sequence[Group]) -> list[list[str]]:
    """A row for every method but the first, which is the reference."""
    reference, *others = groups
    table = []
    for group in others:
        found = [difference(group, reference, measure) for measure in MEASURES]
        seeds = max((one.seeds for one in found if one), default=0)
        if seeds:
            table.append([group.label, str(seeds), *(one.text if one else MISSING for one in found)])
    return table


def note(groups: Sequence[Group]) -> str:
    return (
        f"Differences to {groups[0].label} over the same seeds; ± half of the {LEVEL:.0%} confidence interval "
        "(Student's t); * where it leaves out 0."
    )


def paired_table(groups: Sequence[Group]) -> Table | None:
    """For a terminal; None where nothing is paired over several seeds."""
    table = rows(groups) if len(groups) > 1 else []
    if not any("±" in cell for row in table for cell in row):
        return None
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, caption=note(groups), caption_justify="left")
    for place, heading in enumerate(headings()):
        shown.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for row in table:
        shown.add_row(*row)
    return shown
