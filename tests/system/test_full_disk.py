"""A disk that fills up while a run writes: what is there stays whole, and --resume goes on as if nothing had been."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from system.running import (
    EXPERIMENT,
    nothing,
    only_run,
    refused,
    resumed,
    run_fork,
    same_end,
    states_in_files,
    unbroken,
)

SCAFFOLD = """
[method]
name = "scaffold"
[engine]
cohort = "on"
[checkpoint]
seconds = 0
every = 2
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(EXPERIMENT + SCAFFOLD)
    return path


def whole_lines(run: Path) -> bool:
    """Every log ends with a whole line."""
    for log in run.glob("*.jsonl"):
        content = log.read_bytes()
        assert content == b"" or content.endswith(b"\n"), log
        assert all(isinstance(json.loads(line), dict) for line in content.splitlines())
    return True


def no_leftovers(run: Path) -> bool:
    return not list(run.rglob("*.part"))


# The class mix makes the first event some 900 bytes, a round is some 600, a checkpoint of SCAFFOLD some 20,000.
@pytest.mark.parametrize(
    ("limit", "every", "file"),
    [
        (1200, 9, "events.jsonl"),
        (1500, 9, "events.jsonl"),
        (2400, 9, "events.jsonl"),
        (3000, 2, "checkpoints"),
        (11_000, 2, "checkpoints"),
    ],
)
def test_no_file_may_grow(limit: int, every: int, file: str, tmp_path: Path, path: Path) -> None:
    ended = run_fork(
        tmp_path,
        "run",
        path,
        "--runs",
        tmp_path / "runs",
        "--quiet",
        "--set",
        f"checkpoint.every={every}",
        largest_file=limit,
    )
    refused(ended, file, "oo large", code=1)
    run = only_run(tmp_path / "runs")
    assert whole_lines(run)
    assert no_leftovers(run)
    events = (run / "events.jsonl").read_bytes()
    assert 0 <= limit - len(events) < 1500 or file == "checkpoints"
    end = resumed(tmp_path, path)
    same_end(end, unbroken(tmp_path, path))
    assert (run / "events.jsonl").read_bytes().startswith(events)


def test_no_space_for_the_states_of_devices(tmp_path: Path, path: Path) -> None:
    ended = run_fork(
        tmp_path, "run", path, "--runs", tmp_path / "runs", "--quiet", largest_file=2000, prepare=states_in_files
    )
    refused(ended, "devices", "oo large", code=1)
    assert no_leftovers(only_run(tmp_path / "runs"))
    same_end(resumed(tmp_path, path, states_in_files), unbroken(tmp_path, path))


def test_no_space_for_the_experiment(tmp_path: Path, path: Path) -> None:
    ended = run_fork(tmp_path, "run", path, "--runs", tmp_path / "runs", "--quiet", largest_file=400)
    refused(ended, "--runs", "oo large", code=ended.code)
    assert ended.code in (1, 2)
    assert not list((tmp_path / "runs").glob("*/experiment.toml"))
    same_end(resumed(tmp_path, path), unbroken(tmp_path, path))


def test_no_space_for_the_page(tmp_path: Path, path: Path) -> None:
    """The run itself is whole, and its result is told."""
    pytest.importorskip("altair")
    ended = run_fork(
        tmp_path, "run", path, "--runs", tmp_path / "runs", "--quiet", "--json", largest_file=60_000, prepare=nothing
    )
    assert ended.code == 1
    assert "report.html" in ended.err
    assert "oo large" in ended.err
    assert len(ended.err.splitlines()) <= 2
    assert ended.json["rounds"] == 6
    assert ended.json["report"] is None


def test_no_space_for_what_is_printed(tmp_path: Path, path: Path) -> None:
    """Standard output on a full disk, and one that nobody reads any more."""
    call = [sys.executable, "-m", "remanence.cli", "list", "methods"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "no space left" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(120) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 48 KiB, where the machine lets us make one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except OSError:
        pytest.skip("no mount")
    if done.returncode:
        pytest.skip("not allowed to mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)


def test_a_full_disk(small_disk: Path, tmp_path: Path, path: Path) -> None:
    ended = run_fork(tmp_path, "run", path, "--runs", small_disk, "--quiet")
    refused(ended, str(small_disk), "o space left", code=1)
    run = only_run(small_disk)
    assert whole_lines(run)
    assert no_leftovers(run)
    remount = ["mount", "-o", "remount,size=4m", str(small_disk)]
    assert subprocess.run(remount, capture_output=True, check=False).returncode == 0
    arguments: list[Any] = ["run", path, "--runs", small_disk, "--resume", "--json", "--quiet"]
    same_end(run_fork(tmp_path, *arguments), unbroken(tmp_path, path))
