"""`remanence reproduce`: cells of a paper's tables on made-up pictures, a page, and nothing twice."""

import json
import os
import shlex
import shutil
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remanence.config import parse
from remanence.reproduce.play import plan_cells, play_cells
from remanence.reproduce.suite import find_tables, papers
from small_pictures import ARGUMENTS, SMALL, write_pictures
from system.running import Ended, good, run_fork, run_program, without_report

CELLS = "fedavg.cifar10-s2,fedpsd.cifar10-s2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_pictures(tmp_path / "data")
    return tmp_path


def with_data(folder: Path) -> None:
    os.environ["REMANENCE_DATA"] = str(folder / "data")
    without_report()


def call(folder: Path, *arguments: str) -> Ended:
    return run_fork(folder, *arguments, "--runs", folder / "runs", prepare=partial(with_data, folder))


def reproduce(folder: Path, *arguments: str, table: str = "fedpsd-6") -> Ended:
    return call(folder, "reproduce", table, "--jobs", "1", *ARGUMENTS, *arguments)


def page(folder: Path, paper: str = "fedpsd") -> str:
    return (folder / f"{paper}.md").read_text()


def row(text: str, method: str, table: str = "fedpsd-6") -> str:
    inside = text.split(f"## {table}\n")[1].split("\n## ")[0]
    return next(line for line in inside.splitlines() if line.startswith(f"| {method} "))


def test_cells_are_run_kept_and_shown(folder: Path) -> None:
    answer = good(reproduce(folder, "--cells", CELLS, "--rounds", "2", "--out", f"{folder}/kept", "--json")).json
    assert answer["rounds"] == {"fedavg.cifar10-s2-seed1": 2, "fedpsd.cifar10-s2-seed1": 2}
    assert answer["failed"] == {}
    text = page(folder / "kept")
    assert row(text, "FedAvg").count("not run") == 1
    assert "**20.14** / " in row(text, "FedAvg")
    assert "(2)" in row(text, "FedPSD")
    assert row(text, "RHPK + PSD").count("not run") == 2
    assert row(text, "FedPSD", "fedpsd-1").count("not run") == 5  # the same run serves every table
    events = (folder / "kept" / "fedpsd.cifar10-s2-seed1" / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in events] == ["start", "round", "round"]
    assert not list((folder / "kept").rglob("*.safetensors"))


def test_the_page_shows_the_last_value_of_the_runs(folder: Path) -> None:
    good(reproduce(folder, "--cells", CELLS, "--out", f"{folder}/kept"))
    events = (folder / "kept" / "fedavg.cifar10-s2-seed1" / "events.jsonl").read_text().splitlines()
    last = json.loads(events[-1])["client_acc_global"]
    assert f"**20.14** / {100 * last:.2f} " in row(page(folder / "kept"), "FedAvg")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_folders(facts: dict[str, Any]) -> dict[str, Any]:
    """What is kept does not tell where the machine that played it has its files."""
    told = {name: value for name, value in facts.items() if name != "run"}
    return told | ({"origin": Path(told["origin"]).name} if "origin" in told else {})


def test_what_is_kept_is_exact(folder: Path) -> None:
    """Fewer facts, but no number is rounded: pages made from what is kept and from the runs are the same."""
    good(reproduce(folder, "--cells", CELLS, "--out", f"{folder}/kept"))
    for cell in CELLS.split(","):
        played, kept = (path / f"{cell}-seed1" for path in (folder / "runs" / "fedpsd", folder / "kept"))
        for whole, thin in zip(lines(played / "events.jsonl"), lines(kept / "events.jsonl"), strict=True):
            assert thin == without_folders({name: value for name, value in whole.items() if name in thin})
            assert set(whole) - set(thin) <= {"class_mix", "selected", "per_task"}
        for name in ("experiment.toml", "timing.jsonl"):
            assert (kept / name).read_bytes() == (played / name).read_bytes()
        for name in ("evidence.json", "result.json"):
            whole, thin = (json.loads((path / name).read_text()) for path in (played, kept))
            assert thin == without_folders(whole)
    assert not any(str(folder) in path.read_text() for path in (folder / "kept").rglob("*") if path.is_file())
    text = page(folder / "kept")
    good(reproduce(folder, "--page-only", "--resume"))
    assert page(folder / "runs" / "fedpsd") == text


def test_the_page_says_how_it_was_made(folder: Path) -> None:
    good(reproduce(folder, "--page-only", "--out", f"{folder}/kept", "--set", "train.lr=0.05"))
    settings = " ".join(f"--set {shlex.quote(setting)}" for setting in (*SMALL, "train.lr=0.05"))
    assert f"\nMade by `remanence reproduce fedpsd {settings}`.\n" in page(folder / "kept")


def test_memory_is_measured_one_device_at_a_time(folder: Path) -> None:
    cells = "fedavg.cifar10-memory,fedawac.cifar10-memory"
    good(reproduce(folder, "--cells", cells, "--out", f"{folder}/kept", table="fedawac-8"))
    text, kept = page(folder / "kept", "fedawac"), folder / "kept"
    peaks = []
    for cell in cells.split(","):
        assert tomllib.loads((kept / f"{cell}-seed1" / "experiment.toml").read_text())["engine"]["workers"] == 1
        assert json.loads((kept / f"{cell}-seed1" / "evidence.json").read_text())["engine"].startswith("one by one")
        peaks.append(json.loads((kept / f"{cell}-seed1" / "result.json").read_text())["peak_memory"])
    assert min(peaks) > 0
    shown = [row(text, method, "fedawac-8").split("|")[2].strip() for method in ("FedAvg", "FedAWAC")]
    assert shown[0] == f"**0.75** / {peaks[0] / 1e9:.3f} (1.00 of FedAvg's)"
    assert shown[1] == f"**0.85** / {peaks[1] / 1e9:.3f} ({peaks[1] / peaks[0]:.2f} of FedAvg's)"
    assert row(text, "FedAvg", "fedawac-6").count("not run") == 12


def test_the_number_of_workers_can_be_chosen(folder: Path) -> None:
    good(reproduce(folder, "--cells", "fedavg.cifar10-s2", "--rounds", "1", "--set", "engine.workers=1"))
    config = folder / "runs" / "fedpsd" / "fedavg.cifar10-s2-seed1" / "experiment.toml"
    assert tomllib.loads(config.read_text())["engine"]["workers"] == 1


def tells_its_process(tree: Any, path: Path, rounds: Any, jobs: int) -> None:
    path.mkdir(parents=True)
    (path / "process").write_text(str(os.getpid()))


def test_every_cell_has_a_fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one after another: what a cell leaves in memory would count for the next."""
    monkeypatch.setattr("remanence.reproduce.play._play", tells_its_process)
    _, suite, _ = find_tables("fedawac-8")
    chosen = [(method, "cifar10-memory") for method in ("fedavg", "fedcm", "fedawac")]
    cells = plan_cells(suite, chosen, 1, lambda tree: tree)
    assert play_cells(cells, tmp_path, None, 1, lambda *_: None) == {}
    processes = {int((tmp_path / cell.name / "process").read_text()) for cell in cells}
    assert len(processes) == 3
    assert os.getpid() not in processes


def test_resume_plays_only_what_is_missing(folder: Path) -> None:
    good(reproduce(folder, "--cells", CELLS, "--rounds", "2"))
    run = folder / "runs" / "fedpsd" / "fedavg.cifar10-s2-seed1"
    first = (run / "timing.jsonl").read_text()
    good(reproduce(folder, "--cells", CELLS, "--rounds", "2", "--resume"))
    assert (run / "timing.jsonl").read_text() == first
    good(reproduce(folder, "--cells", CELLS, "--resume"))
    assert (run / "timing.jsonl").read_text().startswith(first)
    assert (run / "result.json").exists()
    good(reproduce(folder, "--cells", "fedavg.cifar10-s2"))
    again = folder / "runs" / "fedpsd-2" / "fedavg.cifar10-s2-seed1"
    assert (again / "events.jsonl").read_bytes() == (run / "events.jsonl").read_bytes()


def test_what_is_kept_is_not_run_again(folder: Path) -> None:
    good(reproduce(folder, "--cells", CELLS, "--out", f"{folder}/kept"))
    shutil.rmtree(folder / "runs")
    ended = good(reproduce(folder, "--cells", CELLS, "--out", f"{folder}/kept", "--resume"))
    assert "2 cells, 2 of them done" in ended.out
    assert not (folder / "runs" / "fedpsd").exists()


def test_other_settings_are_another_cell(folder: Path) -> None:
    good(reproduce(folder, "--cells", "fedavg.cifar10-s2", "--out", f"{folder}/kept"))
    answer = good(reproduce(folder, "--cells", "fedavg.cifar10-s2", "--out", f"{folder}/kept", "--page-only", "--json",
                            "--set", "train.lr=0.5")).json  # fmt: skip
    assert answer["rounds"] == {"fedavg.cifar10-s2-seed1": 0}


def test_cells_at_the_same_time_give_the_same_bits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good(reproduce(folder, "--cells", CELLS))
    monkeypatch.setenv("REMANENCE_DATA", str(folder / "data"))
    good(run_program("reproduce", "fedpsd-6", "--cells", CELLS, "--jobs", "2", *ARGUMENTS, folder=folder))
    for cell in CELLS.split(","):
        one, other = (folder / "runs" / name / f"{cell}-seed1" / "events.jsonl" for name in ("fedpsd", "fedpsd-2"))
        assert one.read_bytes() == other.read_bytes()


def test_two_seeds_have_a_deviation(folder: Path) -> None:
    good(reproduce(folder, "--cells", "fedavg.cifar10-s2", "--rounds", "1", "--seeds", "2", "--out", f"{folder}/kept"))
    assert " ±" in row(page(folder / "kept"), "FedAvg")


def test_rounds_to_the_reference(folder: Path) -> None:
    good(reproduce(folder, "--cells", CELLS, "--out", f"{folder}/kept", table="fedpsd-5"))
    assert "**200** / " in row(page(folder / "kept"), "FedAvg", "fedpsd-5")
    assert "not run" not in row(page(folder / "kept"), "FedPSD", "fedpsd-5").split("|")[2]


def test_a_cell_without_its_data_does_not_stop_the_others(folder: Path) -> None:
    ended = reproduce(folder, "--cells", "fedavg.cifar10-s2,fedavg.mnist-s2", table="fedpsd-1")
    assert ended.code == 1
    assert "fedavg.mnist-s2-seed1: data.name: 'mnist' not found" in ended.err
    assert "Traceback" not in ended.err
    assert "**20.45** / " in row(page(folder / "runs" / "fedpsd"), "FedAvg", "fedpsd-1")
    assert row(page(folder / "runs" / "fedpsd"), "FedAvg", "fedpsd-1").split("|")[2].strip() == "**55.92** / not run"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["fedpsd-9"], "reproduce: unknown table 'fedpsd-9'; did you mean 'fedpsd-7'?"),
        (["fedpsd-6", "--cells", "fedpsd.cifar"], "--cells: no cell is called 'fedpsd.cifar'; did you mean"),
        (["fedpsd-6", "--cells", ","], "--cells: ',' names no cell"),
        (["fedpsd-6", "--rounds", "0"], "argument --rounds: '0' is not a whole number, 1 or more"),
        (["fedpsd-6", "--set", "train.lr=-1"], "train.lr: -1 is not allowed"),
    ],
)
def test_wrong_calls(arguments: list[str], line: str, folder: Path) -> None:
    ended = call(folder, "reproduce", *arguments)
    assert ended.code == 2
    assert ended.err.startswith(f"remanence: {line}")
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("paper", papers())
def test_every_cell_of_every_table_is_a_valid_experiment(paper: str) -> None:
    _, suite, tables = find_tables(paper)
    for method, setting in suite.chosen(tables, ["*"]):
        assert parse(suite.cell(method, setting)).general.name == f"{method}.{setting}"
    for table in tables:
        printed = {len(numbers) for numbers in table.published.values()}
        assert printed - {0} <= {len(table.columns)}  # all of a row, or nothing where the paper has no such row
