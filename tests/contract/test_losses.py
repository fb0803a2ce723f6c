"""A device whose upload is not counted is as if it had not taken part, for whatever reason."""

import dataclasses
import itertools
from typing import Any

import pytest
import torch

from contract.cases import (
    CASES,
    ROUNDS,
    SERIAL,
    SIZES,
    Case,
    Outcome,
    counted_only,
    federation,
    fleet,
    outcome,
    play,
    same_but_for_refusals,
    spoilt,
    whole,
)
from remanence.core import server as server_module
from remanence.core.plan import Plan
from remanence.core.state import clone, equal

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
NOBODY: list[list[int]] = [[], [], []]


@each_case
def test_half_of_the_uploads_lost(case: Case) -> None:
    run = play(case.plan(engine={**SERIAL, "lost": 0.5}))
    refused = [event["refused"] for event in run.events]
    assert 0 < sum(map(len, refused)) < ROUNDS * len(SIZES)
    assert {reason for round in refused for reason in round.values()} == {"lost on the way"}
    assert any(round != refused[0] for round in refused)
    assert all(len(event["counted"]) + len(event["refused"]) == len(SIZES) for event in run.events)
    assert same_but_for_refusals(run, counted_only(case, run))


@each_case
def test_losses_leave_the_states_of_devices_as_they_were(case: Case) -> None:
    with federation(case.plan(engine={**SERIAL, "lost": 0.5})) as run:
        for _ in range(ROUNDS):
            before = clone(whole(run)["devices"])
            event = run.play_round()
            for device in map(int, event["refused"]):
                assert equal(run.states.get(device), before.get(device))


@each_case
def test_losses_in_the_cohort(case: Case) -> None:
    settings = {"cohort": "auto", "workers": 1, "lost": 0.5}
    run = play(case.plan(engine=settings))
    assert play(case.plan(engine=settings)) == run
    assert bool(run.w.isfinite().all())


@each_case
def test_an_upload_that_is_not_a_number_is_refused_and_counted(case: Case) -> None:
    run = play(spoilt(case.plan(), 3))
    for event in run.events:
        assert event["counted"] == [0, 1, 2, 4, 5]
        assert list(event["refused"]) == ["3"]
        assert event["refused"]["3"].endswith("is not finite")
    assert 3 not in run.tree["devices"]
    assert same_but_for_refusals(run, counted_only(case, run))


@each_case
def test_data_that_overflow_are_refused_with_a_reason(case: Case) -> None:
    devices = fleet()
    devices[4] = (devices[4][0] * 1e38, devices[4][1])
    run = play(case.plan(devices=devices))
    refused = [list(event["refused"]) for event in run.events]
    assert refused[0] == ["4"]
    # Behind its first phase CGAU answers with bounded units, which bear such inputs; nobody else does.
    bounded = hasattr(case.plan().task.method, "pretrain")
    assert all(each == ["4"] or (bounded and not each) for each in refused)
    assert bool(run.w.isfinite().all())
    assert 4 not in run.tree["devices"] or (bounded and [] in refused)


@each_case
def test_uploads_above_the_limit_are_refused(case: Case) -> None:
    run = play(case.plan(engine={**SERIAL, "largest_upload": 100}))
    for event in run.events:
        assert event["counted"] == []
        assert all("engine.largest_upload = 100" in reason for reason in event["refused"].values())


@pytest.mark.parametrize(
    "settings",
    [
        {"participation": NOBODY},
        {"engine": {**SERIAL, "largest_upload": 1}},
        {"engine": {**SERIAL, "deadline": 1e-9}},
        {"engine": {"cohort": "auto", "workers": 1, "deadline": 1e-9}},
    ],
    ids=["nobody-selected", "all-too-large", "all-late", "all-late-in-the-cohort"],
)
@each_case
def test_a_round_in_which_nothing_counts_changes_nothing(case: Case, settings: dict[str, Any]) -> None:
    with federation(case.plan(**settings)) as run:
        before = clone({"w": run.w, "srv": run.srv, "optimise": run.optimiser})
        for round in range(1, ROUNDS + 1):
            event = run.play_round()
            assert event["round"] == run.round == round
            assert event["counted"] == []
            assert equal({"w": run.w, "srv": run.srv, "optimise": run.optimiser}, before)
            assert list(run.states) == []


def test_a_round_without_uploads_in_the_middle_of_a_run() -> None:
    """Also once there is a server state: momentum must not go on by itself."""
    for case in CASES:
        schedule = [[0, 2], [], [1, 3]]
        with federation(case.plan(participation=schedule)) as run:
            run.play_round()
            before = clone(whole(run))
            run.play_round()
            after = clone(whole(run))
            assert equal({**after, "round": 1}, before), case.label


class Clock:
    """Time that passes by one second whenever somebody looks."""

    def __init__(self) -> None:
        self.ticks = itertools.count()

    def monotonic(self) -> float:
        return float(next(self.ticks))


@each_case
def test_the_deadline_refuses_late_uploads(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    run = play_with_deadline(case.plan(engine={**SERIAL, "deadline": 2.5}), monkeypatch)
    for event in run.events:
        assert event["counted"] == [0, 1]
        assert event["refused"] == dict.fromkeys("2345", "late: the deadline had passed")
    assert same_but_for_refusals(run, counted_only(case, run))


def play_with_deadline(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    with monkeypatch.context() as patches, federation(plan) as run:
        events = []
        for _ in range(plan.rounds):
            patches.setattr(server_module.time, "monotonic", Clock().monotonic)
            events.append(run.play_round())
            patches.undo()
        return outcome(run, events)


def test_workers_are_ready_again_after_a_deadline() -> None:
    """No answer of the late round may be left in a pipe."""
    plan = CASES[0].plan(engine={"workers": 2, "cohort": "off", "deadline": 1e-9}, rounds=4)
    with federation(plan) as run:
        assert run.engine_line.startswith(("2 worker", "one by one"))
        for _ in range(3):
            assert run.play_round()["counted"] == []
        server = run.rounds.server
        server.rules = dataclasses.replace(server.rules, deadline=0.0)
        assert run.play_round()["counted"] == list(range(len(SIZES)))
        assert bool(torch.isfinite(run.w).all())
