"""Folders of pictures, one folder per class, through Pillow (the extra `images`)."""

import importlib
import io
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remanence.data.assemble import Raw
from remanence.data.files import first_line
from remanence.errors import UserError, suggestion

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".pgm", ".ppm"}
_TEST_FOLDERS = ("test", "val", "valid", "validation")


@dataclass(frozen=True)
class Form:
    """What every picture is turned into; without a size they must all be equally large."""

    channels: int = 3
    size: int | None = None


def is_picture_folder(folder: Path) -> bool:
    return any(pictures_in(inner) for inner in class_folders(folder) + class_folders(folder / "train"))


def picture_parts(folder: Path, form: Form) -> tuple[tuple[Raw, Raw] | Raw, tuple[str, ...]]:
    """Both parts, or the whole if `folder` has no `train` in it; and the class names, alphabetically."""
    train = folder / "train"
    first = train if train.is_dir() else folder
    names = tuple(inner.name for inner in class_folders(first))
    if not train.is_dir():
        return _part(folder, names, form), names
    test = next((folder / name for name in _TEST_FOLDERS if (folder / name).is_dir()), None)
    if test is None:
        raise UserError(f"{folder}: has a folder 'train' but none of {', '.join(_TEST_FOLDERS)}")
    return (_part(train, names, form), _part(test, names, form)), names


def class_folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(inner for inner in folder.iterdir() if inner.is_dir() and not inner.name.startswith("."))


def stacked(images: Sequence[np.ndarray], names: Sequence[str], where: str) -> np.ndarray:
    """Equal images (height, width[, channels]) as one array with the channels second."""
    parts = [_channels_first(image) for image in images]
    for part, name in zip(parts, names, strict=True):
        if part.shape != parts[0].shape:
            raise _differ(where, (names[0], parts[0]), (name, part))
    return np.stack(parts)


def _channels_first(image: np.ndarray) -> np.ndarray:
    return image[None] if image.ndim == 2 else image.transpose(2, 0, 1)


def _differ(where: str, *two: tuple[str, np.ndarray]) -> UserError:
    sizes = [f"{name} is {image.shape[2]}x{image.shape[1]}" for name, image in two]
    return UserError(f"{where}: pictures differ in size: {', '.join(sizes)}; give data.size")


def _part(folder: Path, names: Sequence[str], form: Form) -> Raw:
    for inner in class_folders(folder):
        if inner.name not in names:
            raise UserError(f"{inner}: not a class of the training part; {suggestion(inner.name, names)}")
    files = [(path, number) for number, name in enumerate(names) for path in pictures_in(folder / name)]
    if not files:
        raise UserError(f"{folder}: no pictures in class folders ({folder.name}/<class>/*.png, .jpg, ...)")
    return decoded(files, form, folder)


def decoded(files: Sequence[tuple[Path, int]], form: Form, folder: Path) -> Raw:
    """Pictures with their class numbers; at least one."""
    pillow = _pillow(folder)
    first = _channels_first(_decoded(pillow, files[0][0], form, str(files[0][0])))
    x = np.empty((len(files), *first.shape), np.uint8)  # filled in place: all pictures are in memory only once

    def put(place: int) -> None:
        path = files[place][0]
        image = _channels_first(_decoded(pillow, path, form, str(path)))
        if image.shape != first.shape:
            raise _differ(str(folder), (files[0][0].name, first), (path.name, image))
        x[place] = image

    with ThreadPoolExecutor() as pool:  # decoding releases the interpreter lock
        for _ in pool.map(put, range(len(files))):
            pass
    return Raw(x, np.array([number for _, number in files], dtype=np.int64), str(folder))


def grey_pictures(cells: Iterable[tuple[int, bytes]], count: int, side: int, where: str) -> np.ndarray:
    """Pictures of one size that lie in the rows of a table, as (row, content)."""
    pillow = _pillow(where)
    x = np.empty((count, 1, side, side), np.uint8)
    for place, (row, content) in enumerate(cells):
        name = f"{where}: the picture in row {row}"
        image = _decoded(pillow, io.BytesIO(content), Form(channels=1), name)
        if image.shape != (side, side):
            raise UserError(f"{name} is {image.shape[1]}x{image.shape[0]}, expected {side}x{side}")
        x[place, 0] = image
    return x


def pictures_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())


def _pillow(folder: Path | str) -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError:
        raise UserError(
            f"{folder}: reading pictures needs the extra 'images': pip install 'remanence[images]'"
        ) from None


def _decoded(pillow: Any, source: Path | io.BytesIO, form: Form, where: str) -> np.ndarray:
    try:
        with pillow.open(source) as image:
            if image.mode.startswith(("I", "F")):
                raise UserError(f"{where}: has more than 8 bits per channel, convert it to 8 bits or use an npz file")
            image = image.convert("RGB" if form.channels == 3 else "L")
            if form.size:
                image = image.resize((form.size, form.size), pillow.Resampling.BILINEAR)
            return np.asarray(image)
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise UserError(f"{where}: broken or not a picture ({first_line(error)})") from None
