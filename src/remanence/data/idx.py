"""IDX files (the format of MNIST): a short header, then the numbers; plain or gzip-packed."""

import struct
from pathlib import Path

import numpy as np

from remanence.data.assemble import Raw
from remanence.data.files import read_bytes
from remanence.data.layout import arranged
from remanence.errors import UserError

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_FILES = {
    "train": ("*train-images*", "*train-labels*"),
    "test": ("*t10k-images*", "*t10k-labels*", "*test-images*", "*test-labels*"),
}


def read_idx(path: Path) -> np.ndarray:
    data = read_bytes(path, "IDX")
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _TYPES or not data[3]:
        raise UserError(
            f"{path}: broken or not an IDX file (its first four bytes are {data[:4].hex(' ') or 'missing'})"
        )
    kind, start = np.dtype(_TYPES[data[2]]), 4 + 4 * data[3]
    if len(data) < start:
        raise UserError(f"{path}: truncated: the header of {start} bytes ends after {len(data)}")
    shape = struct.unpack(f">{data[3]}I", data[4:start])
    expected = start + kind.itemsize * int(np.prod(shape, dtype=object))
    if len(data) != expected:
        state = "truncated" if len(data) < expected else "too long"
        raise UserError(f"{path}: {state}: {shape} numbers need {expected} bytes, there are {len(data)}")
    return np.frombuffer(data, kind, offset=start).reshape(shape).astype(kind.newbyteorder("="))


def idx_parts(folder: Path) -> tuple[Raw, Raw]:
    """The training and the test part of a folder that holds the four files under their usual names."""
    return _part(folder, "train"), _part(folder, "test")


def is_idx_folder(folder: Path) -> bool:
    return bool(_find(folder, _FILES["train"][0]))


def _part(folder: Path, part: str) -> Raw:
    images, labels = (_only(folder, part, content) for content in ("images", "labels"))
    x = read_idx(images)
    return Raw(
        arranged(x, "grey" if x.ndim == 3 else "auto", str(images)),
        read_idx(labels),
        f"{folder} ({images.name}, {labels.name})",
    )


def _only(folder: Path, part: str, content: str) -> Path:
    patterns = [pattern for pattern in _FILES[part] if content in pattern]
    found = [path for pattern in patterns for path in _find(folder, pattern)]
    if not found:
        raise UserError(f"{folder}: no file {' or '.join(patterns)}[.gz] of the four IDX files")
    stems = {path.name.removesuffix(".gz") for path in found}
    if len(stems) > 1:
        raise UserError(f"{folder}: {len(stems)} files could be the {part} {content}: {', '.join(sorted(stems))}")
    return found[0]


def _find(folder: Path, pattern: str) -> list[Path]:
    """Matching files, plain ones before packed ones."""
    found = [path for path in folder.glob(pattern) if path.is_file() and "idx" in path.name]
    return sorted(found, key=lambda path: (path.suffix == ".gz", path.name))
