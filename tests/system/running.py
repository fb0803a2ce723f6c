"""Run the command: as a program of its own, or quickly in a fresh fork of a process that has imported everything."""

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["remanence.commands", "remanence.report.tables", "sklearn.datasets"])
PATIENCE = 120.0  # seconds; only a hang takes that long

EXPERIMENT = """
rounds = 6
[devices]
count = 8
per_round = 4
alpha = 1.0
[model]
name = "mlp"
hidden = [8]
[train]
epochs = 1
batch = 20
lr = 0.1
"""


@dataclass(frozen=True)
class Ended:
    """What a command left: its exit code and its two streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The last line of standard output."""
        content: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return content


def program(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "remanence.cli", *map(str, arguments)]


def run_program(*arguments: str | Path, folder: Path) -> Ended:
    """The whole way, with the start of the interpreter."""
    done = subprocess.run(
        program(*arguments), cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def without_report() -> None:
    """As if the extra `report` were not installed: drawing takes longer than these runs."""
    sys.modules["altair"] = None


class Fork:
    """The command in a process group of its own, without the seconds that importing takes."""

    def __init__(
        self,
        folder: Path,
        *arguments: str | Path,
        prepare: Callable[[], None] = without_report,
        largest_file: int | None = None,
    ) -> None:
        self.folder = folder
        self.process = FORKS.Process(target=_serve, args=(folder, [str(a) for a in arguments], prepare, largest_file))
        self.process.start()
        self.pid = self.process.pid
        assert self.pid is not None

    def wait(self) -> Ended:
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None, f"it hangs: {self._text('err')}"
        return Ended(self.process.exitcode, self._text("out"), self._text("err"))

    def kill(self) -> Ended:
        """`kill -9` of the command itself, not of its workers."""
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def _text(self, stream: str) -> str:
        path = self.folder / stream
        return path.read_text() if path.exists() else ""

    def survivors(self) -> list[int]:
        """Processes of its group that still run."""
        return group_members(self.pid)


def nothing() -> None:
    """Prepare nothing: everything installed may be used."""


def held_back(round: int) -> None:
    """Never go beyond `round`, however slow whoever wants to kill this process is."""
    from remanence.runs.folder import RunFolder

    without_report()
    write = RunFolder.add_event

    def add_event(folder: RunFolder, event: dict[str, Any]) -> None:
        write(folder, event)
        while event.get("round", 0) >= round:
            signal.pause()

    RunFolder.add_event = add_event


def states_in_files() -> None:
    """As if the devices' states were too large for the memory."""
    from remanence.runs import play
    from remanence.runs.devices import DeviceStates

    without_report()
    play.DeviceStates = partial(DeviceStates, limit=0)


def _serve(folder: Path, arguments: list[str], prepare: Callable[[], None], largest_file: int | None) -> None:
    os.setsid()
    # A shell that starts the tests in the background has Ctrl-C ignored, and that is inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in ((1, "out"), (2, "err")):
        file = os.open(folder / stream, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    prepare()
    from remanence.cli import main

    sys.exit(main(arguments))


def run_fork(folder: Path, *arguments: str | Path, **options: Any) -> Ended:
    return Fork(folder, *arguments, **options).wait()


def group_members(group: int) -> list[int]:
    """From /proc, where dead processes that nobody waits for can be told from living ones."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, owner = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(owner) == group and state != "Z":
            found.append(int(path.parent.name))
    return found


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for something that happens by itself, and no longer."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.001)
    return value


def only_run(runs: Path) -> Path:
    """The newest run folder that has an experiment."""
    return max((p.parent for p in runs.glob("*/experiment.toml")), key=lambda p: p.stat().st_mtime_ns)


def lines(runs: Path) -> int:
    """Lines of the event log of the run in `runs`, as far as they are written."""
    logs = list(runs.glob("*/events.jsonl"))
    return max(map(_lines_in, logs), default=0)


def _lines_in(log: Path) -> int:
    """A run that begins anew removes its log first."""
    try:
        return log.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


@contextmanager
def started(folder: Path, *arguments: str | Path, **options: Any) -> Iterator[Fork]:
    fork = Fork(folder, *arguments, **options)
    try:
        yield fork
    finally:
        if fork.process.is_alive():
            fork.kill()


def good(ended: Ended) -> Ended:
    assert ended.code == 0, ended.err
    return ended


def refused(ended: Ended, *words: str, code: int = 2) -> None:
    """One or two lines that say all the words, and nothing that only a programmer understands."""
    assert ended.code == code, ended
    assert ended.out == ""
    told = ended.err.splitlines()
    assert 1 <= len(told) <= 2, ended.err
    assert told[0].startswith("remanence: ")
    for mark in ("Traceback", "pydantic", "--debug shows where", 'File "'):
        assert mark not in ended.err
    for word in words:
        assert word in ended.err


def same_end(one: Ended, other: Ended) -> None:
    """Same result but for time and memory it took and where it lies; same bytes in the log of events."""
    assert (one.code, one.err, other.code, other.err) == (0, "", 0, "")
    facts = [
        {
            name: value
            for name, value in ended.json.items()
            if name not in ("run", "report", "seconds", "samples_per_second", "peak_memory")
        }
        for ended in (one, other)
    ]
    assert facts[0] == facts[1]
    logs = [(Path(ended.json["run"]) / "events.jsonl").read_bytes() for ended in (one, other)]
    assert logs[0] == logs[1]


def unbroken(folder: Path, path: Path, prepare: Any = without_report) -> Ended:
    return run_fork(folder, "run", path, "--runs", folder / "unbroken", "--json", "--quiet", prepare=prepare)


def resumed(folder: Path, path: Path, prepare: Any = without_report) -> Ended:
    return run_fork(folder, "run", path, "--runs", folder / "runs", "--resume", "--json", "--quiet", prepare=prepare)
