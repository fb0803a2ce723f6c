"""Reading the user's files: every way they can be missing or broken ends in one line that names the file."""

import difflib
import gzip
import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from remanence.errors import UserError


def existing(path: Path, key: str = "data.path") -> Path:
    """The path with `~` resolved, or a line that proposes the nearest name beside it."""
    with reading(f"{key}: {path}", "readable"):
        path = path.expanduser()
        if path.exists():
            return path
        beside = os.listdir(path.parent) if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, beside, n=1)
    hint = f"; did you mean '{path.parent / near[0]}'?" if near else ""
    raise UserError(f"{key}: no such file or folder: {path}{hint}")


@contextmanager
def reading(path: Path | str, kind: str) -> Iterator[None]:
    """Turn whatever a broken file does to its reader into one line."""
    try:
        yield
    except UserError:
        raise
    except gzip.BadGzipFile as error:
        raise _broken(path, kind, error) from None
    except (OSError, MemoryError) as error:
        raise UserError(f"{path}: cannot be read: {first_line(error)}") from None
    except Exception as error:  # from zlib.error to tokenize.TokenError: a damaged byte can end anywhere
        raise _broken(path, kind, error) from None


def _broken(path: Path | str, kind: str, error: Exception) -> UserError:
    return UserError(f"{path}: broken or not a {kind} file ({first_line(error)})")


def first_line(error: BaseException) -> str:
    """What an error says, short enough to end a line with."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return text if len(text) <= 120 else text[:117] + "..."


def read_bytes(path: Path, kind: str) -> bytes:
    """A file's content; `.gz` is unpacked."""
    with reading(path, f"gzip-packed {kind}" if path.suffix == ".gz" else kind):
        if path.suffix != ".gz":
            return path.read_bytes()
        with gzip.open(path) as stream:
            return stream.read()


def npz_names(path: Path) -> list[str]:
    with _npz(path) as archive:
        return list(archive.files)


def npz_arrays(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The named arrays only; arrays of Python objects would need unpickling and are refused."""
    with _npz(path) as archive:
        for name in names:
            if name not in archive.files:
                raise UserError(f"{path}: has no array '{name}'; it has {', '.join(archive.files) or 'none'}")
        return {name: archive[name] for name in names}


@contextmanager
def _npz(path: Path) -> Iterator["np.lib.npyio.NpzFile"]:
    # Opened here: numpy leaves its own handle open when the archive is broken.
    with reading(path, "npz"), path.open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise UserError(f"{path}: broken or not a npz file (no zip directory in it)")
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as archive:
            yield archive
