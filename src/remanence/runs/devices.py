"""What devices keep between rounds: in memory while it is little, otherwise one file per device and round."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remanence.core.state import State, clone, load, save, size

IN_MEMORY = 64 << 20  # bytes of all devices together; beyond, states live in files


class DeviceStates:
    """A state is replaced as a whole, never edited, so files that a checkpoint refers to stay as they were."""

    def __init__(self, folder: Path | None = None, limit: int = IN_MEMORY) -> None:
        self._folder, self._limit = folder, limit
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._memory: dict[int, State] = {}
        self._sizes: dict[int, int] = {}
        self._files: dict[int, str] = {}  # device -> file name
        self._unflushed: set[str] = set()
        self._referred: list[set[str]] = []  # files of the last two checkpoints

    def __iter__(self) -> Iterator[int]:
        yield from sorted({*self._memory, *self._files})

    def __contains__(self, device: int) -> bool:
        return device in self._memory or device in self._files

    def get(self, device: int) -> State | None:
        """A copy for the device to edit: what is kept must not change before the upload is counted."""
        if device in self._files:
            return load(self.folder / self._files[device])  # type: ignore[no-any-return]
        kept = self._memory.get(device)
        return None if kept is None else clone(kept)

    def put(self, device: int, state: State, round: int) -> None:
        self._sizes[device] = size(state)
        self._memory[device] = state
        if self._files or sum(self._sizes.values()) > self._limit:
            for each in list(self._memory):
                self._move_to_file(each, round)

    @property
    def folder(self) -> Path:
        if self._folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="remanence-devices-")
            self._folder = Path(self._temporary.name)
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    @property
    def largest(self) -> int:
        """Bytes of the largest state."""
        return max(self._sizes.values(), default=0)

    def _move_to_file(self, device: int, round: int) -> None:
        name = f"{device:06d}-{round:06d}.safetensors"
        save(self.folder / name, self._memory.pop(device), flush=False)
        old = self._files.get(device)
        self._files[device] = name
        self._unflushed.add(name)
        if old is not None and not any(old in names for names in self._referred):
            self._remove(old)

    def _remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)
        self._unflushed.discard(name)

    def checkpoint(self) -> dict[str, Any]:
        """What a checkpoint must hold; files it refers to are on the disk, and kept for two checkpoints."""
        for name in sorted(self._unflushed):
            with open(self.folder / name, "rb+") as file:
                os.fsync(file.fileno())
        self._unflushed.clear()
        self._referred = [*self._referred[-1:], set(self._files.values())]
        return {"memory": dict(self._memory), "files": dict(self._files), "sizes": dict(self._sizes)}

    def clean(self) -> None:
        """Remove the files that neither of the last two checkpoints refers to, once the newest is on the disk."""
        if self._folder is None or not self._folder.exists():
            return
        wanted = set().union(*self._referred, self._files.values())
        for path in self._folder.iterdir():
            if path.name not in wanted:
                path.unlink(missing_ok=True)

    def restore(self, tree: dict[str, Any]) -> None:
        self._memory, self._files, self._sizes = (
            dict(tree["memory"]),
            dict(tree["files"]),
            dict(tree["sizes"]),
        )
        self._referred = [set(self._files.values())]
