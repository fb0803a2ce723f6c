"""Every method with sites: the same bits in any number of processes, exact resume, lost uploads, bytes by link."""

from collections import Counter
from typing import Any

import pytest
import torch

from contract.cases import (
    NETS,
    SERIAL,
    Case,
    federation,
    fitting,
    outcome,
    pieces,
    play,
    samples,
    spoilt,
)
from remanence.core.message import Message
from remanence.core.state import load, save
from remanence.measure.participation import turns
from remanence.registry import methods
from remanence.runs.devices import DeviceStates

MEMBERS = [[0, 3, 5], [1, 2, 4]]
SITES: dict[str, Any] = {
    "topology": {"name": "sites", "iterations": 2},
    "sites": MEMBERS,
    "participation": 2,
    "devices": [samples(size, device) for device, size in enumerate((7, 2, 5, 4, 6, 3))],
}
CASES = [Case(name, {"method": name, "options": fitting(pieces(name)), **SITES}) for name in methods.names()]
STREAM = {"kind": "cycle", "size": 3}
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)


@each_case
def test_it_trains(case: Case) -> None:
    run = play(case.plan())
    assert bool(run.w.isfinite().all())
    for event in run.events:
        assert event["sites"] == [0, 1]
        assert sum(event["turns"]) == 2 * 2 * 2  # sites, iterations, devices
        assert set(event["links"]) == {"device-edge", "edge-cloud"}


@each_case
@pytest.mark.parametrize("net", [None, *NETS])
def test_workers_give_the_bits_of_one_process(case: Case, net: str | None) -> None:
    model = {} if net is None else {"model": NETS[net]()}
    assert play(case.plan(engine={"workers": 2}, **model)) == play(case.plan(engine={"workers": 1}, **model))


@each_case
@pytest.mark.parametrize("limit", [1 << 30, 0], ids=["in-memory", "in-files"])
def test_resume_is_exact(case: Case, limit: int, tmp_path: Any) -> None:
    """A run that dies in the middle of a round's iterations goes on from the round before."""
    plan = case.plan()
    with federation(plan, DeviceStates(tmp_path / "devices", limit)) as run:
        events = [run.play_round()]
        save(tmp_path / "checkpoint", run.tree())
        run.play_round()
    with federation(plan, DeviceStates(tmp_path / "devices", limit)) as run:
        run.restore(load(tmp_path / "checkpoint"))
        events += list(run.play())
        assert outcome(run, events) == play(plan)


@each_case
def test_lost_uploads(case: Case) -> None:
    run = play(case.plan(engine={**SERIAL, "lost": 0.4}))
    assert any(event["refused"] for event in run.events)
    assert bool(run.w.isfinite().all())
    assert run == play(case.plan(engine={"workers": 2, "lost": 0.4}))


@each_case
def test_nothing_arrives(case: Case) -> None:
    """Every site keeps the model that it was given."""
    plan = case.plan(engine={**SERIAL, "lost": 1 - 1e-12})
    run = play(plan)
    assert torch.equal(run.w, plan.task.network().copy()) or case.plan().optimise.name not in ("none", "window")
    assert all(event["counted"] == [] for event in run.events)


@each_case
def test_a_spoilt_upload_is_refused(case: Case) -> None:
    run = play(spoilt(case.plan(), 3))
    assert bool(run.w.isfinite().all())
    assert all(3 not in event["counted"] for event in run.events)


def test_edge_and_cloud_exchange_one_model_a_round() -> None:
    plan = CASES[0].plan(method="fedavg", options={})
    run = play(plan)
    w = plan.task.network().copy()
    for event in run.events:
        assert event["links"]["edge-cloud"] == {"up": 2 * Message(w=w, n=1).size(), "down": 2 * Message(w=w).size()}
        assert event["bytes_up"] == sum(link["up"] for link in event["links"].values())


def test_streams_are_used_up_by_sites() -> None:
    plan = CASES[0].plan(method="fedavg", options={}, stream=STREAM)
    with federation(plan) as run:
        events = list(run.play())
        used: Counter[int] = Counter()
        for edge in run.rounds.tree()["sites"]:
            used.update(edge["used"])
    assert used == Counter(device for event in events for device in turns(event))
