"""Ctrl-C in the middle: one clear line, nothing lost, no process left."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from contract.cases import fleet, make_plan
from remanence.core.state import clone
from remanence.engine import local, pipe
from remanence.engine.memory import one_thread
from remanence.engine.worker import Job
from system.running import (
    EXPERIMENT,
    Ended,
    lines,
    only_run,
    resumed,
    same_end,
    started,
    unbroken,
    until,
    without_report,
)

ENGINES = {"cohort": 'cohort = "on"', "two-workers": 'cohort = "off"\nworkers = 2'}
ROUNDS = 40


def slow() -> None:
    """Rounds that take long enough to be interrupted in any of their parts."""
    from remanence.runs.folder import RunFolder

    without_report()
    write = RunFolder.add_event

    def add_event(folder: RunFolder, event: dict[str, object]) -> None:
        write(folder, event)
        time.sleep(0.005 if event.get("round", 0) != ROUNDS - 2 else 60)

    RunFolder.add_event = add_event


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("group", [False, True], ids=["to-the-command", "to-the-whole-group"])
def test_interrupted_and_resumed(engine: str, group: bool, tmp_path: Path) -> None:
    """A terminal sends the signal to the whole group, `kill -INT` to the command alone."""
    path = tmp_path / "run.toml"
    path.write_text(
        EXPERIMENT.replace("rounds = 6", f"rounds = {ROUNDS}")
        + f"[engine]\n{ENGINES[engine]}\n[checkpoint]\nseconds = 0\nevery = 4\n"
    )
    chance = random.Random(engine)
    for target in (2, 9, 17, 26):
        with started(
            tmp_path,
            "run",
            path,
            "--runs",
            tmp_path / "runs",
            "--quiet",
            *(["--resume"] if target > 2 else []),
            prepare=slow,
        ) as run:
            until(lambda: lines(tmp_path / "runs") >= target, f"{target} lines")  # noqa: B023
            time.sleep(chance.uniform(0, 0.01))
            (os.killpg if group else os.kill)(run.pid, signal.SIGINT)
            stopped_well(run.wait())
            until(lambda: not run.survivors(), "the end of its workers")
        assert not (only_run(tmp_path / "runs") / "result.json").exists()
    same_end(resumed(tmp_path, path), unbroken(tmp_path, path))


def stopped_well(ended: Ended) -> None:
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "remanence: stopped; what was written is kept, go on with --resume\n"


def test_interrupted_before_the_first_round(tmp_path: Path) -> None:
    """While data are read: no folder yet, or one without a round."""
    path = tmp_path / "run.toml"
    path.write_text(EXPERIMENT)
    with started(tmp_path, "run", path, "--runs", tmp_path / "runs", "--quiet", prepare=never_loads) as run:
        until(lambda: (tmp_path / "loading").exists(), "the loading of data")
        os.kill(run.pid, signal.SIGINT)
        stopped_well(run.wait())
    assert not (tmp_path / "runs").exists()


def never_loads() -> None:
    from remanence.data.sources.digits import Digits

    without_report()

    def load(digits: Digits) -> None:
        Path(os.readlink("/proc/self/fd/1")).with_name("loading").touch()
        signal.pause()

    Digits.load = load


def test_interrupted_between_the_parts_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is a text and then tensors; stopped between them, what is left must not be read as a text."""
    plan = make_plan(devices=fleet(), test=None)
    receive = pipe.receive

    def interrupted(connection: object) -> object:
        connection.recv_bytes()
        monkeypatch.setattr(pipe, "receive", receive)
        raise KeyboardInterrupt

    with one_thread():
        engine = local.PoolEngine(plan.task, 2)
        try:
            w = plan.task.network().copy()
            message = plan.task.method.down(w, 0, {}, plan.task.context)
            jobs = [Job(device, clone(message), lambda: None) for device in (0, 3, 4)]
            monkeypatch.setattr(pipe, "receive", interrupted)
            with pytest.raises(KeyboardInterrupt):
                list(engine.run(plan.task.context, jobs))
        finally:
            engine.close()
        assert not any(process.is_alive() for process in engine.processes)
