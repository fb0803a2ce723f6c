"""What an upload must look like is known before the first one: names, types, shapes, and numbers that can be used."""

from collections.abc import Callable
from typing import Any

import pytest

from contract.cases import (
    CASES,
    NETS,
    SERIAL,
    SIZES,
    Case,
    altered,
    counted_only,
    federation,
    mlp,
    play,
    same_but_for_refusals,
)
from remanence.core.message import Message
from remanence.core.state import clone, equal

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
each_engine = pytest.mark.parametrize(
    "engine", [SERIAL, {"workers": 1, "cohort": "on"}, {"workers": 2, "cohort": "off"}], ids=["serial", "cohort", "two"]
)
SCAFFOLD, FEDNOVA, FEDCM = (Case(name, {"method": name}) for name in ("scaffold", "fednova", "fedcm"))
EVERYONE = range(len(SIZES))
NUMBERS = sum(parameter.numel() for parameter in mlp().parameters())


def shortened(upload: Message) -> None:
    upload["delta_c"] = upload["delta_c"][:1]


def doubled(upload: Message) -> None:
    upload["w"] = upload["w"].double()


def counted_in_floats(upload: Message) -> None:
    upload["n"] = float(upload["n"])


HARM: dict[str, tuple[Callable[[Message], object], str]] = {
    "an entry is missing": (
        lambda upload: upload.pop("delta_c"),
        "it holds ['n', 'w'], expected ['delta_c', 'n', 'w']",
    ),
    "an entry too many": (
        lambda upload: upload.update(more=1.0),
        "it holds ['delta_c', 'more', 'n', 'w'], expected ['delta_c', 'n', 'w']",
    ),
    "too short": (shortened, f"'delta_c' is (1,) float32, expected ({NUMBERS},) float32"),
    "too precise": (doubled, f"'w' is ({NUMBERS},) float64, expected ({NUMBERS},) float32"),
    "a number for a tensor": (lambda upload: upload.update(delta_c=1.0), "'delta_c' is a float, expected a Tensor"),
    "half a sample": (counted_in_floats, "'n' is 7.0, not a number of samples"),
}


@each_engine
@pytest.mark.parametrize("harm", HARM)
def test_a_first_upload_of_another_form_is_refused_and_the_others_count(harm: str, engine: dict[str, Any]) -> None:
    """Although it comes before all good ones."""
    change, reason = HARM[harm]
    run = play(altered(SCAFFOLD.plan(engine=engine), [0], change))
    for event in run.events:
        assert event["refused"] == {"0": reason}
        assert event["counted"] == [1, 2, 3, 4, 5]
    assert 0 not in run.tree["devices"]
    assert same_but_for_refusals(run, counted_only(SCAFFOLD, run, engine=engine))


@pytest.mark.parametrize("harm", ["an entry is missing", "an entry too many", "too short", "too precise"])
def test_a_form_is_not_right_because_everyone_sends_it(harm: str) -> None:
    change, reason = HARM[harm]
    with federation(altered(SCAFFOLD.plan(), EVERYONE, change)) as run:
        before = clone({"w": run.w, "srv": run.srv})
        assert run.play_round()["refused"] == {str(device): reason for device in EVERYONE}
        assert equal({"w": run.w, "srv": run.srv}, before)
        assert list(run.states) == []


@pytest.mark.parametrize(
    ("case", "entry", "value", "reason"),
    [
        (FEDNOVA, "a", 0.0, "'a' is 0.0, not a number of steps"),
        (FEDNOVA, "a", -2.0, "'a' is -2.0, not a number of steps"),
        (FEDNOVA, "a", float("nan"), "'a' is not finite"),
        (FEDCM, "steps", 0, "'delta' is not finite"),
        (SCAFFOLD, "n", 0, "'n' is 0, not a number of samples"),
        (SCAFFOLD, "n", -3, "'n' is -3, not a number of samples"),
    ],
    ids=lambda value: value.label if isinstance(value, Case) else str(value),
)
@each_engine
def test_a_number_that_cannot_be_used_is_refused(
    case: Case, entry: str, value: float, reason: str, engine: dict[str, Any]
) -> None:
    run = play(altered(case.plan(engine=engine), [0], lambda upload: upload.update({entry: value})))
    for event in run.events:
        assert event["refused"] == {"0": reason}
        assert event["counted"] == [1, 2, 3, 4, 5]
    assert bool(run.w.isfinite().all())
    assert same_but_for_refusals(run, counted_only(case, run, engine=engine))


@each_case
@pytest.mark.parametrize("net", [mlp, *NETS.values()], ids=["mlp", *NETS])
def test_what_is_expected_is_what_devices_send(case: Case, net: Callable[[], Any]) -> None:
    sent = []
    with federation(altered(case.plan(model=net()), EVERYONE, lambda upload: sent.append(upload))) as run:
        event = run.play_round()
        assert run.rounds.server.expected is not None
        assert set(sent[0]) <= set(run.rounds.server.expected)
        assert set(sent[-1].form()) <= set(run.rounds.server.expected.form())
        assert len(event["counted"]) == len(sent)
