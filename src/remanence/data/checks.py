"""What must hold of features and labels before anything is trained on them. Rows are counted from 1."""

from collections.abc import Sequence

import numpy as np

from remanence.errors import UserError


def same_length(x: np.ndarray, y: np.ndarray, where: str) -> None:
    if x.ndim < 2 or y.ndim != 1:
        raise UserError(
            f"{where}: wrong shapes: features {x.shape}, labels {y.shape}; one row of features and one label per sample"
        )
    if len(x) != len(y):
        raise UserError(f"{where}: {len(x)} samples but {len(y)} labels")
    if not len(x):
        raise UserError(f"{where}: is empty: no samples")


def features(x: np.ndarray, where: str) -> np.ndarray:
    """uint8 stays, other numbers become float32; NaN and infinite values are counted and refused."""
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind not in "biuf":
        raise UserError(f"{where}: features of type {x.dtype} are not allowed: numbers only")
    with np.errstate(over="ignore"):
        small = x.astype(np.float32, copy=False)
    if np.isfinite(small).all():
        return small
    wrong = ~np.isfinite(small.reshape(len(small), -1))
    row = wrong.any(1).argmax() + 1
    raise UserError(f"{where}: {wrong.sum()} feature values are NaN, infinite or missing, the first in row {row}")


def owners(group: np.ndarray, samples: int, where: str) -> np.ndarray:
    """One group per sample; text becomes numbers where it can, so that machine 10 follows machine 9."""
    if group.shape != (samples,):
        raise UserError(f"{where}: {samples} samples but groups of shape {group.shape}")
    if group.dtype.kind not in "biufUS":
        raise UserError(f"{where}: groups of type {group.dtype} are not allowed: whole numbers or text")
    text = group.dtype.kind in "US"
    group = np.char.strip(group.astype(str)) if text else group
    missing = group == "" if text else ~np.isfinite(group)
    if missing.any():
        raise UserError(f"{where}: {missing.sum()} samples name no group, the first in row {missing.argmax() + 1}")
    try:
        return group.astype(np.int64) if text else group
    except (ValueError, OverflowError):
        return group


def class_numbers(
    parts: Sequence[tuple[np.ndarray, str]], classes: int | None, names: Sequence[str]
) -> tuple[list[np.ndarray], int, tuple[str, ...]]:
    """The labels of all parts as int64 class numbers, how many classes there are, and their names if known.

    Whole numbers are taken as they are; text is numbered in the order of `names`, or alphabetically.
    """
    plain = [y if names else as_numbers(y) for y, _ in parts]
    if any(y.dtype.kind in "US" for y in plain):
        return _from_text([(y.astype(str), where) for y, where in parts], classes, names)
    numbers = [_whole(y, where) for y, (_, where) in zip(plain, parts, strict=True)]
    count = _class_count(numbers, classes, names, parts[0][1])
    for y, (_, where) in zip(numbers, parts, strict=True):
        if y.max() >= count:
            row = int((y >= count).argmax())
            raise UserError(
                f"{where}: label {y[row]} in row {row + 1} is outside the {count} classes (0 to {count - 1})"
            )
    return numbers, count, tuple(names)


def as_numbers(values: np.ndarray) -> np.ndarray:
    """Text that is numbers throughout becomes numbers; anything else is returned as it came."""
    if values.dtype.kind not in "US" or not len(values):
        return values
    try:
        return values.astype(np.float64)
    except ValueError:
        return values


def _whole(y: np.ndarray, where: str) -> np.ndarray:
    if y.dtype.kind not in "biuf":
        raise UserError(f"{where}: labels of type {y.dtype} are not allowed: whole numbers or text")
    with np.errstate(invalid="ignore"):
        wrong = ~np.isfinite(y) | (y != np.floor(y)) | (y < 0) | (y > 2**31)
    if wrong.any():
        row = int(wrong.argmax())
        raise UserError(
            f"{where}: {wrong.sum()} labels are not allowed, the first is {y[row]} in row {row + 1}: "
            "class numbers 0, 1, 2, ..."
        )
    return y.astype(np.int64)


def _class_count(numbers: Sequence[np.ndarray], classes: int | None, names: Sequence[str], where: str) -> int:
    if classes or names:
        return classes or len(names)
    count = int(max(y.max() for y in numbers)) + 1
    samples = sum(len(y) for y in numbers)
    # A serial number or a date taken for a label would otherwise ask for a model of millions of outputs.
    if count > max(samples, 10):
        raise UserError(
            f"{where}: the largest label is {count - 1}, more classes than the {samples} samples; "
            "if that is right, give the number with data.classes"
        )
    return count


def _from_text(
    parts: Sequence[tuple[np.ndarray, str]], classes: int | None, names: Sequence[str]
) -> tuple[list[np.ndarray], int, tuple[str, ...]]:
    known = tuple(names) or tuple(np.unique(np.concatenate([np.char.strip(y) for y, _ in parts])).tolist())
    number = {name: index for index, name in enumerate(known)}
    numbers = [_numbered(y, number, where) for y, where in parts]
    if classes and len(known) > classes:
        raise UserError(f"{parts[0][1]}: {len(known)} different labels, but data.classes is {classes}")
    return numbers, classes or len(known), known


def _numbered(y: np.ndarray, number: dict[str, int], where: str) -> np.ndarray:
    values, place = np.unique(np.char.strip(y), return_inverse=True)
    for index, value in enumerate(values.tolist()):
        if value not in number or not value:
            row = int((place == index).argmax()) + 1
            what = f"label '{value}' is not one of data.class_names" if value else "the label is missing"
            raise UserError(f"{where}: {what}, first in row {row}")
    return np.array([number[value] for value in values.tolist()], dtype=np.int64)[place]
