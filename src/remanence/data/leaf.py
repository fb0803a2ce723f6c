"""LEAF's JSON files: `users`, `num_samples` and `user_data`, in which every user has the lists `x` and `y`.

They are read user by user: a whole file of a hundred writers would take thirty times its pictures' size in memory.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remanence.data.files import reading
from remanence.data.json_text import JsonText, json_text
from remanence.errors import UserError


@dataclass(frozen=True)
class Form:
    """What must hold of every user's samples."""

    pixels: int
    classes: int


@dataclass(frozen=True)
class User:
    name: str
    x: np.ndarray  # a row of grey levels, uint8, per image
    y: np.ndarray


def leaf_files(folder: Path) -> list[Path]:
    """In the order of their names, on every machine."""
    return sorted(path for path in folder.glob("*.json") if path.is_file()) if folder.is_dir() else []


def leaf_sizes(path: Path) -> dict[str, int]:
    """Samples of every user, by name; of a file in LEAF's order only the beginning is read."""
    found: dict[str, list[Any]] = {}
    with json_text(path) as text:
        for key in text.members():
            if key == "user_data":
                for _ in text.members():
                    text.record()
            else:
                value = text.value()
                if key in ("users", "num_samples"):
                    found[key] = _list(value, key, path)
            if len(found) == 2:
                break
    return dict(sorted(_paired(found, path).items()))


def leaf_users(path: Path, sizes: Mapping[str, int], wanted: Mapping[str, int], form: Form) -> Iterator[User]:
    """The wanted users with so many of their first samples each, in the file's order."""
    missing = set(sizes)
    with json_text(path) as text:
        for name, record in _records(text):
            if name in sizes and name not in missing:
                raise UserError(f"{path}: the samples of user '{name}' are there twice")
            missing.discard(name)
            if name in wanted:
                x, y = _checked(_decoded(record, path), sizes[name], form, f"{path}: user '{name}'")
                yield User(name, x[: wanted[name]], y[: wanted[name]])
    if missing:
        raise UserError(f"{path}: {len(missing)} of {len(sizes)} users have no samples, the first is '{min(missing)}'")


def _records(text: JsonText) -> Iterator[tuple[str, str]]:
    for key in text.members():
        if key == "user_data":
            yield from ((name, text.record()) for name in text.members())
        else:
            text.value()


def _list(value: Any, key: str, path: Path) -> list[Any]:
    if not isinstance(value, list):
        raise UserError(f"{path}: '{key}' must be a list, as LEAF writes it")
    return value


def _paired(found: Mapping[str, list[Any]], path: Path) -> dict[str, int]:
    for key in ("users", "num_samples"):
        if key not in found:
            raise UserError(f"{path}: has no '{key}'; LEAF writes users, num_samples and user_data")
    users, numbers = found["users"], found["num_samples"]
    if len(users) != len(numbers):
        raise UserError(f"{path}: {len(users)} users but {len(numbers)} entries in num_samples")
    sizes = {str(user): number for user, number in zip(users, numbers, strict=True)}
    if len(sizes) != len(users):
        raise UserError(f"{path}: a user is listed twice")
    for user, number in sizes.items():
        if type(number) is not int or number < 0:
            raise UserError(f"{path}: num_samples of user '{user}' is {number!r}, which is no number of samples")
    return sizes


def _decoded(record: str, path: Path) -> dict[str, Any]:
    with reading(path, "JSON"):
        decoded: dict[str, Any] = json.loads(record)
    return decoded


def _checked(record: Mapping[str, Any], size: int, form: Form, where: str) -> tuple[np.ndarray, np.ndarray]:
    for key in ("x", "y"):
        if not isinstance(record.get(key), list):
            raise UserError(f"{where}: has no list '{key}'")
        if len(record[key]) != size:
            raise UserError(f"{where}: {len(record[key])} entries in '{key}', but its num_samples is {size}")
    return _pixels(record["x"], form.pixels, where), _labels(record["y"], form.classes, where)


def _pixels(rows: Sequence[Any], length: int, where: str) -> np.ndarray:
    for number, row in enumerate(rows, 1):
        if not isinstance(row, list) or len(row) != length:
            has = f"{len(row)} values" if isinstance(row, list) else "no list of values"
            raise UserError(f"{where}: image {number} has {has}, expected {length}")
    x = _numbers(rows, where).reshape(-1, length) * 255
    with np.errstate(invalid="ignore"):
        wrong = ~((x > -0.25) & (x < 255.25) & (np.abs(x - np.rint(x)) < 0.25)).all(1)
    if wrong.any():
        raise UserError(f"{where}: image {wrong.argmax() + 1} has values that are no grey levels k/255 from 0 to 1")
    grey: np.ndarray = np.rint(x).astype(np.uint8)
    return grey


def _labels(values: Sequence[Any], classes: int, where: str) -> np.ndarray:
    y = _numbers(values, where)
    with np.errstate(invalid="ignore"):
        wrong = ~((y >= 0) & (y < classes) & (y == np.floor(y)))
    if wrong.any():
        row = int(wrong.argmax())
        raise UserError(f"{where}: label {values[row]} of image {row + 1} is not allowed: 0 to {classes - 1}")
    return y.astype(np.int64)


def _numbers(values: Sequence[Any], where: str) -> np.ndarray:
    """Numbers only: numpy would take text that looks like one."""
    try:
        found = np.array(values)
    except (ValueError, OverflowError):  # lists of different lengths, numbers without end
        found = np.array([""])
    if found.dtype.kind not in "iuf" and found.size:
        raise UserError(f"{where}: not all of its values are numbers")
    return found.astype(np.float64)
