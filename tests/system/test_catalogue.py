"""`list`, `show`, `doctor`, the version and the help."""

import json
from pathlib import Path

import pytest

import remanence
from remanence.catalogue import describe, entries
from remanence.config import recipes
from remanence.registry import datasets, methods, models, partitions, parts
from system.running import good, run_fork, run_program

KINDS = {
    "methods": methods.names(),
    "models": models.names(),
    "datasets": datasets.names(),
    "partitions": partitions.names(),
    "parts": [name for kind in parts.values() for name in kind.names()],
    "recipes": list(recipes()),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("catalogue")


@pytest.mark.parametrize("kind", KINDS)
def test_list_names_everything(kind: str, folder: Path) -> None:
    listed = good(run_fork(folder, "list", kind, "--json")).json
    assert isinstance(listed, list)
    assert [entry["name"] for entry in listed] == KINDS[kind]
    assert all(entry["summary"] for entry in listed)
    table = good(run_fork(folder, "list", kind)).out
    assert all(name in table for name in KINDS[kind])


def test_every_listed_name_can_be_shown() -> None:
    for kind, names in KINDS.items():
        for name in names:
            entry = describe(name)
            assert entry["name"] == name
            assert entry["summary"], f"{kind}: {name} has no summary"
            assert all(option["allowed"] for option in entry["options"]), f"{name}: an option without a range"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fedprox", ["strength of the proximal term", "0.01", "number >= 0"]),
        ("fedadam", ["optimise = fedadam", "server learning rate"]),
        ("scaffold", ["Karimireddy", "'effective' or 'steps'"]),
        ("mlp", ["hidden"]),
        ("dirichlet", ["alpha", "smallest"]),
        ("npz", ["must be given", "layout"]),
        ("demo", ["[[method]]"]),
    ],
)
def test_show_explains_a_name(name: str, words: list[str], folder: Path) -> None:
    shown = good(run_fork(folder, "show", name)).out
    for word in words:
        assert word in " ".join(shown.split()), f"{word!r} is missing in {shown}"
    assert good(run_fork(folder, "show", name, "--json")).json["name"] == name


def test_names_of_different_kinds_can_all_be_shown() -> None:
    """`uniform` is a selection and a merge, `fedadam` a method and an optimiser: nothing may hide behind a name."""
    shadowed = []
    for kind in ("methods", "parts", "models", "datasets", "partitions"):
        for entry in entries(kind):
            if entry["kind"] not in json.dumps(describe(entry["name"])):
                shadowed.append(f"{entry['kind']} {entry['name']}")
    assert shadowed == []


def test_doctor_looks_at_the_machine(folder: Path) -> None:
    ended = good(run_fork(folder, "doctor"))
    assert all(line.startswith(("ok ", "note ", "missing ")) for line in ended.out.splitlines())
    for word in ("Python", "torch", "cores", "memory", "free", "extra 'report'"):
        assert word in ended.out


def test_version(folder: Path) -> None:
    ended = good(run_program("--version", folder=folder))
    assert ended.out == f"remanence {remanence.__version__}\n"


def test_the_installed_command_is_the_same(folder: Path) -> None:
    from importlib.metadata import entry_points

    command = next(iter(entry_points(group="console_scripts", name="remanence")))
    assert command.value == "remanence.cli:main"


def test_no_arguments_show_the_help(folder: Path) -> None:
    ended = good(run_fork(folder))
    for command in ("run", "compare", "report", "plan", "list", "show", "doctor"):
        assert command in ended.out
    for command in ("run", "compare", "report", "plan", "list", "show", "doctor"):
        assert "--debug" in good(run_fork(folder, command, "--help")).out
