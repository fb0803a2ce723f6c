"""Killed at any moment and resumed, a run ends as if it had never been stopped."""

import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from system.running import (
    held_back,
    lines,
    resumed,
    run_fork,
    same_end,
    started,
    states_in_files,
    unbroken,
    until,
    without_report,
)

KILLS = 10
SCAFFOLD = """
rounds = {rounds}
[devices]
count = 20
per_round = 8
alpha = 0.5
[model]
name = "mlp"
hidden = [16]
[train]
epochs = 1
batch = 20
lr = 0.05
[method]
name = "scaffold"
[optimise]
name = "fedadam"
[engine]
lost = 0.3
{engine}
[checkpoint]
seconds = 0
every = 3
"""
COHORT = 'cohort = "on"'
WORKERS = 'cohort = "off"\nworkers = 2'
ONE_BY_ONE = 'cohort = "off"\nworkers = 1'


def held_back_in_files(round: int) -> None:
    held_back(round)
    states_in_files()


def experiment(folder: Path, engine: str, rounds: int) -> Path:
    path = folder / "scaffold.toml"
    path.write_text(SCAFFOLD.format(engine=engine, rounds=rounds))
    return path


def kill_and_resume(folder: Path, path: Path, rounds: int, kills: int, hold: Any) -> None:
    """Kill the run `kills` times at random moments, each time a little further on."""
    chance = random.Random(7)
    targets = [0, *sorted(chance.sample(range(1, rounds - 10), kills - 1))]
    for target in targets:
        resume = ["--resume"] if target else []
        with started(folder, "run", path, "--runs", folder / "runs", *resume, prepare=partial(hold, target + 8)) as run:
            until(lambda: lines(folder / "runs") >= target and (folder / "runs").exists(), f"{target} lines")  # noqa: B023
            time.sleep(chance.uniform(0.0, 0.02))
            assert run.kill().code == -signal.SIGKILL
            until(lambda: not run.survivors(), "the end of its workers")
        assert not list((folder / "runs").glob("*/result.json"))


@pytest.mark.parametrize(("engine", "rounds"), [(COHORT, 150), (WORKERS, 60)], ids=["cohort", "two-workers"])
def test_killed_ten_times(engine: str, rounds: int, tmp_path: Path) -> None:
    path = experiment(tmp_path, engine, rounds)
    kill_and_resume(tmp_path, path, rounds, KILLS, held_back)
    same_end(resumed(tmp_path, path), unbroken(tmp_path, path))


def test_killed_with_states_in_files(tmp_path: Path) -> None:
    path = experiment(tmp_path, COHORT, 40)
    kill_and_resume(tmp_path, path, 40, 4, held_back_in_files)
    assert list((tmp_path / "runs").glob("*/devices/*.safetensors"))
    same_end(resumed(tmp_path, path, states_in_files), unbroken(tmp_path, path))


def test_resume_with_another_number_of_workers(tmp_path: Path) -> None:
    """How the work was shared out is no part of the result."""
    path = experiment(tmp_path, WORKERS, 12)
    kill_and_resume(tmp_path, path, 12, 2, held_back)
    end = run_fork(
        tmp_path,
        "run",
        path,
        "--runs",
        tmp_path / "runs",
        "--resume",
        "--json",
        "--quiet",
        "--set",
        "engine.workers=1",
        "--set",
        "checkpoint.every=1",
    )
    same_end(end, unbroken(tmp_path, path))


def dying(operation: int, runs: Path) -> None:
    """Dies right before the so-manieth operation on a file of the run."""
    without_report()
    done = 0

    def look(event: str, facts: tuple[Any, ...]) -> None:
        nonlocal done
        if event not in ("open", "os.rename", "os.remove", "os.truncate", "os.mkdir", "shutil.rmtree"):
            return
        if str(runs) in str(facts[0]):
            done += 1
            if done == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


TINY = """
rounds = 2
[devices]
count = 4
per_round = 2
alpha = 5.0
[model]
hidden = [4]
[train]
epochs = 1
[method]
name = "scaffold"
[engine]
cohort = "on"
[checkpoint]
seconds = 0
every = 1
"""


def test_killed_before_every_operation_on_a_file(tmp_path: Path) -> None:
    """Also between a checkpoint and the log that goes with it, and between the last round and the result."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    expected = unbroken(tmp_path, path)
    operation, died = 0, True
    while died:
        operation += 1
        folder = tmp_path / str(operation)
        folder.mkdir()
        end = run_fork(
            folder,
            "run",
            path,
            "--runs",
            folder / "runs",
            "--quiet",
            prepare=partial(dying, operation, folder / "runs"),
        )
        died = end.code != 0
        if died:
            assert (end.code, end.err) == (-signal.SIGKILL, "")
            same_end(resumed(folder, path), expected)
    assert operation > 20


def test_the_death_of_a_worker_is_told_and_can_be_resumed(tmp_path: Path) -> None:
    path = experiment(tmp_path, WORKERS, 40)
    with started(tmp_path, "run", path, "--runs", tmp_path / "runs", "--quiet", prepare=partial(paced, 0.002)) as run:
        until(lambda: lines(tmp_path / "runs") > 5, "five rounds")
        victim = next(pid for pid in run.survivors() if pid != run.pid)
        os.kill(victim, signal.SIGKILL)
        end = run.wait()
    assert end.code == 1
    assert "a worker process ended" in end.err
    assert "Traceback" not in end.err
    until(lambda: not run.survivors(), "the end of its workers")
    same_end(resumed(tmp_path, path), unbroken(tmp_path, path))


def paced(seconds: float) -> None:
    """A little slower, so that there is time to do it harm."""
    from remanence.runs.folder import RunFolder

    without_report()
    write = RunFolder.add_event

    def add_event(folder: RunFolder, event: dict[str, Any]) -> None:
        write(folder, event)
        time.sleep(seconds)

    RunFolder.add_event = add_event
