"""A run that goes on from a checkpoint on disk ends with the bits of one never stopped."""

from pathlib import Path

import pytest

from contract.cases import CASES, NETS, ROUNDS, Case, Outcome, federation, outcome, reference
from remanence.core.plan import Plan
from remanence.core.state import load, save
from remanence.runs.devices import DeviceStates

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
each_stop = pytest.mark.parametrize("stop", range(1, ROUNDS))


def play_with_a_stop(plan: Plan, stop: int, folder: Path, limit: int) -> Outcome:
    with federation(plan, DeviceStates(folder / "devices", limit)) as run:
        events = [run.play_round() for _ in range(stop)]
        save(folder / "checkpoint.safetensors", run.tree())
        run.play_round()  # beyond the checkpoint: what is lost when the process dies
    with federation(plan, DeviceStates(folder / "devices", limit)) as run:
        run.restore(load(folder / "checkpoint.safetensors"))
        events += list(run.play())
        return outcome(run, events)


@each_case
@each_stop
@pytest.mark.parametrize("limit", [1 << 30, 0], ids=["in-memory", "in-files"])
def test_resume_is_exact(case: Case, stop: int, limit: int, tmp_path: Path) -> None:
    assert play_with_a_stop(case.plan(), stop, tmp_path, limit) == reference(case.label)


@each_case
@pytest.mark.parametrize("net", NETS)
def test_resume_is_exact_for_networks_with_buffers_and_draws(case: Case, net: str, tmp_path: Path) -> None:
    plan = case.plan(model=NETS[net]())
    assert play_with_a_stop(plan, 1, tmp_path, 1 << 30) == reference(case.label, net)
