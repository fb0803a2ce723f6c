"""Sources of data: the default, named sets, folders of pictures, the hub, and how a source is chosen."""

import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_files import (
    cifar_files,
    fails,
    idx_folder,
    loaded,
    pictures,
    table,
    write,
    write_npz,
    write_tar,
)

from remanence.core.rng import numpy_generator
from remanence.data import named
from remanence.data.assemble import channel_statistics, rows_for_testing
from remanence.data.datasets import kind_of, load_dataset
from remanence.data.sources import mnist as mnist_source
from remanence.errors import UserError


@pytest.fixture(autouse=True)
def no_data_of_this_machine(tmp_path_factory, monkeypatch) -> None:
    """No cache, no hub: what a test needs it makes."""
    monkeypatch.setenv("REMANENCE_DATA", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setitem(sys.modules, "datasets", None)


# The default


def test_digits_are_the_default_and_always_the_same() -> None:
    data = load_dataset(None, None, {})
    assert data.name == "digits"
    assert data.shape == (1, 8, 8)
    assert data.classes == len(data.labels) == 10
    assert (len(data.train), len(data.test)) == (1438, 359)
    assert data.train.x.dtype == torch.uint8
    assert int(data.train.x.max()) == 255
    assert data.train.y.bincount().min() >= 138
    assert data.test.y.bincount().min() >= 34
    again = load_dataset("digits", None, {})
    assert torch.equal(data.train.x, again.train.x)
    assert torch.equal(data.test.y, again.test.y)
    ready = data.prepare(data.train)
    assert float(ready.x.mean()) == pytest.approx(0, abs=1e-5)
    assert float(ready.x.std()) == pytest.approx(1, abs=1e-3)


def test_rows_for_testing_are_a_fixed_share_of_every_class() -> None:
    y = numpy_generator(0, "labels").integers(0, 5, 1000)
    chosen = rows_for_testing(y, 0.3)
    assert chosen.sum() == 300
    assert np.abs(np.bincount(y[chosen]) - 0.3 * np.bincount(y)).max() <= 1
    assert rows_for_testing(np.zeros(10, int), 0.2).nonzero()[0].tolist() == [4, 9]


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_channel_statistics(kind: type) -> None:
    x = pictures(30, 2, 5, 4).astype(kind)
    x[:, 1] = 7
    scale = 255 if kind is np.uint8 else 1
    mean, std = channel_statistics(x)
    assert mean == pytest.approx((x[:, 0].mean() / scale, 7 / scale))
    assert std == pytest.approx((x[:, 0].std() / scale, 1))


# Named data


def test_fashion_mnist_is_found_where_a_package_puts_it(tmp_path: Path, monkeypatch) -> None:
    idx_folder(tmp_path, packed=True)
    monkeypatch.setattr(mnist_source, "_FASHION", replace(mnist_source._FASHION, packaged=(tmp_path,)))
    data = load_dataset("fashion-mnist", None, {})
    assert data.origin == str(tmp_path)
    assert data.labels[9] == "ankle boot"


def test_the_users_cache_is_looked_into() -> None:
    idx_folder(named.cache_folder() / "mnist")
    assert load_dataset("mnist", None, {}).origin.endswith("mnist")


def test_named_data_that_cannot_be_found(tmp_path: Path) -> None:
    fails(
        r"^data\.name: 'mnist' not found\. Looked for .*mnist\.npz.*remanence\[hub\].*\nGive data\.path: ",
        "mnist",
    )
    fails(r"cifar-10-binary\.tar\.gz", "cifar10")
    fails(r"^data\.path: no such file or folder: .*mnits; did you mean '.*/mnist'", "mnist", _beside(tmp_path))


def _beside(folder: Path) -> Path:
    (folder / "mnist").mkdir()
    return folder / "mnits"


# Pictures


def save(path: Path, array: np.ndarray) -> Path:
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(array).save(path)
    return path


def picture_folder(folder: Path, parts: tuple[str, ...] = ("train", "test"), side: int = 6) -> np.ndarray:
    """Ten pictures of each of two classes in every part; returns the first training picture."""
    for part in parts:
        for name in ("scratched", "fine"):
            for number in range(10):
                save(
                    folder / part / name / "images" / f"{number}.png",
                    pictures(1, side, side + 1, 3, seed=number)[0],
                )
    image = pytest.importorskip("PIL.Image")
    return np.asarray(image.open(folder / parts[0] / "fine" / "images" / "0.png"))


@pytest.mark.parametrize("test", ["test", "val"])
def test_pictures_in_two_parts(tmp_path: Path, test: str) -> None:
    first = picture_folder(tmp_path, ("train", test))
    data = loaded(None, tmp_path)
    assert (data.labels, data.classes, data.shape) == (("fine", "scratched"), 2, (3, 6, 7))
    assert (len(data.train), len(data.test)) == (20, 20)
    assert np.array_equal(data.train.x[0].permute(1, 2, 0).numpy(), first)
    assert data.train.y.tolist() == [0] * 10 + [1] * 10
    assert loaded("images", tmp_path, normalise="imagenet").mean == (0.485, 0.456, 0.406)


def test_pictures_to_be_divided_resized_and_grey(tmp_path: Path) -> None:
    picture_folder(tmp_path, (".",))
    data = loaded(None, tmp_path, size=4, channels=1)
    assert data.shape == (1, 4, 4)
    assert data.train.y.bincount().tolist() == [8, 8]
    assert data.test.y.bincount().tolist() == [2, 2]
    fails(
        r"^data\.normalise: 'imagenet' is not allowed with data\.channels = 1",
        "images",
        tmp_path,
        channels=1,
        normalise="imagenet",
    )


def test_grey_pictures_become_three_channels(tmp_path: Path) -> None:
    picture_folder(tmp_path)
    save(tmp_path / "train" / "fine" / "0.png", pictures(1, 6, 7)[0])
    x = loaded(None, tmp_path).train.x[0]
    assert torch.equal(x[0], x[2])


def test_wrong_pictures(tmp_path: Path) -> None:
    fails(r"^data\.path: cannot tell what .* is; expected four IDX files", None, tmp_path)
    fails(r"no pictures in class folders", "images", tmp_path)
    picture_folder(tmp_path, ("train",))
    fails("has a folder 'train' but none of test, val", None, tmp_path)
    picture_folder(tmp_path, ("test",))
    odd = save(tmp_path / "test" / "fine" / "z.png", pictures(1, 9, 9, 3)[0])
    fails("pictures differ in size: 0.png is 7x6, z.png is 9x9; give data.size", None, tmp_path)
    assert loaded(None, tmp_path, size=6).shape == (3, 6, 6)
    odd.write_bytes(odd.read_bytes()[:60])
    fails(r"z\.png: broken or not a picture", None, tmp_path, size=6)
    odd.write_bytes(b"")
    fails(r"z\.png: broken or not a picture", None, tmp_path)
    save(odd, pictures(1, 6, 7)[0].astype(np.uint16) * 200)
    fails(r"z\.png: has more than 8 bits per channel", None, tmp_path)
    odd.unlink()
    save(tmp_path / "test" / "scratchd" / "a.png", pictures(1, 6, 7, 3)[0])
    fails("scratchd: not a class of the training part; did you mean 'scratched'", None, tmp_path)


def test_pictures_need_their_extra(tmp_path: Path, monkeypatch) -> None:
    picture_folder(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    fails(r"reading pictures needs the extra 'images': pip install 'remanence\[images\]'", None, tmp_path)


# The hub, with a stand-in for its package


class ClassLabel:
    names = ("ok", "worn")


class Value:
    pass


class Table(dict):
    def __init__(self, features: dict[str, Any], **columns: Any) -> None:
        super().__init__(columns)
        self.features = features


def install_hub(monkeypatch, load: Callable[..., Any]) -> None:
    package = types.ModuleType("datasets")
    package.load_dataset = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", package)


def hub_table(count: int) -> Table:
    kinds = {"a": Value(), "state": ClassLabel(), "machine": Value()}
    numbers = list(range(count))
    return Table(kinds, a=numbers, state=[number % 2 for number in numbers], machine=[str(n % 3) for n in numbers])


def test_hub_tables(monkeypatch) -> None:
    asked = []

    def load(dataset: str, config: str | None, split: str) -> Table:
        asked.append((dataset, config, split))
        return hub_table(12 if split == "train" else 5)

    install_hub(monkeypatch, load)
    data = load_dataset("hub", None, {"dataset": "plant/pumps", "config": "small", "group": "machine"})
    assert asked == [("plant/pumps", "small", "train"), ("plant/pumps", "small", "test")]
    assert (data.name, data.classes, data.labels, data.shape) == ("pumps", 2, ("ok", "worn"), (1,))
    assert data.train.group.tolist() == [number % 3 for number in range(12)]
    assert data.test.y.tolist() == [0, 1, 0, 1, 0]
    fails("data.label: 'p' has no column 'stat'; did you mean 'state'", "hub", dataset="p", label="stat")
    fails("data.group: .* has no column 'machin'", "hub", dataset="p", group="machin")
    fails("column 'machine' is neither a picture nor numbers", "hub", dataset="p")


def test_named_data_from_the_hub(monkeypatch) -> None:
    image = pytest.importorskip("PIL.Image")

    class Image:
        pass

    def load(dataset: str, config: str | None, split: str) -> Table:
        grey = [image.fromarray(array) for array in pictures(20, 28, 28)]
        return Table({"image": Image(), "label": ClassLabel()}, image=grey, label=list(range(10)) * 2)

    install_hub(monkeypatch, load)
    data = load_dataset("mnist", None, {})
    assert (data.shape, data.mean, data.origin) == ((1, 28, 28), (0.1307,), "hub: ylecun/mnist")
    fails(r"cifar10 has images \(3, 32, 32\) uint8, these are \(1, 28, 28\)", "cifar10")


def test_hub_missing_and_offline(monkeypatch) -> None:
    fails(
        r"^data\.dataset: 'a/b' is fetched with the extra 'hub': pip install 'remanence\[hub\]'",
        "hub",
        dataset="a/b",
    )

    def load(dataset: str, config: str | None, split: str) -> Table:
        raise ConnectionError(f"Couldn't reach '{dataset}' on the Hub\nand much more\n" * 5)

    install_hub(monkeypatch, load)
    offline = r"tried the hub .* for 'a/b' \(split 'train'\), failed: Couldn't reach 'a/b' on the Hub\n"
    fails(offline + r"Without a network, give data\.path", "hub", dataset="a/b")
    fails(r"^data\.name: 'cifar100' not found.*Couldn't reach.*\nGive data\.path: ", "cifar100")


# The resolver


def test_resolver_errors(tmp_path: Path) -> None:
    fails(r"^data\.name: unknown dataset 'fashion-mnits'; did you mean 'fashion-mnist'", "fashion-mnits")
    fails(r"^data\.path: must be given", "npz")
    fails(r"^data\.path: digits has no such option", "digits", tmp_path)
    fails(r"^data\.path: no such file or folder: ", None, tmp_path / "none.npz")
    fails(
        r"^data\.path: cannot tell what .*notes\.txt is; expected \.npz",
        None,
        write(tmp_path / "notes.txt", "x"),
    )
    path = write_npz(tmp_path / "a.npz", **table())
    fails(r"^data\.grup: npz has no such option; did you mean 'group'", None, path, grup="a")
    fails(r"^data\.test: 1\.5 is not allowed: .*less than 1", None, path, test=1.5)
    with pytest.raises(UserError, match=r"^devices\.data\.name: unknown dataset"):
        load_dataset("x", None, {}, key="devices.data")


def test_path_decides_the_source(tmp_path: Path) -> None:
    for name, kind in (("a.CSV", "csv"), ("a.pq", "parquet"), ("a.csv.gz", "csv"), ("a.npz", "npz")):
        assert kind_of(write(tmp_path / name, "")) == kind
    idx_folder(tmp_path / "numbers")
    assert kind_of(tmp_path / "numbers") == "idx"
    assert kind_of(write_tar(tmp_path / "b.tgz", cifar_files(2))) == "cifar100"
