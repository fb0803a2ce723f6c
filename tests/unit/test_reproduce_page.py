"""The page of a paper's tables, from made-up runs; and what its suites say the paper prints."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from remanence.config import parse
from remanence.reproduce.page import Evidence, page_text
from remanence.reproduce.suite import PaperTable, find_tables
from remanence.runs.record import RunRecord

Round = Mapping[str, Any]


def table(metric: str) -> PaperTable:
    return PaperTable("t", "t", metric, ["s"], {"ours": [1.0]}, "fedavg")


def run(rounds: Sequence[Round], seed: int = 1, planned: int | None = None, **result: Any) -> RunRecord:
    events = [{"event": "round", "round": number, **facts} for number, facts in enumerate(rounds, start=1)]
    config = {"seed": seed, "rounds": planned or len(events), "method": {"name": "any"}}
    return RunRecord(Path(), config, {}, events, result or None, [])


def shown(metric: str, ours: Sequence[RunRecord], fedavg: Sequence[RunRecord] = ()) -> str | None:
    found = evidence(ours, fedavg).measured(table(metric), "ours", "s")
    return None if found is None else found.text


def evidence(ours: Sequence[RunRecord], fedavg: Sequence[RunRecord] = ()) -> Evidence:
    made = Evidence([], [])
    made.records.update({("ours", "s"): list(ours), ("fedavg", "s"): list(fedavg)})
    return made


# Diverged runs


def accurate(*accuracies: float, diverged: bool = False) -> list[Round]:
    rounds: list[dict[str, Any]] = [{"accuracy": accuracy} for accuracy in accuracies]
    if diverged:
        rounds[-1]["diverged"] = True
    return rounds


def test_runs_that_diverged_are_counted_not_averaged_away_unseen() -> None:
    runs = [run(accurate(0.3, 0.5)), run(accurate(0.4, 0.6)), run(accurate(0.4, 0.1, diverged=True))]
    assert shown("accuracy", runs) == f"{mean([50, 60, 10]):.2f} ±{stdev([50, 60, 10]):.2f} (1 of 3 diverged)"
    assert shown("accuracy", runs[2:]) == "10.00 (1 of 1 diverged)"
    assert shown("accuracy", runs[:2]) == "55.00 ±7.07"


def test_a_run_that_diverged_in_between_did_diverge() -> None:
    rounds = [{"accuracy": 0.1, "diverged": True}, {"accuracy": 0.4}]
    assert shown("accuracy", [run(rounds)]) == "40.00 (1 of 1 diverged)"


def test_only_runs_with_a_number_are_counted() -> None:
    unmeasured = run([{}, {}])
    assert shown("accuracy", [run(accurate(0.2, diverged=True)), unmeasured]) == "20.00 (1 of 1 diverged)"
    assert shown("accuracy", [unmeasured]) is None


# Forgetting


def classes(*rows: Sequence[float], raw: Mapping[int, Sequence[float]] | None = None) -> list[Round]:
    rounds: list[dict[str, Any]] = [{"per_class": list(row)} for row in rows]
    for number, row in (raw or {}).items():
        rounds[number]["raw"] = {"per_class": list(row)}
    return rounds


def test_forgetting_is_shown_with_that_of_the_aggregates() -> None:
    """Until the window is full the two models are one: (0.9 - 0.1) and (0.5 - 0.7) over two classes."""
    rounds = classes((0.2, 0.5), (0.6, 0.4), (0.5, 0.45), raw={1: (0.9, 0.4), 2: (0.1, 0.7)})
    assert shown("forgetting", [run(rounds)]) == "7.50 (raw 30.00)"


def test_forgetting_of_the_aggregates_is_a_mean_over_seeds() -> None:
    one = run(classes((0.8, 0.8), (0.6, 0.6), raw={1: (0.4, 0.4)}), seed=1)
    other = run(classes((0.8, 0.8), (0.7, 0.7), raw={1: (0.6, 0.6)}), seed=2)
    assert shown("forgetting", [one, other]) == f"15.00 ±{stdev([20, 10]):.2f} (raw 30.00)"


def test_without_a_window_forgetting_stands_alone() -> None:
    assert shown("forgetting", [run(classes((0.8, 0.6), (0.6, 0.4)))]) == "20.00"
    assert shown("accuracy", [run([{"accuracy": 0.5, "raw": {"accuracy": 0.1}}])]) == "50.00"


def test_forgetting_of_one_round_is_not_shown() -> None:
    assert shown("forgetting", [run(classes((0.8, 0.6)))]) is None


def test_what_stands_beside_a_number_is_in_one_bracket() -> None:
    rounds = classes((0.8, 0.8), (0.6, 0.6), raw={1: (0.4, 0.4)})
    rounds[1] = {**rounds[1], "diverged": True}
    assert shown("forgetting", [run(rounds)]) == "20.00 (raw 40.00, 1 of 1 diverged)"


# Memory


def test_memory_is_the_median_and_its_ratio_to_fedavg() -> None:
    ours = [run([{}], seed, peak_memory=peak) for seed, peak in enumerate((300_000_000, 900_000_000, 330_000_000))]
    fedavg = [run([{}], seed, peak_memory=peak) for seed, peak in enumerate((200_000_000, 10_000_000, 220_000_000))]
    assert shown("memory", ours, fedavg) == "0.330 (1.65 of FedAvg's)"
    assert evidence(ours, fedavg).measured(table("memory"), "fedavg", "s").text == "0.200 (1.00 of FedAvg's)"
    assert shown("memory", ours[:2], fedavg[:1]) == "0.600 (3.00 of FedAvg's)"


def test_memory_without_fedavg_has_no_ratio() -> None:
    ours = [run([{}], peak_memory=300_000_000)]
    assert shown("memory", ours) == "0.300"
    assert shown("memory", ours, [run([{}])]) == "0.300"
    assert shown("memory", ours, [run([{}], peak_memory=None)]) == "0.300"


def test_memory_of_an_unfinished_run_is_not_known() -> None:
    assert shown("memory", [run([{}], planned=8)]) is None
    assert shown("memory", [run([{}], peak_memory=None)]) is None


# Rounds to a target


def test_the_mean_is_shown_only_where_every_round_was_measured() -> None:
    values = (0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5, 0.5)
    every, second = run(accurate(*values)), run([r if n % 2 else {} for n, r in enumerate(accurate(*values))])
    goal = run(accurate(*[0.3] * 8))
    rounds = table("rounds_to_accuracy")
    assert (shown("rounds_to_accuracy", [every], [goal]), evidence([every], [goal]).moving(rounds, "ours", "s")) == (
        "3", "5"
    )  # fmt: skip
    assert (shown("rounds_to_accuracy", [second], [goal]), evidence([second], [goal]).moving(rounds, "ours", "s")) == (
        "4", ""
    )  # fmt: skip
    late = run(accurate(*[0.1] * 6, 0.9, 0.1))
    assert evidence([late], [goal]).moving(rounds, "ours", "s") == "never"


# The whole page


def test_the_page_names_the_command_with_its_settings() -> None:
    _, suite, _ = find_tables("fedpsd")
    line = "Made by `remanence reproduce fedpsd"
    plain = page_text("fedpsd", suite, [], [Path("none")])
    more = page_text("fedpsd", suite, [], [Path("none")], ["train.lr=0.1", "measure.every=10"])
    assert f"\n{line}`.\n" in plain
    assert f"\n{line} --set train.lr=0.1 --set measure.every=10`.\n" in more


# What the papers print

AVERAGES = {
    "fedawac-6": {
        "fedavg": 48.34, "fedcurv": 48.43, "fedprox": 47.55, "fedcm": 51.68, "fedga": 50.69, "fedawac": 52.55
    },
    "fedawac-7": {
        "fedavg": 44.07, "fedcurv": 41.95, "fedprox": 41.24, "fedcm": 38.33, "fedga": 38.93, "fedawac": 37.40
    },
}  # fmt: skip


@pytest.mark.parametrize("name", AVERAGES)
def test_published_rows_have_the_published_averages(name: str) -> None:
    _, _, (found,) = find_tables(name)
    assert set(found.published) == set(AVERAGES[name])
    for method, numbers in found.published.items():
        assert len(numbers) == 12
        assert f"{mean(numbers):.2f}" == f"{AVERAGES[name][method]:.2f}", method


def test_memory_has_settings_of_its_own() -> None:
    """One process, one device after another, and rounds enough to fill the window."""
    _, suite, (found,) = find_tables("fedawac-8")
    assert found.columns == ["cifar10-memory", "cifar100-memory", "tiny-memory"]
    others = {column for table in suite.tables if table.name != found.name for column in table.columns}
    assert not others & set(found.columns)
    for method, setting in found.cells():
        experiment = parse(suite.cell(method, setting))
        assert experiment.engine.workers == 1
        assert experiment.general.rounds > getattr(experiment.parts["optimise"], "models", 1)
        assert (experiment.devices.count, experiment.devices.per_round) == (100, 10)
