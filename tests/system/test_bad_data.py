"""Data files that are missing, cut, corrupt or senseless: one line that names the file and what is wrong in it."""

import gzip
import importlib.util
import io
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from system.conftest import Call
from system.running import refused, run_fork

Maker = Callable[[Path], Any]


def good_arrays(count: int = 60) -> dict[str, np.ndarray]:
    y = np.arange(count) % 3
    return {"x": np.linspace(0, 1, count * 4, dtype=np.float32).reshape(count, 4), "y": y}


def npz(**changes: Any) -> Maker:
    """A good file but for `changes`; None takes an array away."""

    def make(path: Path) -> None:
        arrays = {name: value for name, value in {**good_arrays(), **changes}.items() if value is not None}
        np.savez(path, **arrays)

    return make


def spoilt(array: str, place: Any, value: float) -> Maker:
    arrays = good_arrays()
    changed = arrays[array].astype(np.float64) if array == "y" else arrays[array].copy()
    changed[place] = value
    return npz(**{array: changed})


def cut(make: Maker, share: float = 0.5) -> Maker:
    def made(path: Path) -> None:
        make(path)
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * share)])

    return made


def flipped(make: Maker) -> Maker:
    """Every byte of the middle third turned over."""

    def made(path: Path) -> None:
        make(path)
        content = bytearray(path.read_bytes())
        third = len(content) // 3
        content[third : 2 * third] = bytes(255 - byte for byte in content[third : 2 * third])
        path.write_bytes(bytes(content))

    return made


def raw(content: bytes) -> Maker:
    return lambda path: path.write_bytes(content)


def text(content: str) -> Maker:
    return raw(content.encode())


ROWS = "\n".join(f"{i},{i / 7},{i % 2}" for i in range(40))
TABLE = f"a,b,label\n{ROWS}\n"

NPZ: list[tuple[str, Maker, list[str]]] = [
    ("missing", lambda path: None, ["data.path"]),
    ("empty", raw(b""), ["npz"]),
    ("garbage", raw(b"\x00\xff" * 400), ["npz"]),
    ("cut", cut(npz()), ["npz"]),
    ("corrupt", flipped(npz()), ["npz"]),
    ("without-labels", npz(y=None), ["needs the arrays"]),
    ("objects", npz(x=np.array([{"a": 1}] * 60, dtype=object)), ["npz"]),
    ("words", npz(x=np.array([["a"] * 4] * 60)), ["numbers only"]),
    ("not-a-number", spoilt("x", (4, 2), np.nan), ["1 feature values are NaN", "row 5"]),
    ("infinite", spoilt("x", (7, 0), np.inf), ["1 feature values are NaN, infinite", "row 8"]),
    ("negative-label", spoilt("y", 3, -1), ["label", "-1", "row 4"]),
    ("fractional-label", spoilt("y", 3, 1.5), ["label", "1.5", "row 4"]),
    ("label-not-a-number", spoilt("y", 3, np.nan), ["label", "nan", "row 4"]),
    ("huge-label", spoilt("y", 3, 1e9), ["largest label", "data.classes"]),
    ("too-few-labels", npz(y=np.zeros(59, dtype=int)), ["60 samples but 59 labels"]),
    ("no-rows", npz(x=np.zeros((0, 4)), y=np.zeros(0, dtype=int)), ["no samples"]),
    ("one-row", npz(x=np.zeros((1, 4)), y=np.zeros(1, dtype=int)), ["too few"]),
    ("flat", npz(x=np.zeros(60)), ["wrong shape"]),
    (
        "other-test-shape",
        npz(
            x=None,
            y=None,
            x_train=np.zeros((30, 4)),
            y_train=np.zeros(30, int),
            x_test=np.zeros((9, 5)),
            y_test=np.zeros(9, int),
        ),
        ["wrong shape", "(5,)", "(4,)"],
    ),
    ("only-training", npz(x=None, y=None, x_train=np.zeros((30, 4)), y_train=np.zeros(30, int)), ["x_test"]),
]
CSV: list[tuple[str, Maker, list[str]]] = [
    ("missing", lambda path: None, ["data.path"]),
    ("empty", raw(b""), ["empty"]),
    ("only-a-header", text("a,b,label\n"), ["no samples"]),
    ("garbage", raw(bytes(range(256)) * 9), ["table.csv"]),
    ("without-label", text(TABLE.replace("label", "lable")), ["data.label", "did you mean 'lable'"]),
    ("words", text(TABLE.replace("\n7,1.0,", "\nseven,1.0,")), ["'a'", "'seven'", "row 8", "data.drop"]),
    ("empty-cell", text(TABLE.replace("\n7,1.0,", "\n,1.0,")), ["missing", "row 8"]),
    ("not-a-number", text(TABLE.replace("\n7,1.0,", "\nnan,1.0,")), ["NaN", "row 8"]),
    ("infinite", text(TABLE.replace("\n7,1.0,", "\n1e999,1.0,")), ["infinite", "row 8"]),
    ("ragged", text(TABLE.replace("\n7,1.0,", "\n7,1.0,5,")), ["row 8", "4 cells"]),
    ("cut-row", text(TABLE.replace("\n7,1.0,1\n", "\n7\n")), ["row 8", "1 cells"]),
    ("open-quote", text(TABLE.replace("\n7,", '\n"7,')), ["table.csv"]),
    ("twice", text(TABLE.replace("a,b", "a,a")), ["'a'", "twice"]),
    ("missing-label", text(TABLE.replace("\n7,1.0,1\n", "\n7,1.0,\n")), ["label", "row 8"]),
    ("no-features", text("label\n" + "1\n" * 30), ["no feature columns"]),
]


@pytest.mark.parametrize(("make", "words"), [(m, w) for _, m, w in NPZ], ids=[name for name, *_ in NPZ])
def test_npz(make: Maker, words: list[str], call: Call, inside: Path) -> None:
    make(inside / "data.npz")
    refused(call("run", "good.toml", "--set", "data.path=data.npz"), "data.npz", *words)


@pytest.mark.parametrize(("make", "words"), [(m, w) for _, m, w in CSV], ids=[name for name, *_ in CSV])
@pytest.mark.parametrize("reader", ["duckdb", "plain"])
def test_csv(
    reader: str, make: Maker, words: list[str], call: Call, inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reader == "plain":
        monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    make(inside / "table.csv")
    refused(call("run", "good.toml", "--set", "data.path=table.csv"), "table.csv", *words)


TEXT = "label,text\n" + "".join(f"{i % 2},word{i} or{i % 3}\n" for i in range(40))
TEXTS: list[tuple[str, Maker, list[str]]] = [
    ("missing", lambda path: None, ["data.path"]),
    ("empty", raw(b""), ["empty"]),
    ("only-a-header", text("label,text\n"), ["no samples"]),
    ("garbage", raw(bytes(range(256)) * 9), []),
    ("without-label", text(TEXT.replace("label", "lable")), ["label"]),
    ("without-text", text(TEXT.replace("text", "txt")), ["text"]),
    ("ragged", text(TEXT.replace("or1\n", "or1,more\n")), ["row 2", "3 cells"]),
    ("open-quote", text(TEXT.replace("word7", '"word7')), []),
    ("missing-label", text(TEXT.replace("\n1,word7", "\n,word7")), ["label", "row 8"]),
    ("negative-label", text(TEXT.replace("\n1,word7", "\n-1,word7")), ["-1", "row 8"]),
    ("no-words", text("label,text\n" + "0,...\n1,!\n" * 30), ["no words"]),
]


@pytest.mark.parametrize(("make", "words"), [(m, w) for _, m, w in TEXTS], ids=[name for name, *_ in TEXTS])
@pytest.mark.parametrize("name", ["text", "ag-news"])
def test_texts(name: str, make: Maker, words: list[str], call: Call, inside: Path) -> None:
    make(inside / "news.csv")
    ended = call("run", "good.toml", "--set", "data.path=news.csv", "--set", f"data.name={name}")
    refused(ended, "news.csv", *words)


def test_a_table_of_text_is_not_for_every_model(call: Call, inside: Path) -> None:
    text(TEXT)(inside / "news.csv")
    settings = ["--set", "data.path=news.csv", "--set", "data.name=text", "--set", "devices.smallest=0"]
    refused(call("run", "good.toml", *settings), "model.name", "mlp", "news", "fasttext")
    model = ["--set", "model={name='fasttext', vocabulary=9}"]
    refused(call("run", "good.toml", *settings, *model), "model.vocabulary", "9", "37", "data.vocabulary")


def test_a_table_of_text_is_trained_on(inside: Path) -> None:
    text(TEXT)(inside / "news.csv")
    ended = run_fork(
        inside,
        "run",
        "good.toml",
        "--runs",
        inside / "runs",
        "--json",
        "--set",
        "data={name='text', path='news.csv', length=4}",
        "--set",
        "model={name='fasttext', vocabulary=50}",
        "--set",
        "devices.smallest=0",
    )
    assert ended.code == 0, ended.err
    assert 0 <= ended.json["accuracy"] <= 1


def test_labels_outside_the_classes(call: Call, inside: Path) -> None:
    npz()(inside / "data.npz")
    text(TABLE.replace(",1\n", ",5\n"))(inside / "table.csv")
    for name in ("data.npz", "table.csv"):
        ended = call("run", "good.toml", "--set", f"data.path={name}", "--set", "data.classes=2")
        refused(ended, name, "outside the 2 classes")


def test_a_broken_packed_table(call: Call, inside: Path) -> None:
    (inside / "table.csv.gz").write_bytes(gzip.compress(TABLE.encode())[:-20])
    refused(call("run", "good.toml", "--set", "data.path=table.csv.gz"), "table.csv.gz")
    (inside / "table.csv.gz").write_bytes(TABLE.encode())
    refused(call("run", "good.toml", "--set", "data.path=table.csv.gz"), "table.csv.gz")


# IDX


def idx(shape: tuple[int, ...], values: int | None = None) -> bytes:
    count = int(np.prod(shape)) if values is None else values
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + bytes(i % 10 for i in range(count))


def idx_folder(folder: Path, **changes: bytes | None) -> Path:
    files: dict[str, bytes | None] = {
        "train-images-idx3-ubyte": idx((40, 5, 5)),
        "train-labels-idx1-ubyte": idx((40,)),
        "t10k-images-idx3-ubyte": idx((20, 5, 5)),
        "t10k-labels-idx1-ubyte": idx((20,)),
    }
    folder.mkdir()
    for name, content in {**files, **{k.replace("_", "-"): v for k, v in changes.items()}}.items():
        if content is not None:
            (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train_images_idx3_ubyte": idx((40, 5, 5))[:500]}, ["train-images", "truncated"]),
        ({"train_images_idx3_ubyte": idx((40, 5, 5))[:9]}, ["train-images", "truncated"]),
        ({"train_images_idx3_ubyte": b""}, ["train-images", "missing"]),
        ({"train_images_idx3_ubyte": b"\x89PNG" + b"0" * 999}, ["train-images", "not an IDX file"]),
        ({"train_images_idx3_ubyte": idx((40, 5, 5)) + b"more"}, ["train-images", "too long"]),
        ({"train_images_idx3_ubyte": idx((2**31, 2**31, 5), 50)}, ["train-images", "truncated"]),
        ({"t10k_labels_idx1_ubyte": idx((19,))}, ["20 samples but 19 labels"]),
        ({"t10k_labels_idx1_ubyte": None}, ["labels"]),
        ({"t10k_images_idx3_ubyte": idx((20, 6, 5))}, ["wrong shape"]),
    ],
)
def test_idx(changes: dict[str, Any], words: list[str], call: Call, inside: Path) -> None:
    idx_folder(inside / "letters", **changes)
    refused(call("run", "good.toml", "--set", "data.path=letters"), "letters", *words)


def test_idx_packed_and_cut(call: Call, inside: Path) -> None:
    folder = idx_folder(inside / "letters", train_images_idx3_ubyte=None)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx((40, 5, 5)))[:-12])
    refused(call("run", "good.toml", "--set", "data.path=letters"), "train-images-idx3-ubyte.gz")


def test_idx_labels_outside_the_classes(call: Call, inside: Path) -> None:
    idx_folder(inside / "letters")
    refused(call("run", "good.toml", "--set", "data.path=letters", "--set", "data.classes=4"), "outside the 4 classes")
    ended = call("run", "good.toml", "--set", "data.name=mnist", "--set", "data.path=letters")
    refused(ended, "letters", "(1, 28, 28)", "(1, 5, 5)")


# CIFAR


def cifar_rows(count: int, label: int | None = None) -> bytes:
    return b"".join(bytes([i % 10 if label is None else label]) + bytes(3072) for i in range(count))


def cifar_folder(folder: Path, **changes: bytes | None) -> Path:
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    files: dict[str, bytes | None] = dict.fromkeys(names, cifar_rows(10))
    folder.mkdir()
    for name, content in {**files, **changes}.items():
        if content is not None:
            (folder / f"{name}.bin").write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data_batch_3": cifar_rows(10)[:-100]}, ["data_batch_3.bin", "truncated"]),
        ({"data_batch_3": b""}, ["data_batch_3.bin", "truncated"]),
        ({"data_batch_3": None}, ["data_batch_3.bin", "incomplete"]),
        ({"test_batch": cifar_rows(10, 200)}, ["label 200", "10 classes"]),
    ],
)
def test_cifar(changes: dict[str, Any], words: list[str], call: Call, inside: Path) -> None:
    cifar_folder(inside / "pictures", **changes)
    refused(call("run", "good.toml", "--set", "data.path=pictures"), "pictures", *words)


def test_cifar_archives(call: Call, inside: Path) -> None:
    folder, packed = cifar_folder(inside / "pictures"), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(folder, "cifar-10-batches-bin")
    for content in (packed.getvalue()[: len(packed.getvalue()) // 2], b"no archive", b""):
        (inside / "cifar-10-binary.tar.gz").write_bytes(content)
        refused(call("run", "good.toml", "--set", "data.path=cifar-10-binary.tar.gz"), "cifar-10-binary.tar.gz")


# Others


def test_pictures(call: Call, inside: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for label in ("cat", "dog"):
        (inside / "zoo" / label).mkdir(parents=True)
        for number in range(6):
            image.new("RGB", (8, 8), (number, 0, 0)).save(inside / "zoo" / label / f"{number}.png")
    broken = inside / "zoo" / "dog" / "3.png"
    whole = broken.read_bytes()
    for content in (b"", b"no picture", whole[: len(whole) // 2]):
        broken.write_bytes(content)
        refused(
            call(
                "run", "good.toml", "--set", "data.path=zoo", "--set", "devices.count=2", "--set", "devices.per_round=1"
            ),
            "3.png",
        )
    image.new("RGB", (9, 8)).save(broken)
    refused(call("run", "good.toml", "--set", "data.path=zoo"), "zoo", "9x8", "data.size")


def test_parquet(call: Call, inside: Path) -> None:
    path = inside / "table.parquet"
    path.write_bytes(b"PAR1" + b"\0" * 50)
    words = ["remanence[tables]"] if importlib.util.find_spec("duckdb") is None else ["Parquet"]
    refused(call("run", "good.toml", "--set", "data.path=table.parquet"), "table.parquet", *words)


def test_an_empty_folder(call: Call, inside: Path) -> None:
    (inside / "nothing").mkdir()
    refused(call("run", "good.toml", "--set", "data.path=nothing"), "data.path", "nothing")
    refused(call("run", "good.toml", "--set", "data.name=npz", "--set", "data.path=nothing"), "nothing")
    refused(call("run", "good.toml", "--set", "data.name=csv", "--set", "data.path=nothing"), "nothing")


def test_devices_without_samples_are_told_and_never_counted(inside: Path) -> None:
    """Not an error: real fleets have them."""
    ended = run_fork(
        inside,
        "run",
        "good.toml",
        "--runs",
        inside / "runs",
        "--json",
        "--set",
        "devices.smallest=0",
        "--set",
        "devices.count=150",
        "--set",
        "devices.per_round=50",
        "--set",
        "devices.alpha=0.01",
    )
    assert ended.code == 0, ended.err
    assert "have no samples and never take part" in ended.err
    assert ended.json["refused"] > 0
    assert ended.json["participation"]["least"] == 0
