"""Tiny-ImageNet: the original folder, an NPZ file, and everything that can be missing in them."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import fails, loaded, pictures, write, write_npz

from remanence.data.datasets import kind_of, load_dataset

IDS = [f"n{number:08d}" for number in range(200)]


@pytest.fixture(autouse=True)
def no_data_of_this_machine(tmp_path_factory, monkeypatch) -> None:
    monkeypatch.setenv("REMANENCE_DATA", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setitem(sys.modules, "datasets", None)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One training picture of each class, class 7's in grey, and three for validation; made once."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("original") / "tiny-imagenet-200"
    for number, name in enumerate(IDS):
        own = folder / "train" / name / "images"
        own.mkdir(parents=True)
        (own.parent / f"{name}_boxes.txt").write_text(f"{name}_0.JPEG\t0\t10\t63\t58\n")
        picture = image.new("RGB", (64, 64), (number, 0, 255)) if number != 7 else image.new("L", (64, 64), 77)
        picture.save(own / f"{name}_0.JPEG", quality=95)
    (folder / "val" / "images").mkdir(parents=True)
    rows = [("val_0.JPEG", IDS[199]), ("val_1.JPEG", IDS[3]), ("val_2.JPEG", IDS[3])]
    for file, name in rows:
        image.new("RGB", (64, 64), (int(name[1:]), 0, 255)).save(folder / "val" / "images" / file)
    lines = "".join(f"{file}\t{name}\t0\t32\t44\t62\n" for file, name in rows)
    (folder / "val" / "val_annotations.txt").write_text(lines)
    (folder / "test" / "images").mkdir(parents=True)
    (folder / "words.txt").write_text(f"n99999999\tentity\n{IDS[0]}\tgoldfish, Carassius auratus\n")
    return folder


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    """To be damaged."""
    return shutil.copytree(original, tmp_path / "tiny", copy_function=shutil.copyfile)


def test_the_original_folder(original: Path) -> None:
    data = loaded("tiny-imagenet", original)
    assert (data.name, data.classes, data.shape, data.origin) == ("tiny-imagenet", 200, (3, 64, 64), str(original))
    assert (data.mean, data.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert data.train.y.tolist() == list(range(200))
    assert data.test.y.tolist() == [199, 3, 3]
    assert data.labels[:2] == ("goldfish", IDS[1])
    assert data.train.x.dtype == torch.uint8
    red = data.train.x[:, 0, 30, 30].int()
    assert (red - torch.arange(200)).abs()[torch.arange(200) != 7].max() <= 3  # as far as JPEG keeps colours
    assert torch.equal(data.train.x[7, 0], data.train.x[7, 2])
    assert int(data.train.x[7, 0, 5, 5]) == 77
    assert (data.test.x[:, 0, 0, 0].int() - torch.tensor([199, 3, 3])).abs().max() <= 3


def test_it_is_recognised_and_found_in_a_folder_above(original: Path) -> None:
    assert kind_of(original) == "tiny-imagenet"
    assert len(loaded(None, original).test) == 3
    assert len(loaded("tiny-imagenet", original.parent).train) == 200


def test_npz(tmp_path: Path) -> None:
    arrays = {
        "x_train": pictures(6, 64, 64, 3),
        "y_train": np.arange(6) * 30,
        "x_test": pictures(2, 64, 64, 3, seed=1),
        "y_test": np.array([199, 0]),
    }
    data = loaded("tiny-imagenet", write_npz(tmp_path / "t.npz", **arrays))
    assert (data.classes, data.shape) == (200, (3, 64, 64))
    assert np.array_equal(data.train.x.permute(0, 2, 3, 1).numpy(), arrays["x_train"])
    small = arrays | {"x_train": pictures(6, 32, 32, 3)}
    fails(
        r"tiny-imagenet has images \(3, 64, 64\) uint8, these are \(3, 32, 32\)",
        "tiny-imagenet",
        write_npz(tmp_path / "s.npz", **small),
    )
    fails(
        r"label 200 in row 1 is outside the 200 classes",
        "tiny-imagenet",
        write_npz(tmp_path / "u.npz", **arrays | {"y_test": np.array([200, 0])}),
    )
    fails(
        "needs the arrays x_train, y_train", "tiny-imagenet", write_npz(tmp_path / "v.npz", jpeg_train=arrays["y_test"])
    )


def test_not_found_and_no_folder(tmp_path: Path) -> None:
    fails(
        r"^data\.name: 'tiny-imagenet' not found\. Looked for .*tiny-imagenet\.npz.*remanence\[hub\].*\n"
        r"Give data\.path: the unpacked folder tiny-imagenet-200 .*or an npz file",
        "tiny-imagenet",
    )
    fails(
        r"^data\.path: .*tiny-imagenet-200\.zip is not a folder; give the unpacked folder",
        "tiny-imagenet",
        write(tmp_path / "tiny-imagenet-200.zip", b"PK"),
    )
    fails(r"incomplete: 0 class folders in train, expected 200", "tiny-imagenet", tmp_path)


def test_what_is_missing_in_the_training_part(copy: Path) -> None:
    (copy / "train" / IDS[5] / "images" / f"{IDS[5]}_0.JPEG").unlink()
    fails(rf"{IDS[5]}: incomplete: 0 pictures, other classes have 1$", "tiny-imagenet", copy)
    shutil.rmtree(copy / "train" / IDS[5])
    fails(r"incomplete: 199 class folders in train, expected 200 as in the unpacked", "tiny-imagenet", copy)


def test_what_is_missing_in_the_validation_part(copy: Path) -> None:
    annotations, images = copy / "val" / "val_annotations.txt", copy / "val" / "images"
    whole = annotations.read_text()
    annotations.write_text(whole.replace(IDS[199], "n00000198x"))
    fails(r"val_annotations\.txt: 'n00000198x' in row 1 is no class of train; did you mean 'n", "tiny-imagenet", copy)
    annotations.write_text("val_0.JPEG\n")
    fails(r"'' in row 1 is no class of train; a row is the file's name, a tab, the class", "tiny-imagenet", copy)
    annotations.write_bytes(b"\xff\xfe" * 9)
    fails(r"val_annotations\.txt: broken or not a text file", "tiny-imagenet", copy)
    annotations.write_text("")
    fails(r"val: incomplete", "tiny-imagenet", copy)
    annotations.write_text(whole[: whole.index("val_2")])
    fails(r"incomplete: 1 pictures have no row, the first is val_2\.JPEG", "tiny-imagenet", copy)
    annotations.write_text(whole)
    (images / "val_1.JPEG").unlink()
    fails(r"val: incomplete: 1 pictures of val_annotations\.txt are missing, the first is val_1", "tiny-imagenet", copy)
    annotations.unlink()
    fails(r"val_annotations\.txt: not found; expected the unpacked folder", "tiny-imagenet", copy)


def test_broken_pictures(copy: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    picture = copy / "train" / IDS[9] / "images" / f"{IDS[9]}_0.JPEG"
    picture.write_bytes(picture.read_bytes()[:200])
    fails(rf"{IDS[9]}_0\.JPEG: broken or not a picture", "tiny-imagenet", copy)
    image.new("RGB", (32, 64)).save(picture)
    fails(rf"pictures differ in size: {IDS[0]}_0\.JPEG is 64x64, {IDS[9]}_0\.JPEG is 32x64", "tiny-imagenet", copy)


def test_pictures_need_their_extra(original: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    fails(r"needs the extra 'images'", "tiny-imagenet", original)


def test_the_users_cache(original: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "tiny-imagenet").symlink_to(original)
    monkeypatch.setenv("REMANENCE_DATA", str(tmp_path))
    assert len(load_dataset("tiny-imagenet", None, {}).train) == 200
