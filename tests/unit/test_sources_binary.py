"""IDX, CIFAR's batches and NPZ archives, whole and broken."""

from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import (
    cifar_files,
    fails,
    idx_bytes,
    idx_folder,
    loaded,
    table,
    write_npz,
    write_tar,
)

from remanence.core.rng import numpy_generator
from remanence.data.datasets import kind_of

# IDX


@pytest.mark.parametrize("packed", [False, True])
def test_mnist_from_a_folder(tmp_path: Path, packed: bool) -> None:
    content = idx_folder(tmp_path, packed)
    data = loaded("mnist", tmp_path)
    assert (data.name, data.classes, data.shape) == ("mnist", 10, (1, 28, 28))
    assert (data.mean, data.std) == ((0.1307,), (0.3081,))
    assert np.array_equal(data.train.x.numpy()[:, 0], content["train-images-idx3-ubyte"])
    assert data.test.y.tolist() == [0, 1, 2, 3, 4]
    assert data.origin == str(tmp_path)


@pytest.mark.parametrize("kind", ["i4", "f4"])
def test_generic_idx_with_names(tmp_path: Path, kind: str) -> None:
    content = idx_folder(tmp_path, side=5)
    x = content["train-images-idx3-ubyte"].astype(kind)
    for name in ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte"):
        (tmp_path / name).write_bytes(idx_bytes(content[name].astype(kind)))
    data = loaded(None, tmp_path, class_names=list("abcdefghij"))
    assert data.shape == (1, 5, 5)
    assert data.train.x.dtype == torch.float32
    assert np.array_equal(data.train.x.numpy()[:, 0], x)
    assert data.labels == tuple("abcdefghij")


def test_broken_idx(tmp_path: Path) -> None:
    idx_folder(tmp_path)
    images, labels = tmp_path / "train-images-idx3-ubyte", tmp_path / "train-labels-idx1-ubyte"
    whole = images.read_bytes()
    images.write_bytes(whole[:-7])
    fails(
        r"train-images-idx3-ubyte: truncated: \(12, 28, 28\) numbers need 9424 bytes, there are 9417",
        "mnist",
        tmp_path,
    )
    images.write_bytes(whole + b"x")
    fails("train-images-idx3-ubyte: too long", "mnist", tmp_path)
    images.write_bytes(whole[:10])
    fails("truncated: the header of 16 bytes", "mnist", tmp_path)
    images.write_bytes(b"PNG!" + whole)
    fails("not an IDX file .*50 4e 47 21", "mnist", tmp_path)
    images.write_bytes(b"")
    fails("not an IDX file .*missing", "mnist", tmp_path)
    images.write_bytes(whole)
    labels.write_bytes(idx_bytes(np.zeros(11, np.uint8)))
    fails("12 samples but 11 labels", "mnist", tmp_path)
    labels.write_bytes(idx_bytes(np.full(12, 11, np.uint8)))
    fails(r"label 11 in row 1 is outside the 10 classes \(0 to 9\)", "mnist", tmp_path)
    labels.unlink()
    fails(r"no file \*train-labels\*\[\.gz\]", "mnist", tmp_path)


@pytest.mark.parametrize("damage", ["cut", "flipped", "plain"])
def test_broken_gzip(tmp_path: Path, damage: str) -> None:
    idx_folder(tmp_path, packed=True)
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 255
    path.write_bytes({"cut": data[: len(data) // 2], "flipped": data, "plain": b"no gzip at all"}[damage])
    fails(r"t10k-images-idx3-ubyte\.gz: broken or not a gzip-packed IDX file", "mnist", tmp_path)


def test_wrong_size_of_images(tmp_path: Path) -> None:
    idx_folder(tmp_path, side=20)
    fails(r"mnist has images \(1, 28, 28\) uint8, these are \(1, 20, 20\) uint8", "mnist", tmp_path)


def test_two_candidates_for_a_file(tmp_path: Path) -> None:
    idx_folder(tmp_path)
    (tmp_path / "emnist-train-images-idx3-ubyte").write_bytes(b"")
    fails("2 files could be the train images", "idx", tmp_path)


# CIFAR


def test_cifar10_from_folder_archive_and_npz_is_the_same(tmp_path: Path) -> None:
    files = {**cifar_files(), "batches.meta.txt": b"a\n", "readme.html": b"hello"}
    folder = tmp_path / "unpacked" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    archive = write_tar(tmp_path / "cifar-10-binary.tar.gz", files)
    first = loaded("cifar10", folder)
    assert (len(first.train), len(first.test), first.shape) == (20, 4, (3, 32, 32))
    assert first.labels[:2] == ("airplane", "automobile")
    assert first.mean == (0.4914, 0.4822, 0.4465)
    row = np.frombuffer(files["data_batch_2.bin"], np.uint8)[:3073]
    assert int(first.train.y[4]) == row[0]
    assert np.array_equal(first.train.x[4].numpy(), row[1:].reshape(3, 32, 32))
    last = write_npz(
        tmp_path / "c.npz",
        x_train=first.train.x.permute(0, 2, 3, 1).numpy(),
        y_train=first.train.y.numpy(),
        x_test=first.test.x.numpy(),
        y_test=first.test.y.numpy(),
    )
    for other in (
        loaded(None, archive),
        loaded(None, folder.parent),
        loaded(None, folder / "test_batch.bin"),
        loaded("cifar10", last),
    ):
        assert other.name == "cifar10"
        assert torch.equal(other.train.x, first.train.x)
        assert torch.equal(other.test.y, first.test.y)


def test_cifar100_fine_and_coarse(tmp_path: Path) -> None:
    files = cifar_files(label_bytes=2)
    rows = np.frombuffer(files["train.bin"], np.uint8).reshape(4, -1).copy()
    rows[:, 0], rows[:, 1] = 19, 99
    fine = "\n".join(f"fine{number}" for number in range(100)).encode()
    path = write_tar(tmp_path / "c.tar.gz", {**files, "train.bin": rows.tobytes(), "fine_label_names.txt": fine})
    assert kind_of(path) == "cifar100"
    data = loaded("cifar100", path)
    assert (data.classes, data.train.y.tolist(), data.labels[99]) == (100, [99] * 4, "fine99")
    assert data.std == (0.2673, 0.2564, 0.2762)
    coarse = loaded("cifar100", path, coarse=True)
    assert (coarse.classes, coarse.train.y.tolist(), coarse.labels) == (20, [19] * 4, ())


def test_broken_cifar(tmp_path: Path) -> None:
    files = cifar_files()
    path = tmp_path / "c.tar.gz"
    write_tar(path, {**files, "data_batch_3.bin": files["data_batch_3.bin"][:-5]})
    fails(
        r"c\.tar\.gz: data_batch_3\.bin is truncated or broken: 12287 bytes are not whole rows of 3073",
        "cifar10",
        path,
    )
    write_tar(path, {name: data for name, data in files.items() if "4" not in name})
    fails(r"incomplete: data_batch_4\.bin not found", None, path)
    write_tar(path, {"data_batch_1": b"", "test_batch": b""})
    fails("Python version, which would need unpickling; get cifar-10-binary", "cifar10", path)
    whole = write_tar(path, files).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    fails(r"c\.tar\.gz: broken or not a tar file", "cifar10", path)
    path.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    fails(r"c\.tar\.gz: broken or not a tar file \(CRC check failed", "cifar10", path)
    path.write_bytes(b"nothing of the kind")
    fails(r"c\.tar\.gz: broken or not a tar file", None, path)
    fails(r"incomplete: train\.bin, test\.bin not found", "cifar100", write_tar(path, files))


# NPZ


def test_npz_with_both_parts_and_groups(tmp_path: Path) -> None:
    part = table()
    path = write_npz(
        tmp_path / "plant.npz",
        x_train=part["x"],
        y_train=part["y"],
        machine_train=np.arange(20) % 3,
        x_test=part["x"][:6],
        y_test=part["y"][:6],
        machine_test=np.arange(6) % 3,
        classes=np.array(["ok", "hot", "worn", "broken"]),
        other=np.array([{"any": "object"}], dtype=object),
    )
    data = loaded(None, path, group="machine")
    assert (data.name, data.classes, data.shape) == ("plant", 4, (3,))
    assert data.labels == ("ok", "hot", "worn", "broken")
    assert data.train.group.tolist() == [index % 3 for index in range(20)]
    assert data.test.group.tolist() == [0, 1, 2, 0, 1, 2]
    assert data.train.x.dtype == torch.float32
    ready = data.prepare(data.train).x
    assert torch.allclose(ready.mean(0), torch.zeros(3), atol=1e-6)
    assert torch.allclose(ready.std(0, correction=0), torch.ones(3), atol=1e-5)
    assert loaded(None, path).train.group is None
    assert loaded(None, path, normalise="none").mean == ()


def test_npz_undivided_is_divided_the_same_way_every_time(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz", signal=np.arange(40.0)[:, None], fault=np.arange(40) % 2, who=np.arange(40))
    data = loaded(None, path, x="signal", y="fault", group="who", test=0.25)
    assert (len(data.train), len(data.test)) == (30, 10)
    assert sorted(data.train.group.tolist() + data.test.group.tolist()) == list(range(40))
    assert np.array_equal(data.train.x[:, 0].numpy(), data.train.group)
    assert np.array_equal(data.test.y.numpy(), data.test.group % 2)
    again = loaded("npz", path, x="signal", y="fault", group="who", test=0.25)
    assert torch.equal(data.test.x, again.test.x)


@pytest.mark.parametrize(
    ("shape", "kind", "layout", "expected"),
    [
        ((20, 6), "f4", "auto", (6,)),
        ((20, 6), "u1", "auto", (6,)),
        ((20, 6, 5), "u1", "auto", (1, 6, 5)),
        ((20, 6, 5), "f4", "auto", (5, 6)),
        ((20, 6, 5), "f4", "grey", (1, 6, 5)),
        ((20, 6, 5, 3), "u1", "auto", (3, 6, 5)),
        ((20, 3, 6, 5), "f8", "auto", (3, 6, 5)),
        ((20, 3, 6, 3), "u1", "channels-last", (3, 3, 6)),
        ((20, 2, 6, 5), "i2", "channels-first", (2, 6, 5)),
    ],
)
def test_layouts(tmp_path: Path, shape, kind, layout, expected) -> None:
    x = numpy_generator(0, "arrays").integers(0, 99, shape).astype(kind)
    data = loaded(None, write_npz(tmp_path / "a.npz", x=x, y=np.arange(20) % 2), layout=layout)
    assert data.shape == expected
    assert data.train.x.dtype == (torch.uint8 if kind == "u1" else torch.float32)
    assert data.train.x.is_contiguous()
    assert len(data.mean) == expected[0]
    assert torch.isfinite(data.prepare(data.train).x).all()
    assert float(data.train.x.to(torch.float64).sum() + data.test.x.to(torch.float64).sum()) == x.sum(dtype=float)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": np.zeros(20)}, r"wrong shape \(20,\)"),
        ({"x": np.zeros((20, 2, 5, 6))}, "does not say which axis is the channels; give data.layout"),
        ({"x": np.zeros((20, 3, 5, 3))}, "does not say which axis"),
        ({"x": np.zeros((19, 3))}, r"a\.npz \(x, y\): 19 samples but 20 labels"),
        ({"x": np.zeros((0, 3)), "y": np.zeros(0, int)}, "is empty: no samples"),
        ({"x": np.array([["a"] * 3] * 20)}, "features of type <U1 are not allowed: numbers only"),
        ({"x": np.ones((20, 3), complex)}, "features of type complex128"),
        (
            {"x": np.array([[np.nan, 0]] * 20)},
            "20 feature values are NaN, infinite or missing, the first in row 1",
        ),
        (
            {"x": np.array([[1.0, 0]] * 18 + [[np.inf, -np.inf]] * 2)},
            "4 feature values .* the first in row 19",
        ),
        ({"x": np.array([[1.0]] * 19 + [[1e39]])}, "1 feature values .* the first in row 20"),
        ({"y": np.arange(20) - 1}, "1 labels are not allowed, the first is -1 in row 1"),
        ({"y": np.arange(20) / 2}, r"10 labels are not allowed, the first is 0\.5 in row 2"),
        ({"y": np.full(20, np.nan)}, "20 labels are not allowed, the first is nan in row 1"),
        ({"y": np.zeros((20, 2), int)}, r"wrong shapes: features \(20, 3\), labels \(20, 2\)"),
        (
            {"y": np.full(20, 20230101)},
            "the largest label is 20230101, more classes than the 20 samples; .*data.classes",
        ),
        ({"y": np.array(["a"] * 19 + [""])}, "the label is missing, first in row 20"),
        ({"y": np.array([1j] * 20)}, "labels of type complex128"),
        ({"x": np.array([None] * 20, dtype=object)}, r"a\.npz: .*allow_pickle"),
        ({"g": np.zeros(3)}, r"20 samples but groups of shape \(3,\)"),
        ({"g": np.array(["m1"] * 19 + [" "])}, "1 samples name no group, the first in row 20"),
        ({"g": np.array([1.0] * 18 + [np.nan] * 2)}, "2 samples name no group, the first in row 19"),
    ],
)
def test_wrong_content_of_npz(tmp_path: Path, change, words) -> None:
    arrays = {**table(), "g": np.arange(20), **change}
    fails(words, "npz", write_npz(tmp_path / "a.npz", **arrays), group="g")


def test_wrong_names_in_npz(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz", **table())
    fails("has no array 'machine'; it has x, y", "npz", path, group="machine")
    fails(
        "needs the arrays signal_train, y_train, signal_test and y_test, or signal and y; it has x, y",
        None,
        path,
        x="signal",
    )
    path = write_npz(tmp_path / "a.npz", x_train=np.zeros((2, 2)), y_train=np.zeros(2))
    fails("has no array 'x_test'", None, path)
    fails("has no array 'x_test'", "mnist", path)
    fails(
        "needs x_train, y_train, x_test and y_test; for x and y use data.name = 'npz'",
        "mnist",
        write_npz(path, **table()),
    )


def test_parts_of_different_shape(tmp_path: Path) -> None:
    part = table()
    path = write_npz(
        tmp_path / "a.npz", x_train=part["x"], y_train=part["y"], x_test=part["x"][:, :2], y_test=part["y"]
    )
    fails(
        r"\(x_test, y_test\): wrong shape: test samples are \(2,\) float32, training samples \(3,\)",
        None,
        path,
    )


@pytest.mark.parametrize("keep", [0, 1, 60, 300, -1])
def test_truncated_npz(tmp_path: Path, keep: int) -> None:
    path = write_npz(tmp_path / "a.npz", **table())
    path.write_bytes(path.read_bytes()[:keep])
    fails(r"a\.npz: broken or not a npz file", None, path)


def test_damaged_npz(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=numpy_generator(0, "arrays").normal(size=(200, 30)), y=np.arange(200) % 3)
    data = bytearray(path.read_bytes())
    data[5000] ^= 255
    path.write_bytes(data)
    fails(r"a\.npz: broken or not a npz file", None, path)
    np.save(tmp_path / "b.npy", np.zeros(3))
    fails(r"b\.npy: broken or not a npz file", "npz", tmp_path / "b.npy")
    fails("folder.npz: cannot be read", "npz", _folder(tmp_path / "folder.npz"))


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_classes_can_be_fixed(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz", **table())
    assert loaded(None, path, classes=9).classes == 9
    fails(r"label 3 in row 4 is outside the 3 classes \(0 to 2\)", None, path, classes=3)
    assert loaded(None, path, class_names=["a", "b", "c", "d", "e"]).classes == 5
    one = write_npz(tmp_path / "b.npz", x=np.ones((10, 2)), y=np.zeros(10))
    assert loaded(None, one).classes == 1


def test_too_few_samples_to_divide(tmp_path: Path) -> None:
    fails(
        "3 samples are too few for a test share of 0.2",
        None,
        write_npz(tmp_path / "a.npz", x=np.ones((3, 1)), y=np.zeros(3)),
    )
