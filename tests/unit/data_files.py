"""Small files of every kind for the tests of the sources."""

import gzip
import io
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remanence.core.rng import numpy_generator
from remanence.data.datasets import load_dataset
from remanence.data.samples import Dataset
from remanence.errors import UserError


def fails(words: str, name: str | None, path: Path | str | None = None, **options: Any) -> None:
    """Loading ends in a UserError of at most two lines that matches `words`."""
    with pytest.raises(UserError, match=words) as caught:
        load_dataset(name, None if path is None else str(path), options)
    lines = str(caught.value).splitlines()
    assert 1 <= len(lines) <= 2
    assert all(lines)


def loaded(name: str | None, path: Path | str, **options: Any) -> Dataset:
    return load_dataset(name, str(path), options)


def pictures(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    return numpy_generator(seed, "pictures").integers(0, 256, (count, *shape), dtype=np.uint8)


def idx_bytes(array: np.ndarray) -> bytes:
    kinds = {"u1": 0x08, "i4": 0x0C, "f4": 0x0D}
    kind = kinds[array.dtype.str[1:]]
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, kind, array.ndim]) + shape + array.astype(array.dtype.newbyteorder(">")).tobytes()


def idx_folder(folder: Path, packed: bool = False, side: int = 28) -> dict[str, np.ndarray]:
    folder.mkdir(exist_ok=True)
    content = {
        "train-images-idx3-ubyte": pictures(12, side, side),
        "train-labels-idx1-ubyte": (np.arange(12) % 10).astype(np.uint8),
        "t10k-images-idx3-ubyte": pictures(5, side, side, seed=1),
        "t10k-labels-idx1-ubyte": np.arange(5, dtype=np.uint8),
    }
    for name, array in content.items():
        data = idx_bytes(array)
        target = folder / (name + ".gz" if packed else name)
        target.write_bytes(gzip.compress(data) if packed else data)
    return content


def cifar_files(label_bytes: int = 1) -> dict[str, bytes]:
    names = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
    if label_bytes == 2:
        names = ["train.bin", "test.bin"]
    files = {}
    for offset, name in enumerate(names):
        label = ((np.arange(4) + 4 * offset) % 10).astype(np.uint8)
        columns = [label[:, None] for _ in range(label_bytes)] + [pictures(4, 3072, seed=offset)]
        files[name] = np.concatenate(columns, axis=1).tobytes()
    return files


def write_tar(path: Path, files: dict[str, bytes], folder: str = "batches") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def write_npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def table(count: int = 20) -> dict[str, np.ndarray]:
    return {"x": numpy_generator(0, "table").normal(size=(count, 3)), "y": np.arange(count) % 4}


def write(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
