"""Paired differences over seeds, against numbers worked by hand."""

import math
from pathlib import Path

import pytest

from remanence.report.groups import Group, group_runs
from remanence.report.paired import difference, paired_table, rows
from remanence.runs.record import RunRecord


def run(method: str, seed: int, accuracy: float, finished: bool = True) -> RunRecord:
    result = {"accuracy": accuracy, "client_acc_local": None, "forgetting": 0.1, "rounds": 1} if finished else None
    config = {"method": {"name": method}, "seed": seed}
    return RunRecord(Path(f"{method}-{seed}"), config, {}, [], result, [])


def groups(*runs: RunRecord) -> list[Group]:
    return group_runs(runs)


PLAIN = [run("fedavg", seed, accuracy) for seed, accuracy in ((1, 0.5), (2, 0.6), (3, 0.4))]
BETTER = [run("fedpsd", seed, accuracy) for seed, accuracy in ((1, 0.6), (2, 0.72), (3, 0.48))]


def test_mean_and_interval() -> None:
    """Gaps 0.10, 0.12, 0.08: mean 0.1, deviation 0.02; t(2 degrees, 97.5 %) = 4.302653."""
    reference, other = groups(*PLAIN, *BETTER)
    found = difference(other, reference, "accuracy")
    assert found is not None
    assert found.seeds == 3
    assert found.mean == pytest.approx(0.1)
    assert found.half == pytest.approx(4.302653 * 0.02 / math.sqrt(3), abs=1e-7)
    assert found.text == "+10.00 ±4.97*"


def test_only_seeds_of_both_count() -> None:
    reference, other = groups(*PLAIN, BETTER[0], run("fedpsd", 9, 1.0), run("fedpsd", 2, 0.0, finished=False))
    found = difference(other, reference, "accuracy")
    assert found is not None
    assert (found.seeds, found.half, found.text) == (1, None, "+10.00")


def test_a_difference_that_may_be_chance_has_no_star() -> None:
    reference, other = groups(*PLAIN[:2], run("moon", 1, 0.6), run("moon", 2, 0.55))
    found = difference(other, reference, "accuracy")
    assert found is not None
    assert not found.text.endswith("*")


def test_what_was_not_measured_is_missing() -> None:
    assert rows(groups(*PLAIN, *BETTER)) == [["fedpsd", "3", "+10.00 ±4.97*", "-", "+0.00 ±0.00"]]


def test_a_table_needs_several_seeds_and_methods() -> None:
    assert paired_table(groups(*PLAIN)) is None
    assert paired_table(groups(PLAIN[0], BETTER[0])) is None
    assert paired_table(groups(*PLAIN, *BETTER)) is not None
