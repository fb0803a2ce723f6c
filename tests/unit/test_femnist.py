"""FEMNIST from LEAF's JSON files, from Parquet and from the hub; and the rules by which its writers are drawn."""

import io
import json
import string
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_files import fails, loaded, pictures
from hypothesis import given
from hypothesis import strategies as st

from remanence.config import parse
from remanence.core.rng import numpy_generator
from remanence.data import json_text
from remanence.data.datasets import load_dataset
from remanence.data.named import cache_folder
from remanence.data.samples import Dataset
from remanence.data.writers import WHOLE, Rule, divided_by_sample, in_blocks, taken
from remanence.errors import UserError
from remanence.experiment import prepare

ALL = {"fraction": 1.0, "least": 2}


@pytest.fixture(autouse=True)
def no_data_of_this_machine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMANENCE_DATA", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setitem(sys.modules, "datasets", None)


def images(user: str, count: int) -> np.ndarray:
    return pictures(count, 784, seed=sum(map(ord, user)))


def labels(user: str, count: int) -> np.ndarray:
    return (np.arange(count) * 7 + sum(map(ord, user))) % 62


def content(sizes: dict[str, int]) -> dict[str, Any]:
    data = {
        user: {"x": (images(user, count) / 255).tolist(), "y": labels(user, count).tolist()}
        for user, count in sizes.items()
    }
    return {"users": list(sizes), "num_samples": list(sizes.values()), "user_data": data}


def write_json(path: Path, tree: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(tree))
    return path


FILES = {"all_data_0": {"f0002_11": 7, "f0000_14": 10}, "all_data_1": {"f0104_02": 20, "f0101_00": 2}}
SIZES = {user: size for part in FILES.values() for user, size in part.items()}


def leaf_folder(folder: Path) -> Path:
    for name, sizes in FILES.items():
        write_json(folder / f"{name}.json", content(sizes))
    return folder


def rows(data: Dataset) -> list[tuple[str, int, bytes]]:
    """Writer, label and pixels of all samples, in an order of their own."""
    return sorted(
        (str(writer), int(label), image.numpy().tobytes())
        for split in (data.train, data.test)
        for writer, label, image in zip(split.group, split.y, split.x, strict=True)
    )


def expected(users: dict[str, int]) -> list[tuple[str, int, bytes]]:
    return sorted(
        (user, int(label), image.tobytes())
        for user, count in users.items()
        for label, image in zip(labels(user, count), images(user, count), strict=True)
    )


# LEAF's files


def test_every_sample_comes_back_with_its_writer_and_class(tmp_path: Path) -> None:
    data = loaded("femnist", leaf_folder(tmp_path), **ALL)
    assert (data.shape, data.train.x.dtype, data.classes) == ((1, 28, 28), torch.uint8, 62)
    assert rows(data) == expected(SIZES)
    assert (len(data.train), len(data.test)) == (6 + 9 + 18 + 1, 1 + 1 + 2 + 1)
    assert data.labels == tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
    assert (data.labels[9], data.labels[10], data.labels[36], data.labels[61]) == ("9", "A", "a", "z")
    assert str(tmp_path) in data.origin
    assert "4 writers" in data.origin


def test_values_are_those_of_the_file(tmp_path: Path) -> None:
    """No inversion, no standardisation: the white of the paper stays 1."""
    tree = content({"a": 4})
    tree["user_data"]["a"]["x"] = [[1.0] * 783 + [k / 255] for k in (0, 1, 77, 254)]
    data = loaded("femnist", write_json(tmp_path / "a.json", tree), **ALL)
    ready = torch.cat([data.prepare(part).x for part in (data.train, data.test)])
    assert (data.mean, data.std) == ((), ())
    assert torch.equal(ready[:, 0, :27], torch.ones(4, 27, 28))
    assert sorted(ready[:, 0, 27, 27].tolist()) == torch.tensor([0, 1, 77, 254]).div(255).tolist()


@pytest.mark.parametrize("where", [".", "all_data", "data/all_data"])
def test_folders_that_may_be_named(tmp_path: Path, where: str) -> None:
    leaf_folder(tmp_path / where)
    assert rows(loaded("femnist", tmp_path, **ALL)) == expected(SIZES)


def test_files_are_gone_through_in_the_order_of_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, usual = leaf_folder(tmp_path), Path.glob
    one = loaded("femnist", folder, fraction=0.6, least=2)
    monkeypatch.setattr(Path, "glob", lambda path, pattern: sorted(usual(path, pattern), reverse=True))
    other = loaded("femnist", folder, fraction=0.6, least=2)
    assert torch.equal(one.train.x, other.train.x)
    assert torch.equal(one.test.y, other.test.y)


@pytest.mark.parametrize("chunk", [1, 7, 1 << 22])
def test_files_are_read_in_pieces_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(json_text, "_CHUNK", chunk)
    tree = content({"a{}": 2, 'b"\\': 3})
    others = {"more": [1.5, {"a": "}"}], "version": -1.5e-2}
    path = write_json(tmp_path / "a.json", others | {key: tree[key] for key in ("user_data", "num_samples", "users")})
    path.write_text(path.read_text().replace(", ", " ,\n\t").replace(": ", " : "))
    assert rows(loaded("femnist", path, **ALL)) == expected({"a{}": 2, 'b"\\': 3})


def test_the_division_that_leaf_made_is_kept(tmp_path: Path) -> None:
    write_json(tmp_path / "train" / "a_train_9.json", content({"a": 5, "b": 6}))
    write_json(tmp_path / "test" / "a_test_9.json", content({"a": 1, "b": 2}))
    leaf_folder(tmp_path / "all_data")
    data = loaded("femnist", tmp_path)
    assert (len(data.train), len(data.test)) == (11, 3)
    assert data.train.group is not None
    assert data.train.group.tolist() == ["a"] * 5 + ["b"] * 6
    assert data.test.y.tolist() == [*labels("a", 1), *labels("b", 2)]
    assert "as LEAF divided it" in data.origin
    one = loaded("femnist", tmp_path, writers=1)
    assert set(one.train.group) == set(one.test.group)
    assert len(set(one.train.group)) == 1


def test_a_copy_in_the_cache_is_found() -> None:
    leaf_folder(cache_folder() / "femnist" / "all_data")
    assert len(load_dataset("femnist", None, ALL).train) == 34


def test_natural_devices_are_writers(tmp_path: Path) -> None:
    path = leaf_folder(tmp_path)
    tree = {
        "data": {"name": "femnist", "path": str(path), **ALL},
        "devices": {"count": 4, "per_round": 2, "partition": "natural"},
        "model": {"name": "mlp"},
    }
    fleet = prepare(parse(tree)).plan.task.fleet
    assert list(fleet.sizes) == [9, 6, 1, 18]  # f0000_14, f0002_11, f0101_00, f0104_02


def test_defaults_are_the_published_command(tmp_path: Path) -> None:
    fails(r"^data\.least: 100 is not allowed: none of the 4 writers", "femnist", leaf_folder(tmp_path))
    data = loaded("femnist", write_json(tmp_path / "b" / "a.json", content({"a": 1010})), least=100)
    assert (len(data.train), len(data.test)) == (90, 11)


# Broken files


def spoiled(change: Callable[[dict[str, Any]], Any]) -> str:
    tree = content({"a": 3, "b": 2})
    made = change(tree)
    return made if isinstance(made, str) else json.dumps(tree)


BROKEN: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda t: "", r"broken or not a JSON file \(expected '\{', it ends too early\)"),
    (lambda t: "PK\x03\x04", r"broken or not a JSON file"),
    (lambda t: "[1, 2]", r"expected '\{', found '\['"),
    (lambda t: json.dumps(t)[:-2], r"it ends too early"),
    (lambda t: json.dumps(t)[:-300], r"it ends too early"),
    (lambda t: json.dumps(t)[:40], r"broken or not a JSON file"),
    (lambda t: json.dumps(t).replace("0.", "0,", 1), r"user 'a': image 1 has 785 values, expected 784"),
    (lambda t: json.dumps(t).replace("[[", "[[x", 1), r"broken or not a JSON file"),
    (lambda t: json.dumps(t).replace('"users"', "users"), r"broken or not a JSON file"),
    (lambda t: t.pop("users"), r"has no 'users'"),
    (lambda t: t.pop("num_samples"), r"has no 'num_samples'"),
    (lambda t: t.pop("user_data"), r"2 of 2 users have no samples, the first is 'a'"),
    (lambda t: t["user_data"].pop("b"), r"1 of 2 users have no samples, the first is 'b'"),
    (lambda t: t.update(users="ab"), r"'users' must be a list"),
    (lambda t: t.update(user_data=[1]), r"expected '\{', found '\['"),
    (lambda t: t["user_data"].update(a=5), r"an object in braces was expected"),
    (lambda t: t["users"].append("c"), r"3 users but 2 entries in num_samples"),
    (lambda t: t.update(users=["a", "a"]), r"a user is listed twice"),
    (lambda t: t.update(num_samples=[3, 2.5]), r"num_samples of user 'b' is 2\.5"),
    (lambda t: t.update(num_samples=[-3, 2]), r"num_samples of user 'a' is -3"),
    (lambda t: t.update(num_samples=[4, 2]), r"user 'a': 3 entries in 'x', but its num_samples is 4"),
    (lambda t: t["user_data"]["b"].pop("y"), r"user 'b': has no list 'y'"),
    (lambda t: t["user_data"]["b"].update(x="no"), r"user 'b': has no list 'x'"),
    (lambda t: t["user_data"]["b"]["y"].append(1), r"user 'b': 3 entries in 'y', but its num_samples is 2"),
    (lambda t: t["user_data"]["b"]["x"][1].pop(), r"user 'b': image 2 has 783 values, expected 784"),
    (lambda t: t["user_data"]["b"]["x"].__setitem__(0, 1), r"user 'b': image 1 has no list of values"),
    (lambda t: t["user_data"]["b"]["x"][1].__setitem__(0, "1"), r"user 'b': not all of its values are numbers"),
    (lambda t: t["user_data"]["b"]["x"][1].__setitem__(0, [1]), r"user 'b': not all of its values are numbers"),
    (lambda t: t["user_data"]["b"]["x"][1].__setitem__(0, None), r"user 'b': not all of its values are numbers"),
    (lambda t: t["user_data"]["b"]["x"][1].__setitem__(0, 1.5), r"image 2 has values that are no grey levels"),
    (lambda t: t["user_data"]["b"]["x"][1].__setitem__(0, 0.5), r"image 2 has values that are no grey levels"),
    (lambda t: t["user_data"]["b"]["x"][1].__setitem__(0, float("nan")), r"image 2 has values that are no grey"),
    (lambda t: t["user_data"]["b"]["x"][1].__setitem__(0, 10**400), r"not all of its values are numbers"),
    (lambda t: t["user_data"]["b"]["y"].__setitem__(1, 62), r"'b': label 62 of image 2 is not allowed: 0 to 61"),
    (lambda t: t["user_data"]["a"]["y"].__setitem__(0, -1), r"'a': label -1 of image 1 is not allowed: 0 to 61"),
    (lambda t: t["user_data"]["a"]["y"].__setitem__(2, 1.5), r"'a': label 1\.5 of image 3 is not allowed"),
    (lambda t: t["user_data"]["a"]["y"].__setitem__(2, "A"), r"'a': not all of its values are numbers"),
]


@pytest.mark.parametrize(("change", "words"), BROKEN, ids=range(len(BROKEN)))
def test_broken_files(tmp_path: Path, change: Callable[[dict[str, Any]], Any], words: str) -> None:
    path = tmp_path / "all_data_0.json"
    path.write_text(spoiled(change))
    fails(rf"^{path}.*{words}", "femnist", path, **ALL)


def test_a_user_must_not_come_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_json(tmp_path / f"{name}.json", content({"u": 3}))
    fails("user 'u' is in 2 files", "femnist", tmp_path, **ALL)
    text = json.dumps(content({"u": 3})).replace('"user_data": {', '"user_data": {"u": {"x": [], "y": []}, ')
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.json").write_text(text)
    fails("user 'u'", "femnist", tmp_path / "c", **ALL)


def test_binary_and_absent_files(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(bytes(range(256)))
    fails("a.json: broken or not a JSON file", "femnist", tmp_path / "a.json")
    (tmp_path / "empty").mkdir()
    fails(r"^data\.path: .*no JSON and no Parquet files there; give LEAF's folder", "femnist", tmp_path / "empty")
    fails(r"^data\.name: 'femnist' not found\. Looked for .*femnist\.parquet.*remanence\[hub\].*\nGive", "femnist")
    fails(r"^data\.least: 1 is not allowed", "femnist", tmp_path, least=1)
    fails(r"^data\.fraction: 0\.0 is not allowed", "femnist", tmp_path, fraction=0.0)


# The rules


def sizes_of(generator: np.random.Generator, count: int) -> np.ndarray:
    return np.maximum(generator.normal(226.8, 88.9, count), 10).astype(np.int64)


def test_a_tenth_by_writer_has_the_published_number_of_them() -> None:
    blocks = [sizes_of(numpy_generator(1, "sizes", number), 100) for number in range(36)]
    kept = taken(blocks, Rule(0.1, 100, 0, 0))
    for sizes, counts in zip(blocks, kept, strict=True):
        target = int(0.1 * sizes.sum())
        assert counts.sum() <= target
        cut = (counts != sizes) & (counts > 0)
        assert cut.sum() <= 1
        assert (counts[counts > 0] >= 100).all()
        assert target - counts.sum() < 100 + sizes[sizes < 100].sum()
    assert 300 <= sum((counts > 0).sum() for counts in kept) <= 400
    assert 70_000 <= sum(counts.sum() for counts in kept) <= 82_000


def test_a_small_draw_by_hand() -> None:
    """Whole writers in the drawn order until 30 of 60 samples; the one that does not fit is cut."""
    sizes = np.array([20, 14, 16, 10])
    order = numpy_generator(3, "fraction", 0).permutation(4)
    left, wanted = 30, np.zeros(4, int)
    for writer in order:
        wanted[writer] = min(left, sizes[writer])
        left -= wanted[writer]
    assert taken([sizes], Rule(0.5, 1, 0, 3))[0].tolist() == wanted.tolist()
    at_least = taken([sizes], Rule(0.5, 11, 0, 3))[0]
    assert at_least.tolist() == np.where(wanted >= 11, wanted, 0).tolist()


@given(
    st.lists(st.lists(st.integers(0, 400), max_size=8), min_size=1, max_size=4),
    st.floats(0.01, 1),
    st.integers(1, 150),
    st.integers(0, 5),
    st.integers(0, 9),
)
def test_what_is_taken(blocks: list[list[int]], fraction: float, least: int, most: int, seed: int) -> None:
    sizes = [np.array(block, dtype=np.int64) for block in blocks]
    try:
        kept = taken(sizes, Rule(fraction, least, most, seed))
    except UserError:
        # The first writer of a block is whole or cut to the block's share: one of the two must be too small.
        assert not any(len(block) and min(block.min(), int(fraction * block.sum())) >= least for block in sizes)
        return
    assert [len(counts) for counts in kept] == [len(block) for block in blocks]
    for counts, block in zip(kept, sizes, strict=True):
        assert (counts <= block).all()
        assert counts.sum() <= fraction * block.sum()
    chosen = np.concatenate(kept)
    assert (chosen[chosen > 0] >= least).all()
    assert not most or (chosen > 0).sum() <= most


def test_most_takes_some_of_those_that_all_would_take() -> None:
    sizes = [np.full(10, 150), np.full(10, 150)]
    every, some = (np.concatenate(taken(sizes, Rule(0.5, 100, most, 0))) for most in (0, 4))
    assert ((every > 0).sum(), (some > 0).sum()) == (10, 4)
    assert (some[some > 0] == every[some > 0]).all()
    other = np.concatenate(taken(sizes, Rule(0.5, 100, 4, 1)))
    assert not np.array_equal(some, other)
    assert np.concatenate(taken(sizes, WHOLE)).tolist() == [150] * 20


def test_a_table_is_drawn_like_files_of_a_hundred_writers() -> None:
    sizes = sizes_of(numpy_generator(2, "sizes"), 150)
    owner = numpy_generator(2, "owners").permutation(np.repeat(np.arange(150), sizes))
    rule = Rule(0.1, 100, 0, 5)
    chosen = in_blocks(owner, 150, rule)
    kept = np.concatenate(taken([sizes[:100], sizes[100:]], rule))
    assert np.bincount(owner[chosen], minlength=150).tolist() == kept.tolist()
    for writer in np.flatnonzero(kept):
        assert chosen[owner[chosen] == writer].tolist() == np.flatnonzero(owner == writer)[: kept[writer]].tolist()


@given(st.lists(st.integers(2, 60), min_size=1, max_size=6), st.floats(0.05, 0.95), st.integers(0, 9))
def test_every_writer_is_divided_by_sample(counts: list[int], share: float, seed: int) -> None:
    group = numpy_generator(seed, "mixed").permutation(np.repeat([f"w{i}" for i in range(len(counts))], counts))
    train, test = divided_by_sample(group, share, seed)
    assert sorted([*train, *test]) == list(range(len(group)))
    for number, count in enumerate(counts):
        assert (group[train] == f"w{number}").sum() == max(1, int(share * count)) < count
    assert [part.tolist() for part in divided_by_sample(group, share, seed)] == [train.tolist(), test.tolist()]


# Tables


def png(image: np.ndarray) -> bytes:
    stream = io.BytesIO()
    pytest.importorskip("PIL.Image").fromarray(image).save(stream, format="png")
    return stream.getvalue()


def cells(users: dict[str, int]) -> list[tuple[bytes, str, int]]:
    """Rows of a table: the users' samples in turns."""
    found = [
        (number, user, png(image.reshape(28, 28)), int(label))
        for user, count in users.items()
        for number, (image, label) in enumerate(zip(images(user, count), labels(user, count), strict=True))
    ]
    return [(image, user, label) for _, user, image, label in sorted(found, key=lambda row: row[:2])]


def write_parquet(path: Path, rows: list[tuple[Any, Any, Any]], label: str = "character", kind: str = "BIGINT") -> Path:
    duckdb = pytest.importorskip("duckdb")
    path.parent.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as link:
        link.execute(f'CREATE TABLE t (image STRUCT(bytes BLOB, path VARCHAR), writer_id VARCHAR, "{label}" {kind})')
        link.executemany("INSERT INTO t VALUES ({'bytes': ?, 'path': NULL}, ?, ?)", rows)
        link.execute(f"COPY t TO '{path}' (FORMAT parquet)")
    return path


@pytest.mark.parametrize(("label", "kind"), [("character", "BIGINT"), ("label", "TINYINT")])
def test_parquet_as_on_the_hub(tmp_path: Path, label: str, kind: str) -> None:
    path = write_parquet(tmp_path / "f.parquet", cells(SIZES), label, kind)
    data = loaded("femnist", path, **ALL)
    assert rows(data) == expected(SIZES)
    assert (data.mean, data.labels[61]) == ((), "z")
    assert (len(data.train), len(data.test)) == (34, 5)


def test_parquet_in_several_files_is_like_one(tmp_path: Path) -> None:
    table = cells(SIZES)
    for number, part in enumerate((table[:17], table[17:])):
        write_parquet(tmp_path / "snapshot" / "data" / f"train-{number}.parquet", part)
    one = loaded("femnist", write_parquet(tmp_path / "one.parquet", table), fraction=0.7, least=2)
    other = loaded("femnist", tmp_path / "snapshot", fraction=0.7, least=2)
    assert torch.equal(one.train.x, other.train.x)
    assert one.test.group.tolist() == other.test.group.tolist()


def test_characters_may_be_written_out(tmp_path: Path) -> None:
    names = string.digits + string.ascii_uppercase + string.ascii_lowercase
    table = [(image, user, names[label]) for image, user, label in cells(SIZES)]
    path = write_parquet(tmp_path / "f.parquet", table, kind="VARCHAR")
    assert rows(loaded("femnist", path, **ALL)) == expected(SIZES)


def with_row(**changes: Any) -> list[tuple[Any, Any, Any]]:
    table = cells({"a": 3, "b": 3})
    image, user, label = table[4]
    row = {"image": image, "user": user, "label": label} | changes
    return [*table[:4], (row["image"], row["user"], row["label"]), *table[5:]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"label": 62}, r"label 62 in row 5 is outside the 62 classes"),
        ({"label": -1}, r"labels are not allowed, the first is -1"),
        ({"label": None}, r"the label is missing, first in row 5"),
        ({"user": None}, r"1 samples name no group, the first in row 5"),
        ({"image": b"no picture"}, r"the picture in row 5: broken or not a picture"),
        ({"image": None}, r"the picture in row 5: broken or not a picture"),
        ({"image": png(np.zeros((20, 30), np.uint8))}, r"the picture in row 5 is 30x20, expected 28x28"),
    ],
)
def test_wrong_parquet(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    fails(words, "femnist", write_parquet(tmp_path / "f.parquet", with_row(**changes)), **ALL)


def test_parquet_with_other_columns(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "f.parquet", cells({"a": 3}), label="class")
    fails(r"^data\.path: .* has no column 'character'; .*image", "femnist", path, **ALL)
    duckdb = pytest.importorskip("duckdb")
    duckdb.sql("SELECT 1 AS image, 'a' AS writer_id, 2 AS label FROM range(3)").write_parquet(str(path))
    fails("column 'image' is INTEGER: pictures are expected", "femnist", path, **ALL)
    path.write_bytes(b"PAR1 and no more")
    fails("broken or not a Parquet file", "femnist", path, **ALL)


def test_parquet_needs_its_extras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "f.parquet", cells({"a": 3}))
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    fails(r"reading pictures needs the extra 'images'", "femnist", path, **ALL)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    fails(r"reading Parquet needs the extra 'tables': pip install 'remanence\[tables\]'", "femnist", path, **ALL)


# The hub


class Image:
    """What the hub's package calls the kind of a column of pictures."""


class ClassLabel:
    def __init__(self, names: list[str]) -> None:
        self.names = names


class Table:
    def __init__(self, rows: list[tuple[Any, str, int]], names: list[str]) -> None:
        self.rows = rows
        self.features = {"image": Image(), "writer_id": object(), "hsf_id": object(), "character": ClassLabel(names)}

    def __getitem__(self, column: str) -> list[Any]:
        place = {"image": 0, "writer_id": 1, "character": 2}[column]
        assert place or len(self.rows) < 39, "pictures that nobody wants were decoded"
        return [row[place] for row in self.rows]

    def select(self, rows: np.ndarray) -> "Table":
        return Table([self.rows[row] for row in rows], self.features["character"].names)  # type: ignore[attr-defined]


@pytest.mark.parametrize("backwards", [False, True])
def test_the_hub(monkeypatch: pytest.MonkeyPatch, backwards: bool) -> None:
    """Only what is wanted is decoded; the hub's own numbering of the characters is translated."""
    pillow = pytest.importorskip("PIL.Image")
    names = list(string.digits + string.ascii_uppercase + string.ascii_lowercase)[:: -1 if backwards else 1]
    table = [
        (pillow.open(io.BytesIO(image)), user, 61 - label if backwards else label)
        for image, user, label in cells(SIZES)
    ]
    asked = []

    def load(dataset: str, config: str | None, split: str) -> Table:
        asked.append((dataset, split))
        return Table(table, names)

    package = types.ModuleType("datasets")
    package.load_dataset = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", package)
    data = load_dataset("femnist", None, {"fraction": 1.0, "least": 7})
    assert asked == [("flwrlabs/femnist", "train")]
    assert rows(data) == expected({user: size for user, size in SIZES.items() if size >= 7})
    assert data.origin.startswith("hub: flwrlabs/femnist (3 writers of at least 7 samples")
