"""Every selector: as many devices as asked for, the same ones again, exact resume, and an account of what was told."""

from typing import Any

import pytest
import torch

from contract.cases import ROUNDS, SERIAL, SIZES, federation, fitting, make_plan, outcome, play
from remanence.core.choosing import report
from remanence.core.plan import Plan
from remanence.core.state import clone
from remanence.registry import parts
from remanence.runs.devices import DeviceStates

STREAMS: list[dict[str, Any]] = [
    {"kind": "static"},
    {"kind": "cycle", "size": 3},
    {"kind": "one-shot", "size": 2},
    {"kind": "one-shot", "size": 2, "rate": [1.0, 2.0]},
    {"kind": "window", "size": 4, "rate": 2.0},
]
SELECTORS = [name for name in parts["select"].names() if name != "uniform"]
each_selector = pytest.mark.parametrize("name", parts["select"].names())
each_stream = pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: "-".join(map(str, stream.values())))


def plan(name: str, **more: Any) -> Plan:
    choice = {"name": name, **fitting([parts["select"].get(name)])}
    if name != "uniform":
        choice |= {"random": 1}
    return make_plan(**{"select": choice, "participation": 3, "rounds": ROUNDS, **more})


@each_selector
@each_stream
def test_it_chooses_among_those_that_have_data(name: str, stream: dict[str, Any]) -> None:
    run = play(plan(name, stream=stream, engine=SERIAL))
    for event in run.events:
        assert len(event["selected"]) <= 3
        assert event["selected"] == sorted(set(event["selected"]))
        assert event["counted"] == event["selected"]
    assert run == play(plan(name, stream=stream, engine=SERIAL))


@each_selector
@each_stream
def test_resume_is_exact(name: str, stream: dict[str, Any]) -> None:
    unbroken = play(plan(name, stream=stream))
    with federation(plan(name, stream=stream), DeviceStates()) as run:
        events = [run.play_round()]
        tree = clone(run.tree())
        run.play_round()
    with federation(plan(name, stream=stream), DeviceStates()) as run:
        run.restore(tree)
        events += list(run.play())
        assert outcome(run, events) == unbroken


@each_selector
def test_everybody_is_taken_when_all_are_asked_for(name: str) -> None:
    run = play(plan(name, participation=len(SIZES)))
    assert all(event["selected"] == list(range(len(SIZES))) for event in run.events)


@pytest.mark.parametrize("name", SELECTORS)
def test_what_devices_tell_is_counted(name: str) -> None:
    """Every device's counts for the fleet's mix, and those of the data it would train on: at first from all."""
    told, silent = (play(plan(each, stream={"kind": "cycle", "size": 3})) for each in (name, "uniform"))
    size = report(torch.zeros(3, dtype=torch.int64).numpy()).size()
    extra = [told.events[t]["bytes_up"] - silent.events[t]["bytes_up"] for t in range(ROUNDS)]
    assert extra == [2 * len(SIZES) * size] + [3 * size] * (ROUNDS - 1)


@pytest.mark.parametrize("name", SELECTORS)
def test_noise_on_what_is_told(name: str) -> None:
    noisy = plan(name, select={"name": name, "epsilon": 0.5, **fitting([parts["select"].get(name)])})
    assert any("with noise" in note for note in noisy.notes())
    assert play(noisy) == play(noisy)


@pytest.mark.parametrize("stream", [stream for stream in STREAMS if stream["kind"] == "one-shot"], ids=str)
def test_a_batch_is_spent_whether_or_not_it_arrives(stream: dict[str, Any]) -> None:
    with federation(plan("uniform", stream=stream, engine={**SERIAL, "lost": 0.5}, rounds=2)) as run:
        asked = [device for event in run.play() for device in event["selected"]]
        assert run.rounds.tree()["used"] == {device: asked.count(device) for device in asked}
