"""What the commands do, from Python: the same experiments, run folders and pages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remanence.catalogue import describe, entries
from remanence.config import Tree, apply_settings, parse, read
from remanence.doctor import findings
from remanence.runs.compare import comparison_path, plan_cells, play_cells, read_runs, reference_first
from remanence.runs.play import play

Source = str | Path | Mapping[str, Any]  # an experiment file, a recipe's name, or the tables themselves


def run(
    experiment: Source = "demo", settings: Sequence[str] = (), *, runs: str | Path = "runs", resume: bool = False
) -> dict[str, Any]:
    """Play one experiment into a run folder; the result is what `remanence run --json` prints."""
    return play(parse(_tree(experiment, settings)), Path(runs), resume)


def compare(
    *experiments: Source,
    methods: Sequence[str] = (),
    seeds: int = 1,
    reference: str | None = None,
    settings: Sequence[str] = (),
    runs: str | Path = "runs",
    resume: bool = False,
) -> tuple[Path, list[dict[str, Any]]]:
    """Several methods and seeds, paired: the folder of the comparison, and a result for each of its runs."""
    trees = [_tree(experiment, settings) for experiment in experiments]
    if methods:
        trees = [{**tree, "method": [{"name": name} for name in methods]} for tree in trees]
    cells = plan_cells(trees, seeds)
    if reference is not None:
        cells = reference_first(cells, reference)
    path = comparison_path(cells, Path(runs), resume)
    return path, play_cells(cells, path, resume, lambda cell: lambda kind, facts: None)


def report(*paths: str | Path, out: str | Path | None = None) -> Path:
    """Write the page of a run, or of several together."""
    from remanence.report.page import write_report

    page = Path(out) if out is not None else Path(paths[0]) / "report.html"
    write_report([record for path in paths for record in read_runs(Path(path))], page)
    return page


def catalogue(kind: str = "methods") -> list[dict[str, Any]]:
    """Name and summary of all methods, parts, models, datasets, partitions, streams, recipes or tables."""
    return entries(kind)


def show(name: str) -> dict[str, Any]:
    """What a name means, and its options with defaults and ranges."""
    return describe(name)


def doctor() -> list[str]:
    """What this machine has and what is missing."""
    return list(findings())


def _tree(experiment: Source, settings: Sequence[str]) -> Tree:
    tree = dict(experiment) if isinstance(experiment, Mapping) else read(str(experiment))
    return apply_settings(tree, settings)
