"""What the system says about processes: their memory, and how much else the machine was doing."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROC = Path("/proc")


def process_tree(root: int) -> list[int]:
    """`root` and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.glob("[0-9]*"):
        fields = _status(int(entry.name))
        if fields:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def tree_memory(root: int) -> float | None:
    """Proportional set size of a process tree in MB: a page that n processes share counts 1/n in each."""
    if not (_PROC / "self/smaps_rollup").exists():
        return None
    return sum(_proportional_kilobytes(process) for process in process_tree(root)) / 1024


def _proportional_kilobytes(process: int) -> int:
    try:
        lines = (_PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except OSError:  # it ended meanwhile
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _status(process: int) -> list[str]:
    """The fields of its stat file behind the name, which may hold anything."""
    try:
        return (_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


class PeakMemory:
    """The most memory that a process tree was seen with, in MB; None where the system does not tell."""

    def __init__(self, root: int) -> None:
        self.root, self.megabytes = root, tree_memory(root)

    def look(self) -> None:
        now = tree_memory(self.root)
        if now is not None:
            self.megabytes = max(now, self.megabytes or 0.0)

    @contextmanager
    def watching(self, interval: float = 0.1) -> Iterator[None]:
        """Look again and again; this costs time, so do it outside of timed rounds."""
        stop = threading.Event()
        thread = threading.Thread(target=self._watch, args=(stop, interval), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.look()

    def _watch(self, stop: threading.Event, interval: float) -> None:
        while not stop.wait(interval):
            self.look()


class ForeignWork:
    """How many cores' worth of work other processes did since the start."""

    def __init__(self) -> None:
        self.started, self.busy, self.own = time.perf_counter(), _busy_seconds(), _own_seconds()

    def cores(self) -> float | None:
        if not (_PROC / "stat").exists():
            return None
        foreign = (_busy_seconds() - self.busy) - (_own_seconds() - self.own)
        return max(0.0, foreign) / (time.perf_counter() - self.started)


def _busy_seconds() -> float:
    """User, low-priority and system time of all cores since the machine started."""
    if not (_PROC / "stat").exists():
        return 0.0
    with open(_PROC / "stat") as file:
        return sum(map(int, file.readline().split()[1:4])) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Of this process tree, ended children included."""
    ticks = (fields[11:15] for process in process_tree(os.getpid()) if (fields := _status(process)))
    return sum(int(tick) for four in ticks for tick in four) / os.sysconf("SC_CLK_TCK")
