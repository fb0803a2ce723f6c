"""Experiment files and settings, random in parts or altogether."""

import json
import string
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fuzz.changes import well_said
from remanence.config import (
    FIXED,
    NAMED,
    VARIED,
    Experiment,
    General,
    Tree,
    apply_settings,
    parse,
    read,
    recipes,
    variants,
)
from remanence.errors import UserError
from remanence.registry import datasets, methods, models, option_fields, partitions, parts
from remanence.runs.compare import plan_cells

REGISTRIES = [methods, models, datasets, partitions, *parts.values()]
NAMES = sorted({name for registry in REGISTRIES for name in registry.names()})
OPTIONS = sorted(
    {
        option
        for registry in REGISTRIES
        for name in registry.names()
        if name not in registry.combinations
        for option in option_fields(registry.get(name))
    }
    | {option for cls in (*FIXED.values(), General) for option in option_fields(cls)}
    | {"name", "path", "count", "per_round", "partition", "sites", "skew", "label"}
)
SECTIONS = [*FIXED, *NAMED, *option_fields(General)]

numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([-1, 0, 1, 2, 10**12]),
    st.floats(),
    st.floats(0, 2),
    st.booleans(),
)
words = st.one_of(
    st.sampled_from(NAMES), st.sampled_from(["auto", "full", "on", "off", "sgd", "I", ""]), st.text(max_size=20)
)
plain = st.one_of(numbers, words, st.dates(), st.datetimes(), st.times())
values = st.recursive(
    plain,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
keys = st.one_of(st.sampled_from(OPTIONS), st.text(max_size=8))
tables = st.dictionaries(keys, values, max_size=4)
trees = st.dictionaries(
    st.one_of(st.sampled_from(SECTIONS), st.text(max_size=8)),
    st.one_of(tables, values, st.lists(tables, max_size=3)),
    max_size=5,
)


def understood(tree: Tree) -> Experiment | None:
    """The experiment, or nothing after an error in one or two lines."""
    try:
        return parse(tree)
    except UserError as error:
        well_said(error, most_lines=2, longest=2000)
        return None


def check(experiment: Experiment) -> None:
    """What was understood is written down, and read from there as the same."""
    resolved = experiment.resolved()
    again = parse(tomllib.loads(tomli_w.dumps(resolved)))
    assert again.resolved() == resolved
    assert again.digest() == experiment.digest()


@settings(max_examples=300)
@given(trees)
@example({"train": {"batch": 2**62}})
@example({"method": []})
@example({"method": [{"name": ["a"]}]})
@example({"seeds": 5})
def test_random_trees(tree: Tree) -> None:
    experiment = understood(tree)
    if experiment is not None:
        check(experiment)


@settings(max_examples=300)
@given(st.data())
def test_good_experiments_with_one_wrong_value(data: st.DataObject) -> None:
    tree = parse({}).resolved()
    section = data.draw(st.sampled_from(sorted(tree)))
    if isinstance(tree[section], dict) and tree[section] and data.draw(st.booleans()):
        tree[section][data.draw(st.sampled_from(sorted(tree[section])))] = data.draw(values)
    else:
        tree[section] = data.draw(values)
    experiment = understood(tree)
    if experiment is not None:
        check(experiment)


@settings(max_examples=200)
@given(trees, st.integers(1, 3))
def test_comparisons(tree: Tree, seeds: int) -> None:
    try:
        cells = plan_cells([tree], seeds)
    except UserError:
        return
    assert len({cell.folder for cell in cells}) == len(cells)
    for cell in cells:
        assert "/" not in cell.folder
        assert "\0" not in cell.folder
        assert cell.folder not in (".", "..")


@settings(max_examples=200)
@given(trees)
@example({"select": [{"name": ["a"]}, {"label": 5}], "method": ["fedavg", "fedprox"]})
def test_variants(tree: Tree) -> None:
    try:
        found = variants(tree)
    except UserError as error:
        well_said(error, most_lines=2, longest=2000)
        return
    assert not any(isinstance(one.get(section), list) for one in found for section in VARIED)


fragments = st.one_of(
    st.sampled_from(
        [
            "[",
            "]",
            "[[",
            "]]",
            "{",
            "}",
            "=",
            ".",
            ",",
            "\n",
            '"',
            "'",
            '"""',
            "#",
            "\\u0000",
            "nan",
            "inf",
            "-",
            "+",
            "_",
            "1e999",
            "0x",
            "true",
            "1979-05-27T07:32:00Z",
            "rounds = 3\n",
            "[method]\n",
            "\ufeff",
            "\x00",
            "\r",
        ]
    ),
    st.sampled_from(SECTIONS),
    st.sampled_from(OPTIONS),
    st.sampled_from(NAMES),
    st.text(max_size=5),
    st.integers().map(str),
    st.floats().map(str),
)


@pytest.fixture(scope="module")
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "experiment.toml"


def read_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        tree = read(str(path))
    except UserError:
        return
    experiment = understood(apply_settings(tree, []))
    if experiment is not None:
        check(experiment)


@settings(max_examples=300)
@given(st.lists(fragments, max_size=30).map("".join))
@example("a" * 1000 + "=" + "[" * 100_000)
@example(".".join("a" * 50_000) + "=1")
@example("rounds=" + "1" * 100_000)
@example("x=0x" + "f" * 100_000)
@example("[a]\n" * 2)
@example("a={" * 20_000)
@example("".join(f"[{'.'.join('abcdefgh'[: i % 8 + 1])}.x{i}]\n" for i in range(2000)))
def test_random_text(path: Path, text: str) -> None:
    read_bytes(path, text.encode("utf-8", "surrogatepass"))


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_random_bytes(path: Path, content: bytes) -> None:
    read_bytes(path, content)


@settings(max_examples=200)
@given(st.data())
def test_recipes_with_a_few_letters_changed(path: Path, data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from([p.read_bytes() for p in recipes().values()])))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.sampled_from(string.printable.encode()))
    read_bytes(path, bytes(content))


setting = st.one_of(
    st.text(max_size=30),
    st.tuples(
        st.sampled_from(SECTIONS), st.sampled_from(OPTIONS), values.map(lambda v: json.dumps(v, default=str))
    ).map(lambda t: f"{t[0]}.{t[1]}={t[2]}"),
    st.tuples(st.sampled_from(SECTIONS), st.lists(fragments, max_size=4).map("".join)).map("=".join),
)


@settings(max_examples=300)
@given(st.lists(setting, max_size=4), st.sampled_from(["demo", ""]))
@example(["rounds=0x" + "f" * 10_000], "")
@example(["rounds=" + "9" * 10_000], "")
@example(["x=" + "[" * 100_000], "")
@example(["x=" + "{a=" * 50_000], "")
@example(["rounds=3\nseed=4"], "")
def test_settings(lines: list[str], recipe: str) -> None:
    tree: Any = read(recipe) if recipe else {}
    try:
        tree = apply_settings(tree, lines)
        cells = plan_cells([tree], 1)
    except UserError as error:
        well_said(error, most_lines=4, longest=200_000)
        return
    for cell in cells:
        check(cell.experiment)
