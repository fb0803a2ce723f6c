"""The binary batches of CIFAR-10 and CIFAR-100, from a folder or straight from the `.tar.gz` they come in."""

import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from remanence.data.assemble import Raw
from remanence.data.files import read_bytes, reading
from remanence.errors import UserError

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Batches:
    """How one of the two sets is stored: file names, and which of the leading bytes is the label."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    label_bytes: int
    label: int
    names: str
    archive: str


CIFAR10 = Batches(
    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test=("test_batch.bin",),
    label_bytes=1,
    label=0,
    names="batches.meta.txt",
    archive="cifar-10-binary.tar.gz",
)
CIFAR100 = Batches(("train.bin",), ("test.bin",), 2, 1, "fine_label_names.txt", "cifar-100-binary.tar.gz")
CIFAR100_COARSE = Batches(("train.bin",), ("test.bin",), 2, 0, "coarse_label_names.txt", "cifar-100-binary.tar.gz")


def cifar_parts(path: Path, kind: Batches) -> tuple[Raw, Raw, tuple[str, ...]]:
    """Training part, test part and the class names."""
    path = path.parent if path.suffix == ".bin" else path
    content = _members(path, {*kind.train, *kind.test, kind.names})
    _check_complete(path, kind, content)
    train, test = (_part(path, kind, content, names) for names in (kind.train, kind.test))
    return train, test, _names(content.get(kind.names, b""))


def cifar_kind(path: Path) -> str | None:
    """'cifar10' or 'cifar100' by the names of the files in a folder or archive."""
    names = _members(path, set()).keys()
    if any(name.startswith("data_batch_") for name in names):
        return "cifar10"
    return "cifar100" if {"train.bin", "test.bin", "fine_label_names.txt"} & names else None


def _members(path: Path, wanted: set[str]) -> dict[str, bytes]:
    """The content of the wanted files, nothing for the others; in which folder they lie does not matter."""
    if path.is_dir():
        return {file.name: read_bytes(file, "CIFAR binary") if file.name in wanted else b"" for file in _files(path)}
    content = {}
    with reading(path, "tar"), tarfile.open(path) as archive:
        for member in archive:
            name = Path(member.name).name
            stream = archive.extractfile(member) if name in wanted else None
            content[name] = stream.read() if stream else b""
        _read_to_the_end(archive)
    return content


def _read_to_the_end(archive: tarfile.TarFile) -> None:
    """The checksum of a packed archive comes last, after all members."""
    while archive.fileobj is not None and archive.fileobj.read(1 << 20):
        pass


def _files(folder: Path) -> list[Path]:
    """The files of a folder and of the folders in it, no deeper."""
    return [file for pattern in ("*", "*/*") for file in sorted(folder.glob(pattern)) if file.is_file()]


def _check_complete(path: Path, kind: Batches, content: dict[str, bytes]) -> None:
    missing = [name for name in (*kind.train, *kind.test) if name not in content]
    if missing and ("data_batch_1" in content or {"train", "test"} <= content.keys()):
        raise UserError(f"{path}: this is the Python version, which would need unpickling; get {kind.archive}")
    if missing:
        raise UserError(f"{path}: incomplete: {', '.join(missing)} not found in it (see {kind.archive})")


def _part(path: Path, kind: Batches, content: dict[str, bytes], names: tuple[str, ...]) -> Raw:
    row = kind.label_bytes + _PIXELS
    for name in names:
        if len(content[name]) % row or not content[name]:
            raise UserError(
                f"{path}: {name} is truncated or broken: {len(content[name])} bytes are not whole rows of {row}"
            )
    rows = np.frombuffer(b"".join(content[name] for name in names), np.uint8).reshape(-1, row)
    x = rows[:, kind.label_bytes :].reshape(-1, 3, 32, 32)
    return Raw(x, rows[:, kind.label].astype(np.int64), f"{path} ({', '.join(names)})")


def _names(text: bytes) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.decode("utf-8", "replace").splitlines() if line.strip())
