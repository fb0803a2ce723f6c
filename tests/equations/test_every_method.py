"""What holds for every method: objects without memory, rounds without survivors, lost and refused uploads."""

from typing import Any

import pytest
from worlds import SIZES, classification, planned, played, played_in_pieces, same_bits, shuffled_batches, softmax_model

from remanence.core.federation import Federation
from remanence.core.plan import Plan
from remanence.core.state import clone, equal
from remanence.engine.memory import one_thread

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedprox": {"mu": 0.3},
    "scaffold": {"eta_g": 0.5},
    "fednova": {},
    "fedavgm": {},
    "fedadagrad": {},
    "fedadam": {},
    "fedyogi": {},
}
TABLE = [[0, 1, 2, 3], [1, 3], [0, 2, 3], [1, 2]]


@pytest.fixture(params=METHODS)
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def plan_of(name: str, **settings: Any) -> Plan:
    chosen: dict[str, Any] = {"rounds": 4, "participation": TABLE} | settings
    return planned(
        name, METHODS[name], model=softmax_model(), devices=classification(), lr=0.05, epochs=2,
        batches=shuffled_batches(SIZES, 3), **chosen,
    )  # fmt: skip


def test_a_method_object_made_anew_before_every_round_changes_nothing(name: str, engine: dict[str, Any]) -> None:
    plan = plan_of(name, engine=engine)
    assert equal(played(plan).tree(), played_in_pieces(plan).tree())


def test_a_round_without_survivors_changes_nothing(name: str, engine: dict[str, Any]) -> None:
    plan = plan_of(name, rounds=2, participation=[[0, 1, 2], []], engine=engine)
    with one_thread(), Federation(plan) as federation:
        federation.play_round()
        before = clone(federation.tree())
        event = federation.play_round()
        after = federation.tree()
    assert event["counted"] == []
    assert after.pop("round") == before.pop("round") + 1
    assert equal(before, after)


def test_a_round_leaves_the_tree_before_it_as_it_was(name: str, engine: dict[str, Any]) -> None:
    """Whoever still holds last round's model or server state must not see it change."""
    with one_thread(), Federation(plan_of(name, engine=engine)) as federation:
        for _ in range(4):
            old, srv = federation.w, dict(federation.srv)
            copies = clone([old, srv])
            federation.play_round()
            assert equal([old, srv], copies)
            assert not same_bits(old, federation.w)


@pytest.mark.parametrize("lost", [0.3, 0.7])
def test_a_lost_upload_is_as_if_the_device_had_not_taken_part(name: str, lost: float, engine: dict[str, Any]) -> None:
    lossy = plan_of(name, rounds=6, participation=[range(4)] * 6, engine=engine | {"lost": lost}, seed=1)
    with one_thread(), Federation(lossy) as federation:
        history = list(federation.play())
    counted = [event["counted"] for event in history]
    assert 0 < sum(map(len, counted)) < 24
    assert all(set(event["refused"].values()) <= {"lost on the way"} for event in history)
    told = played(plan_of(name, rounds=6, participation=counted, engine=engine, seed=1))
    assert equal(federation.tree(), told.tree())
