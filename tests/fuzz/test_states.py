"""State trees and their files; checkpoints of a run."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fuzz.changes import Change, changed, changes, well_said
from remanence.config import Experiment, parse
from remanence.core.state import clone, equal, flatten, load, save, size, unflatten
from remanence.errors import UserError
from remanence.runs import folder as folder_module
from remanence.runs.play import play

KINDS = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int16, torch.uint8, torch.bool]


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    kind = draw(st.sampled_from(KINDS))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    whole = torch.arange(draw(st.integers(0, 200)), 300).remainder(256)[:64]
    tensor = whole[: torch.Size(shape).numel()].to(kind).view(shape)
    return tensor.t() if tensor.dim() == 2 and draw(st.booleans()) else tensor


leaves = st.one_of(tensors(), st.integers(), st.floats(), st.booleans(), st.none(), st.text(max_size=6))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.dictionaries(st.one_of(st.text(max_size=4), st.integers()), inner, max_size=3),
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "state.safetensors"


@settings(max_examples=200)
@given(trees)
def test_what_is_saved_is_loaded(path: Path, tree: Any) -> None:
    save(path, tree, flush=False)
    again = load(path)
    assert equal(again, tree)
    assert equal(clone(tree), tree)
    assert equal(unflatten(*flatten(tree)), tree)
    assert size(again) <= size(tree) + 8 * 64 * 8


@settings(max_examples=30)
@given(tensors())
def test_a_tensor_met_twice_is_one(path: Path, tensor: torch.Tensor) -> None:
    save(path, {"a": tensor, "b": [tensor]}, flush=False)
    again = load(path)
    assert again["a"] is again["b"][0]
    assert size(again) == size({"a": tensor})


@pytest.mark.parametrize("tree", [{"a": object()}, {"a": {1, 2}}, {1.5: 1}, {True: 1}, [lambda: 0], {"a": b"bytes"}])
def test_nothing_else_is_a_state(path: Path, tree: Any) -> None:
    with pytest.raises(TypeError, match="state"):
        save(path, tree)


TREE = {
    "round": 12,
    "w": torch.arange(40.0),
    "srv": {"c": torch.ones(3, dtype=torch.float64)},
    "devices": {3: {"c": torch.zeros(2)}, 10: {}},
    "list": [1, "text", None, (2.5, True)],
}


def loads_well_or_not_at_all(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        tree = load(path)
    except UserError as error:
        well_said(error, str(path))
        return
    assert equal(tree, TREE), "a file that was changed was read as something else"


@settings(max_examples=500)
@given(st.lists(changes, min_size=1, max_size=3))
def test_changed_files(path: Path, harm: list[Change]) -> None:
    save(path, TREE, flush=False)
    content = path.read_bytes()
    for change in harm:
        content = changed(content, change) if content else content
    loads_well_or_not_at_all(path, content)


def test_every_bit_of_the_header(path: Path) -> None:
    """Where a single letter may turn one number, key or kind into another."""
    save(path, TREE, flush=False)
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    for place in range(header):
        for bit in (1, 2, 4, 16):
            loads_well_or_not_at_all(path, content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])


@settings(max_examples=200)
@given(st.binary(max_size=200))
@example(b"")
def test_random_files(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(UserError):
        load(path)


def test_files_that_are_none(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        load(tmp_path / "nothing")
    with pytest.raises(UserError):
        load(tmp_path)
    with pytest.raises(UserError):
        load(Path("/dev/null"))


# Checkpoints

EXPERIMENT = {
    "rounds": 3,
    "devices": {"count": 4, "per_round": 2, "alpha": 5.0},
    "model": {"hidden": [3]},
    "train": {"epochs": 1, "batch": 100},
    "method": "scaffold",
    "engine": {"cohort": "on"},
    "measure": {"every": 3},
    "checkpoint": {"every": 1, "seconds": 0},
}


class Stopped(Exception):
    pass


@pytest.fixture(scope="module")
def stopped() -> Iterator[tuple[Experiment, Path, str]]:
    """A run stopped behind its second round, and the weights it should end with."""
    experiment = parse(EXPERIMENT)

    def stop(kind: str, facts: dict[str, Any]) -> None:
        if kind == "round" and facts["round"] == 3:
            raise Stopped

    with tempfile.TemporaryDirectory() as place:
        expected = play(experiment, Path(place) / "unbroken")["weights_sha256"]
        with pytest.raises(Stopped):
            play(experiment, Path(place) / "runs", tell=stop)
        yield experiment, Path(place), expected


@settings(max_examples=60)
@given(
    st.sampled_from(["events.jsonl", "timing.jsonl", "experiment.toml", "checkpoint"]),
    st.lists(changes, min_size=1, max_size=2),
)
def test_changed_run_folders(stopped: tuple[Experiment, Path, str], file: str, harm: list[Change]) -> None:
    """Resume ends as it should, or says what is wrong: nothing in between."""
    experiment, place, expected = stopped
    shutil.rmtree(place / "copy", ignore_errors=True)
    shutil.copytree(place / "runs", place / "copy")
    run = next((place / "copy").iterdir())
    path = sorted((run / "checkpoints").iterdir())[-1] if file == "checkpoint" else run / file
    content = path.read_bytes()
    for change in harm:
        content = changed(content, change) if content else content
    path.write_bytes(content)
    try:
        result = play(experiment, place / "copy", resume=True)
    except UserError as error:
        well_said(error, most_lines=2, longest=600)
        return
    assert result["weights_sha256"] == expected
    assert folder_module.RunFolder(Path(result["run"])).finished
