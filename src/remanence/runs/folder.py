"""The run folder: what a run writes, so that it is complete without the process that made it."""

import json
import os
import shutil
import tomllib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

from remanence.core import state
from remanence.core.state import State
from remanence.errors import RunError, UserError

KEPT = 2  # checkpoints
_PRESENT = {"round": {"round"}, "timing": {"round", "seconds", "samples"}}  # in every entry of a log


class RunFolder:
    """experiment.toml, events.jsonl, timing.jsonl, checkpoints/, devices/, evidence.json, result.json, report.html.

    Events hold only what the same experiment gives again, so that the logs of two runs can be compared byte for
    byte; times are in timing.jsonl.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events, self.timing = path / "events.jsonl", path / "timing.jsonl"
        self.checkpoints, self.devices = path / "checkpoints", path / "devices"
        self._sums: dict[str, int] = {}  # checksums of the logs

    @classmethod
    def create(cls, path: Path, tree: dict[str, Any]) -> "RunFolder":
        folder = cls(path)
        try:
            # A run killed before it had an experiment.toml left a folder with nothing in it.
            folder.checkpoints.mkdir(parents=True, exist_ok=not (path / "experiment.toml").exists())
            _write(path / "experiment.toml", tomli_w.dumps(tree))
        except OSError as error:
            raise UserError(f"--runs: {path} cannot be made ({error.strerror})") from None
        return folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Two processes in one folder would spoil its logs; the lock ends with the process, however that ends."""
        with open(self.path / "lock", "w") as file:
            try:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"{self.path}: another process is running this experiment there") from None
            yield

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists()

    def config(self) -> dict[str, Any]:
        try:
            return tomllib.loads((self.path / "experiment.toml").read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path / 'experiment.toml'}: cannot be read ({error})") from None

    def add_event(self, event: dict[str, Any]) -> None:
        self._append(self.events, event)

    def add_timing(self, entry: dict[str, Any]) -> None:
        self._append(self.timing, entry)

    def _append(self, path: Path, entry: dict[str, Any]) -> None:
        line = (json.dumps(entry, separators=(",", ":")) + "\n").encode()
        try:
            # Without a buffer, which would write the rest of a half line when it is closed.
            with open(path, "ab", buffering=0) as file:
                length, rest = file.tell(), memoryview(line)
                try:
                    while rest:
                        rest = rest[file.write(rest) :]
                except OSError:
                    os.truncate(path, length)  # half a line would spoil the log
                    raise
        except OSError as error:
            raise RunError(
                f"{path}: could not be written: {str(error.strerror).lower()}. Nothing before is lost: "
                "free some space and go on with --resume"
            ) from None
        self._sums[path.name] = zlib.crc32(line, self._sums.get(path.name, 0))

    def save_checkpoint(self, round: int, tree: State) -> None:
        """The state after `round`, with the length and the checksum of the logs up to it."""
        logs = {}
        for path in (self.events, self.timing):
            logs[path.name] = [path.stat().st_size, self._sums[path.name]]
            _flush(path)
        state.save(self.checkpoints / f"round-{round:08d}.safetensors", {"logs": logs, **tree})
        for old in self._checkpoint_files()[:-KEPT]:
            old.unlink(missing_ok=True)

    def load_checkpoint(self) -> State | None:
        """The newest checkpoint; None if there is none yet."""
        files = self._checkpoint_files()
        if not files:
            return None
        try:
            tree: State = state.load(files[-1])
        except UserError as error:
            older = f"; remove it to go on from {files[-2].stem}" if len(files) > 1 else ""
            raise UserError(f"{error}{older}") from None
        wanted = {"logs", "experiment", "round", "w", "srv", "optimise", "devices"}
        if not isinstance(tree, dict) or not wanted <= set(tree):
            raise UserError(f"{files[-1]}: not a checkpoint of a run")
        return tree

    def cut_logs(self, logs: dict[str, list[int]]) -> None:
        """Back to what they were when the checkpoint was made; first looked at, so that a wrong one costs nothing."""
        for name, (length, checksum) in logs.items():
            path = self.path / name
            content = path.read_bytes()[:length] if path.exists() else b""
            if len(content) < length or zlib.crc32(content) != checksum:
                raise UserError(f"{path}: not what it was when the checkpoint was made; it was cut, edited or replaced")
        for name, (length, checksum) in logs.items():
            os.truncate(self.path / name, length)
            self._sums[name] = checksum

    def restart(self) -> None:
        """Forget what was logged before the first checkpoint."""
        for path in (self.events, self.timing):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.devices, ignore_errors=True)

    def _checkpoint_files(self) -> list[Path]:
        return sorted(self.checkpoints.glob("round-*.safetensors"))

    def read_events(self) -> list[dict[str, Any]]:
        return _read_lines(self.events)

    def read_timing(self) -> list[dict[str, Any]]:
        return _read_lines(self.timing)

    def read_json(self, name: str) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.path / name).read_text())
            return content
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path / name}: cannot be read ({error})") from None

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        try:
            _write(self.path / name, json.dumps(content, indent=1) + "\n")
        except OSError as error:
            raise RunError(f"{self.path / name}: could not be written: {str(error.strerror).lower()}") from None


def _read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        entries = [json.loads(line) for line in path.read_text().splitlines()]
    except (ValueError, RecursionError):
        raise UserError(f"{path}: damaged: not every line is JSON") from None
    for entry in entries:
        kind = entry.get("event", "timing") if isinstance(entry, dict) else None
        if not isinstance(kind, str) or not _PRESENT.get(kind, set()) <= set(entry):
            raise UserError(f"{path}: damaged: not every line is an entry of such a log")
    return entries


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(text)
        _flush(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    if path.exists():
        with open(path, "rb+") as file:
            os.fsync(file.fileno())


def find(parent: Path, name: str, digest: str) -> list[RunFolder]:
    """Folders of this experiment, oldest first."""
    numbered = []
    for path in parent.glob(f"{name}-{digest}*"):
        rest = path.name.removeprefix(f"{name}-{digest}")
        if rest == "" or (rest.startswith("-") and rest[1:].isdigit()):
            numbered.append((int(rest[1:] or 1), path))
    return [RunFolder(path) for _, path in sorted(numbered) if (path / "experiment.toml").exists()]


def fresh(parent: Path, name: str, digest: str) -> Path:
    """A path for one more run of this experiment."""
    number = 1
    while (path := parent / (f"{name}-{digest}" + (f"-{number}" if number > 1 else ""))).exists():
        number += 1
    return path
