"""What the commands do, from Python: the same experiments, run folders and pages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remanence import catalogue
from remanence.config import Tree, apply_settings, read
from remanence.doctor import findings
from remanence.errors import UserError
from remanence.runs.compare import Cell, comparison_path, plan_cells, play_cells, read_runs, reference_first
from remanence.runs.play import play

Source = str | Path | Mapping[str, Any]  # an experiment file, a recipe's name, or the tables themselves
Result = dict[str, Any]


def run(
    experiment: Source = "demo", settings: Sequence[str] = (), *, runs: str | Path = "runs", resume: bool = False
) -> Result:
    """Play an experiment into a run folder; the result is what `remanence run --json` prints."""
    cells = plan_cells([_tree(experiment, settings)], 1)
    place = _folder(runs, "runs")
    return play(cells[0].experiment, place, resume) if len(cells) == 1 else _compared(cells, place, resume)


def compare(
    *experiments: Source,
    methods: Sequence[str] = (),
    seeds: int = 1,
    reference: str | None = None,
    settings: Sequence[str] = (),
    runs: str | Path = "runs",
    resume: bool = False,
) -> Result:
    """Several methods and seeds, paired; the result holds one for each of the runs, and the comparison's folder."""
    if not experiments:
        raise UserError("compare: at least one experiment is needed")
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise UserError(f"seeds: {seeds!r} is not allowed: must be a whole number, 1 or more")
    trees = [_tree(experiment, settings) for experiment in experiments]
    if methods:
        trees = [{**tree, "method": [{"name": name} for name in _texts(methods, "methods")]} for tree in trees]
    cells = plan_cells(trees, seeds)
    return _compared(cells if reference is None else reference_first(cells, reference), _folder(runs, "runs"), resume)


def _compared(cells: Sequence[Cell], runs: Path, resume: bool) -> Result:
    path = comparison_path(cells, runs, resume)
    results = play_cells(cells, path, resume, lambda cell: lambda kind, facts: None)
    return {**results[0], "run": str(path), "runs": results}


def write_report(*paths: str | Path, out: str | Path | None = None) -> Path:
    """Write the page of a run, or of several together."""
    from remanence.report import page

    if not paths:
        raise UserError("write_report: at least one run folder is needed")
    records = [record for path in paths for record in read_runs(_folder(path, "write_report"))]
    if not records:
        raise UserError(f"{paths[0]}: no run has begun there")
    place = Path(out) if out is not None else Path(paths[0]) / "report.html"
    if place.is_dir():
        raise UserError(f"out: {place} is a folder")
    page.write_report(records, place)
    return place


def entries(kind: str = "methods") -> list[dict[str, Any]]:
    """Name and summary of all methods, parts, models, datasets, partitions, streams, recipes or tables."""
    return catalogue.entries(_texts([kind], "entries")[0])


def describe(name: str) -> dict[str, Any]:
    """What a name means, and its options with defaults and ranges."""
    return catalogue.describe(_texts([name], "describe")[0])


def examine_machine() -> list[str]:
    """What this machine has and what is missing, as `remanence doctor` says it."""
    return list(findings())


def _texts(values: Any, key: str) -> Sequence[str]:
    if isinstance(values, (list, tuple)) and all(isinstance(value, str) for value in values):
        return values
    raise UserError(f"{key}: {values!r} is not allowed: must be a list of texts")


def _folder(path: Any, key: str) -> Path:
    if not isinstance(path, (str, Path)):
        raise UserError(f"{key}: {path!r} is not allowed: must be a path")
    return Path(path)


def _tree(experiment: Source, settings: Sequence[str]) -> Tree:
    settings = _texts(settings, "settings")
    tree = dict(experiment) if isinstance(experiment, Mapping) else read(str(experiment))
    return apply_settings(tree, settings)
