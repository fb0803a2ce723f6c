"""Rounds to a target: section 5 of the metrics card."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from remanence.measure.target import rounds_to, rounds_to_mean, series
from remanence.reproduce.page import Evidence
from remanence.reproduce.suite import PaperTable
from remanence.runs.record import RunRecord

NOISY = (0.1, 0.3, 0.2, 0.5, 0.3, 0.4, 0.4, 0.5, 0.4, 0.6)


def from_one(values: Sequence[float]) -> range:
    return range(1, len(values) + 1)


@pytest.mark.parametrize(
    ("target", "expected"), [(0.1, 1), (0.15, 2), (0.3, 2), (0.31, 4), (0.5, 4), (0.6, 10), (0.61, None)]
)
def test_the_first_round_that_reaches(target: float, expected: int | None) -> None:
    """Reaching is enough, and falling back later changes nothing."""
    assert rounds_to(target, from_one(NOISY), NOISY) == expected


@pytest.mark.parametrize(
    ("target", "expected"), [(0.0, 5), (0.27, 5), (0.33, 6), (0.359, 7), (0.41, 8), (0.45, 10), (0.5, None)]
)
def test_the_first_moving_mean_that_reaches(target: float, expected: int | None) -> None:
    """Means 0.28, 0.34, 0.36, 0.42, 0.40, 0.46 of rounds 5 to 10."""
    assert rounds_to_mean(target, from_one(NOISY), NOISY) == expected


@pytest.mark.parametrize("rule", [rounds_to, rounds_to_mean])
def test_never(rule: Any) -> None:
    assert rule(0.5, [], []) is None
    assert rule(0.5, [1, 2, 3, 4], [0.4] * 4) is None


def test_the_mean_needs_five_values() -> None:
    assert rounds_to_mean(0.5, from_one([0.9] * 4), [0.9] * 4) is None
    assert rounds_to_mean(0.5, from_one([0.9] * 5), [0.9] * 5) == 5


def test_compared_at_full_precision() -> None:
    """Four decimals, as the public library keeps, would call both of them reached in round 1."""
    values = [0.54321, 0.54324, 0.54325]
    assert rounds_to(0.54324, from_one(values), values) == 2
    assert rounds_to(0.5432401, from_one(values), values) == 3


@pytest.mark.parametrize("samples", [100, 450, 10_000])
def test_a_flat_curve_reaches_its_own_value(samples: int) -> None:
    """Whatever the value: the rounding of a sum must not hide it."""
    for correct in range(samples + 1):
        value = correct / samples
        assert rounds_to_mean(value, range(1, 8), [value] * 7) == 5


def test_the_reference_may_be_early_on_its_own_curve() -> None:
    """By convention it is printed as the last round; by the definition it may be earlier, never later."""
    fluctuating = [0.2, 0.5, 0.3, 0.6, 0.4]
    assert rounds_to(fluctuating[-1], from_one(fluctuating), fluctuating) == 2
    rising = [0.2, 0.3, 0.4, 0.5, 0.6]
    assert rounds_to(rising[-1], from_one(rising), rising) == 5


def test_noise_makes_the_first_crossing_early() -> None:
    spike = [0.1, 0.9, *[0.1] * 8, *[0.5] * 5]
    assert rounds_to(0.5, from_one(spike), spike) == 2
    assert rounds_to_mean(0.5, from_one(spike), spike) == 15


def test_rounds_are_those_that_were_measured() -> None:
    events: list[dict[str, Any]] = [{"event": "round", "round": round} for round in range(1, 13)]
    for event in events[1::2]:
        event["accuracy"] = event["round"] / 20
    events[7]["accuracy"] = None
    found = series(events, "accuracy")
    assert found == ([2, 4, 6, 10, 12], [0.1, 0.2, 0.3, 0.5, 0.6])
    assert rounds_to(0.4, *found) == 10
    assert rounds_to_mean(0.0, *found) is None


def test_the_mean_needs_five_rounds_one_after_another() -> None:
    """A_{t-4}, ..., A_t: five values with gaps between them are another mean."""
    rounds = [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 20]
    assert rounds_to_mean(0.5, rounds, [0.9] * 11) == 10
    assert rounds_to_mean(0.5, rounds, [0.9] * 5 + [0.1] * 6) is None
    assert rounds_to_mean(0.5, rounds, [0.1] * 6 + [0.6] * 5) == 11
    assert rounds_to_mean(0.5, range(7, 12), [0.9] * 5) == 11


def test_every_tenth_round_is_too_seldom_for_the_mean() -> None:
    rounds = range(10, 201, 10)
    assert rounds_to(0.5, rounds, [0.9] * 20) == 10
    assert rounds_to_mean(0.5, rounds, [0.9] * 20) is None
    assert rounds_to_mean(0.5, [*rounds, 201, 202, 203, 204], [0.9] * 24) == 204


def test_nothing_measured() -> None:
    found = series([{"event": "round", "round": 1}], "client_acc_global")
    assert found == ([], [])
    assert rounds_to(0.0, *found) is None


def test_a_value_of_zero_is_a_value() -> None:
    assert series([{"round": 3, "accuracy": 0.0}], "accuracy") == ([3], [0.0])


# Over seeds


def run(seed: int, *accuracies: float) -> RunRecord:
    rounds = [{"event": "round", "round": t, "accuracy": a} for t, a in enumerate(accuracies, start=1)]
    config = {"seed": seed, "rounds": len(rounds), "method": {"name": "any"}}
    return RunRecord(Path(), config, {}, rounds, None, [])


def evidence(**runs: list[RunRecord]) -> Evidence:
    found = Evidence([], [])
    found.records.update({(method, "s"): records for method, records in runs.items()})
    return found


ROUNDS = PaperTable("t", "t", "rounds_to_accuracy", ["s"], {"ours": [1.0]}, "fedavg")
FEDAVG = [run(1, 0.1, 0.5, 0.2, 0.4), run(2, 0.1, 0.2, 0.3, 0.3)]  # targets 0.4 and 0.3


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        ([run(1, 0.3, 0.4, 0.1, 0.1), run(2, 0.1, 0.2, 0.2, 0.3)], "3"),
        ([run(1, 0.3, 0.3, 0.3, 0.3), run(2, 0.1, 0.2, 0.2, 0.3)], "1 of 2 seeds"),
        ([run(1, 0.3, 0.3, 0.3, 0.3), run(2, 0.1, 0.2, 0.2, 0.2)], "N/A"),
        ([run(2, 0.3, 0.4, 0.1, 0.1)], "1"),
    ],
    ids=["all", "some", "none", "one-seed"],
)
def test_the_target_is_that_of_the_same_seed(ours: list[RunRecord], expected: str) -> None:
    """A mean over seeds only where all of them reach it."""
    found = evidence(ours=ours, fedavg=FEDAVG).measured(ROUNDS, "ours", "s")
    assert found is not None
    assert found.text == expected


def test_the_reference_itself_by_the_definition() -> None:
    """Round 2; by convention the papers print the last."""
    found = evidence(fedavg=FEDAVG[:1]).measured(ROUNDS, "fedavg", "s")
    assert found is not None
    assert found.text == "2"
