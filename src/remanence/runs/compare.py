"""Several methods, several seeds, paired: the same partition, sampling and start for every method of a seed."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remanence.config import Experiment, Tree, parse, variants
from remanence.errors import UserError, suggestion
from remanence.runs.folder import RunFolder
from remanence.runs.play import Listener, play
from remanence.runs.record import RunRecord, read_run


@dataclass(frozen=True)
class Cell:
    """One run of a comparison."""

    label: str
    seed: int
    experiment: Experiment

    @property
    def folder(self) -> str:
        return f"{self.label}-seed{self.seed}".replace("/", "-").replace(" ", "-")


def plan_cells(trees: Sequence[Tree], seeds: int) -> list[Cell]:
    """Every variant of every tree, with `seeds` seeds each; all are checked before the first one runs."""
    cells = []
    for tree in trees:
        for variant in variants(tree):
            for number in range(seeds):
                seeded = with_seed(variant, number)
                experiment = parse(seeded)
                label = experiment.general.label or str(experiment.method.name)
                cells.append(Cell(label, experiment.general.seed, experiment))
    names = [cell.folder for cell in cells]
    twice = next((cell for cell in cells if names.count(cell.folder) > 1), None)
    if twice is not None:
        raise UserError(
            f"label: two experiments are called '{twice.label}' with seed {twice.seed}; set label in their files"
        )
    return cells


def reference_first(cells: Sequence[Cell], reference: str) -> list[Cell]:
    """Differences are taken to the first method."""
    labels = [cell.label for cell in cells]
    if reference not in labels:
        raise UserError(f"--reference: '{reference}' is not compared; {suggestion(reference, labels)}")
    return sorted(cells, key=lambda cell: cell.label != reference)


def with_seed(tree: Tree, number: int) -> Tree:
    """The `number`-th seed after the file's own, for every kind of chance."""
    seeds = tree.get("seeds", {})
    if not number or not isinstance(seeds, dict):
        return tree
    moved = {name: value + number if isinstance(value, int) else value for name, value in seeds.items()}
    seed = tree.get("seed", 1)
    return {**tree, "seed": seed + number if isinstance(seed, int) else seed, "seeds": moved}


def play_cells(
    cells: Sequence[Cell], path: Path, resume: bool, tell: Callable[[Cell], Listener]
) -> list[dict[str, Any]]:
    """Run what is not finished yet; the results in the order of the cells."""
    listing = [{"label": cell.label, "seed": cell.seed, "folder": cell.folder} for cell in cells]
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / "comparison.json").write_text(json.dumps(listing, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"--runs: {path} cannot be made ({error.strerror})") from None
    return [play(cell.experiment, path, resume, tell(cell), path / cell.folder) for cell in cells]


def comparison_path(cells: Sequence[Cell], parent: Path, resume: bool) -> Path:
    """A new folder for this very comparison, or its newest one to be resumed."""
    name = cells[0].experiment.general.name
    code = _digest("".join(cell.folder + cell.experiment.digest() for cell in cells))
    return numbered_path(parent, f"{name}-{code}", resume)


def numbered_path(parent: Path, name: str, resume: bool) -> Path:
    """`name`, `name-2`, ...: the first that is not there yet, or to resume the last that is."""
    paths = [parent / name]
    while paths[-1].exists():
        paths.append(parent / f"{name}-{len(paths) + 1}")
    return paths[-2] if resume and len(paths) > 1 else paths[-1]


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:8]


def read_runs(path: Path) -> list[RunRecord]:
    """The runs in a folder: itself, or those of a comparison that have begun."""
    if not (path / "comparison.json").exists():
        return [read_run(path)]
    try:
        listing = json.loads((path / "comparison.json").read_text())
        folders = [path / entry["folder"] for entry in listing]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path / 'comparison.json'}: damaged") from None
    return [read_run(folder) for folder in folders if RunFolder(folder).events.exists()]
