"""Public datasets by name, through the `datasets` package (the extra `hub`)."""

import importlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from remanence.data.assemble import Raw
from remanence.data.files import first_line
from remanence.data.pictures import stacked
from remanence.data.text import Texts, joined
from remanence.errors import UserError, suggestion


@dataclass(frozen=True)
class HubName:
    """A dataset of the hub, and which of its splits and columns are used."""

    dataset: str
    config: str | None = None
    train: str = "train"
    test: str = "test"
    label: str | None = None
    group: str | None = None


def hub_parts(wanted: HubName) -> tuple[Raw, Raw, tuple[str, ...]]:
    """Training part, test part and the class names."""
    package = _package(wanted.dataset)
    train, test = (_fetch(package, wanted, split) for split in (wanted.train, wanted.test))
    label = _label(train.features, wanted)
    names = tuple(getattr(train.features[label], "names", None) or ())
    raws = [_part(table, label, wanted, split) for table, split in ((train, wanted.train), (test, wanted.test))]
    return raws[0], raws[1], names


def hub_owned(wanted: HubName, choose: Callable[[np.ndarray], np.ndarray]) -> tuple[Raw, tuple[str, ...]]:
    """The rows of the training split that `choose` picks by owner, and the class names; no others are decoded."""
    table = _fetch(_package(wanted.dataset), wanted, wanted.train)
    label = _label(table.features, wanted)
    _check_group(table, wanted, f"{wanted.dataset} ({wanted.train})")
    names = tuple(getattr(table.features[label], "names", None) or ())
    rows = choose(np.asarray(table[wanted.group]))
    return _part(table.select(rows), label, wanted, wanted.train), names


def hub_texts(wanted: HubName, columns: Sequence[str]) -> Texts:
    """The texts of the training split; the columns are joined."""
    table = _fetch(_package(wanted.dataset), wanted, wanted.train)
    label, where = _label(table.features, wanted), f"{wanted.dataset} ({wanted.train})"
    for name in columns:
        if name not in table.features:
            raise UserError(f"{where}: has no column '{name}'; {suggestion(name, table.features)}")
    return Texts(joined([table[name] for name in columns]), np.asarray(table[label]).astype(str), where)


def _package(dataset: str) -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError:
        raise UserError(
            f"data.dataset: '{dataset}' is fetched with the extra 'hub': pip install 'remanence[hub]'"
        ) from None


def _fetch(package: Any, wanted: HubName, split: str) -> Any:
    try:
        with _quiet():
            return package.load_dataset(wanted.dataset, wanted.config, split=split)
    except Exception as error:  # its network, cache and parsing layers raise dozens of kinds
        raise UserError(
            f"data.dataset: tried the hub and its local cache for '{wanted.dataset}' (split '{split}'), "
            f"failed: {first_line(error)}\nWithout a network, give data.path instead: npz, csv, parquet or "
            "a folder of pictures"
        ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without a network every retry would log two lines."""
    logger = logging.getLogger("huggingface_hub")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _label(features: Any, wanted: HubName) -> str:
    names: list[str] = list(features)
    if wanted.label is None:
        found = [name for name in names if type(features[name]).__name__ == "ClassLabel" or name == "label"]
        if not found:
            raise UserError(f"data.label: which column of '{wanted.dataset}' is the label? It has {', '.join(names)}")
        return found[0]
    if wanted.label not in names:
        raise UserError(
            f"data.label: '{wanted.dataset}' has no column '{wanted.label}'; {suggestion(wanted.label, names)}"
        )
    return wanted.label


def _part(table: Any, label: str, wanted: HubName, split: str) -> Raw:
    where = f"{wanted.dataset} ({split})"
    _check_group(table, wanted, where)
    images = [name for name, kind in table.features.items() if type(kind).__name__ == "Image"]
    x = _images(table[images[0]], where) if images else _numbers(table, (label, wanted.group), where)
    group = None if wanted.group is None else np.asarray(table[wanted.group])
    return Raw(x, np.asarray(table[label]), where, group)


def _check_group(table: Any, wanted: HubName, where: str) -> None:
    if wanted.group is not None and wanted.group not in table.features:
        raise UserError(
            f"data.group: {where} has no column '{wanted.group}'; {suggestion(wanted.group, table.features)}"
        )


def _images(column: Any, where: str) -> np.ndarray:
    """Grey if every picture is grey, otherwise three channels."""
    pictures = list(column)
    mode = "L" if all(picture.mode in ("1", "L") for picture in pictures) else "RGB"
    arrays = [np.asarray(picture.convert(mode)) for picture in pictures]
    return stacked(arrays, [f"picture {number}" for number in range(1, len(arrays) + 1)], where)


def _numbers(table: Any, others: tuple[str | None, ...], where: str) -> np.ndarray:
    names = [name for name in table.features if name not in others]
    columns = [np.asarray(table[name]) for name in names]
    for name, column in zip(names, columns, strict=True):
        if column.dtype.kind not in "biuf":
            raise UserError(f"{where}: column '{name}' is neither a picture nor numbers")
    if not columns:
        raise UserError(f"{where}: no feature columns")
    return np.stack(columns, axis=1)
