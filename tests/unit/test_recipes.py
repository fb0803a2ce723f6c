"""Recipes, and experiments that list several tables of a section to be compared."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from remanence.api import compare
from remanence.config import Tree, apply_settings, read, recipes, variants
from remanence.errors import UserError
from remanence.experiment import prepare
from remanence.parts.select.best_swap import BestSwap
from remanence.parts.select.gbp_cs import GbpCs
from remanence.parts.select.uniform import Uniform
from remanence.runs.compare import plan_cells

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", recipes())
def test_every_recipe_can_be_planned(name: str) -> None:
    assert plan_cells([read(name)], 2)


def test_fedgs_is_the_published_setting() -> None:
    (cell,) = plan_cells([read("fedgs")], 1)
    experiment = cell.experiment
    devices, topology, train = experiment.devices, experiment.parts["topology"], experiment.train
    assert (devices.count, devices.sites, devices.per_round, devices.sites_by) == (350, 10, 10, "shuffled")
    assert (topology.iterations, topology.weights, experiment.general.rounds) == (50, "equal", 500)
    assert (experiment.stream.name, experiment.stream.size) == ("cycle", 32)
    assert (train.epochs, train.batch, train.lr, train.momentum, train.weight_decay) == (1, "full", 0.01, 0, 0)
    assert experiment.parts["select"] == GbpCs(random=2)
    assert (experiment.method.name, experiment.model.name) == ("fedavg", "femnist-cnn")


def test_fedgs_gives_every_device_a_writer() -> None:
    tree = apply_settings(read("fedgs"), ["data.size=0.02", "model=mlp"])
    plan = prepare(plan_cells([tree], 1)[0].experiment).plan
    assert [len(site) for site in plan.sites] == [35] * 10
    assert sorted(device for site in plan.sites for device in site) == list(range(350))
    assert plan.sites[0] != list(range(35))


def test_factories_compares_three_selectors(tmp_path: Path) -> None:
    cells = plan_cells([read("factories")], 1)
    assert [(cell.label, type(cell.experiment.parts["select"])) for cell in cells] == [
        ("at random", Uniform),
        ("gbp-cs", GbpCs),
        ("best swap", BestSwap),
    ]
    settings = ["rounds=2", "topology.iterations=2", "engine.workers=1"]
    results = compare("factories", settings=settings, runs=tmp_path)["runs"]
    assert len(results) == 3
    assert all(result["accuracy"] > 0.1 for result in results)


def test_a_package_brings_every_recipe() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["remanence"]
    package = ROOT / "src" / "remanence"
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    assert set(package.rglob("*.toml")) <= packed
    assert package / "recipes" / "papers" / "fedpsd.toml" in packed


# Lists of tables


def labels(tree: Tree) -> list[str]:
    return [one["label"] for one in variants(tree)]


def test_without_a_list_there_is_one_variant() -> None:
    tree = {"method": "fedprox", "select": {"name": "uniform"}}
    assert variants(tree) == [tree]


def test_a_list_in_any_section_gives_variants() -> None:
    tree = {"rounds": 3, "select": [{"name": "uniform"}, {"name": "gbp-cs", "random": 2, "label": "GBP"}, {}]}
    found = variants(tree | {"select": tree["select"][:2]})
    assert found == [
        {"rounds": 3, "select": {"name": "uniform"}, "label": "uniform"},
        {"rounds": 3, "select": {"name": "gbp-cs", "random": 2}, "label": "GBP"},
    ]
    assert labels({"stream": [{"kind": "cycle"}, {"kind": "one-shot"}, {}]}) == ["cycle", "one-shot", "static"]
    assert labels({"devices": [{"partition": "iid"}, {"alpha": 0.1}]}) == ["iid", "dirichlet"]
    assert labels({"model": ["mlp", "simple-cnn"]}) == ["mlp", "simple-cnn"]


def test_several_lists_are_combined() -> None:
    tree = {"method": ["fedavg", {"name": "fedprox", "mu": 0.1}], "select": ["uniform", "gbp-cs"]}
    assert labels(tree) == ["fedavg, uniform", "fedavg, gbp-cs", "fedprox, uniform", "fedprox, gbp-cs"]
    assert variants(tree)[3]["method"] == {"name": "fedprox", "mu": 0.1}
    assert tree["select"] == ["uniform", "gbp-cs"]


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"select": []}, r"^select: the list is empty"),
        ({"select": [3]}, r"^select: 3 is not allowed: must be a \[\[select\]\] table"),
        ({"select": [{}, {"name": "uniform"}]}, r"^select\.label: two of them are called 'uniform'"),
        ({"method": [{"mu": 1}, {"label": "fedavg"}]}, r"^method\.label: two of them are called 'fedavg'"),
        ({"data": [{"name": "digits"}]}, r"^data: .*must be a table"),
        ({"train": [{"lr": 0.1}]}, r"^train: .*must be a table"),
    ],
)
def test_wrong_lists(tree: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        plan_cells([tree], 1)


def test_one_of_a_list_is_chosen_by_name() -> None:
    (cell,) = plan_cells([apply_settings(read("factories"), ["select=best-swap"])], 1)
    assert type(cell.experiment.parts["select"]) is BestSwap
    with pytest.raises(UserError, match=r"compares 3 tables \[\[select\]\]; choose one with --set select=NAME"):
        apply_settings(read("factories"), ["select.random=2"])
