"""From what the experiment file says under `[data]` to a loaded dataset."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remanence.data.cifar import cifar_kind
from remanence.data.files import existing
from remanence.data.idx import is_idx_folder
from remanence.data.pictures import is_picture_folder
from remanence.data.samples import Dataset
from remanence.data.tiny_imagenet import is_tiny_imagenet
from remanence.errors import UserError
from remanence.registry import build, datasets

DEFAULT = "digits"

_ENDINGS = {
    ".npz": "npz",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def load_dataset(name: str | None, path: str | None, options: Mapping[str, Any], key: str = "data") -> Dataset:
    """The dataset called `name`, or what lies at `path`; `options` are the other keys under `key`."""
    if name is None:
        name = DEFAULT if path is None else kind_of(Path(path), f"{key}.path")
    values = dict(options) if path is None else {**options, "path": path}
    dataset: Dataset = build(datasets.get(name, f"{key}.name"), values, key).load()
    return dataset


def kind_of(path: Path, key: str = "data.path") -> str:
    """Which source reads this file or folder, by its ending or by what is in it."""
    path = existing(path, key)
    kind = _kind_of_folder(path) if path.is_dir() else _kind_of_file(path)
    if kind is None:
        expected = (
            "four IDX files, CIFAR's binary batches, or pictures in one folder per class"
            if path.is_dir()
            else f"{', '.join(_ENDINGS)}, or CIFAR's .tar.gz or .bin"
        )
        raise UserError(f"{key}: cannot tell what {path} is; expected {expected}. Or say it with data.name")
    return kind


def _kind_of_folder(folder: Path) -> str | None:
    if is_idx_folder(folder):
        return "idx"
    if is_tiny_imagenet(folder):
        return "tiny-imagenet"
    return cifar_kind(folder) or ("images" if is_picture_folder(folder) else None)


def _kind_of_file(path: Path) -> str | None:
    name = path.name.lower()
    for ending, kind in _ENDINGS.items():
        if name.endswith(ending):
            return kind
    if name.endswith((".tar.gz", ".tgz", ".tar")):
        return cifar_kind(path)
    return cifar_kind(path.parent) if name.endswith(".bin") else None
