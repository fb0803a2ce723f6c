"""What the commands print and leave behind."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import remanence
from remanence.config import parse
from system.running import EXPERIMENT, Ended, good, nothing, run_fork, run_program

PROMISED = {
    "run",
    "rounds",
    "accuracy",
    "forgetting",
    "client_acc_global",
    "bytes_up",
    "bytes_down",
    "state_bytes",
    "samples_per_second",
    "seconds",
    "weights_sha256",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("commands")
    (path / "small.toml").write_text(EXPERIMENT)
    return path


@pytest.fixture(scope="module")
def finished(folder: Path) -> Ended:
    """A run as a person starts it, in a new interpreter, with runs in the folder where it stands."""
    return run_program(
        "run",
        "small.toml",
        "--json",
        "--set",
        "method=fedprox",
        "--set",
        "method.mu=0.2",
        "--set",
        "seed=3",
        folder=folder,
    )


def test_the_last_line_is_the_result(finished: Ended, folder: Path) -> None:
    result = good(finished).json
    assert set(result) >= PROMISED
    assert len(finished.out.splitlines()) == 1
    assert result["rounds"] == 6
    assert 0.2 < result["accuracy"] <= 1
    assert 0.0 <= result["client_acc_global"] <= 1
    assert len(result["weights_sha256"]) == 64
    assert result["samples_per_second"] > 0
    assert result["bytes_up"] > result["bytes_down"] > 0
    assert Path(folder, result["run"]).parent == folder / "runs"


def test_people_read_the_rest_on_the_other_stream(finished: Ended) -> None:
    assert "small" not in finished.out.replace(finished.json["run"], "").replace('"name": "small"', "")
    assert "fedprox: digits, 8 devices, 4 per round, mlp" in finished.err
    assert "engine: " in finished.err
    assert "fedprox: done in" in finished.err
    assert "\x1b" not in finished.err


def test_the_run_folder_is_complete(finished: Ended, folder: Path) -> None:
    path = folder / finished.json["run"]
    config = tomllib.loads((path / "experiment.toml").read_text())
    assert config["method"] == {"name": "fedprox", "mu": 0.2}
    assert (config["name"], config["seed"]) == ("small", 3)
    assert parse(config).resolved() == config
    events = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["start", *["round"] * 6]
    assert json.loads((path / "result.json").read_text())["weights_sha256"] == finished.json["weights_sha256"]
    assert json.loads((path / "evidence.json").read_text())["remanence"] == remanence.__version__
    assert len(list((path / "checkpoints").iterdir())) in (1, 2)
    assert not list(path.rglob("*.part"))


def test_the_result_says_what_the_events_say(finished: Ended, folder: Path) -> None:
    lines = (folder / finished.json["run"] / "events.jsonl").read_text().splitlines()
    rounds = [event for event in map(json.loads, lines) if event["event"] == "round"]
    assert finished.json["bytes_up"] == sum(event["bytes_up"] for event in rounds)
    assert finished.json["accuracy"] == rounds[-1]["accuracy"]
    assert finished.json["client_acc_global"] == rounds[-1]["client_acc_global"]


def test_a_finished_run_is_not_run_again(finished: Ended, folder: Path) -> None:
    again = good(
        run_fork(
            folder,
            "run",
            folder / "small.toml",
            "--runs",
            folder / "runs",
            "--resume",
            "--json",
            "--set",
            "method.name=fedprox",
            "--set",
            "method.mu=0.2",
            "--set",
            "seed=3",
        )
    )
    assert "already finished" in again.err
    same = [{k: v for k, v in one.json.items() if k not in ("run", "report")} for one in (again, finished)]
    assert same[0] == same[1]
    assert Path(again.json["run"]).resolve() == (folder / finished.json["run"]).resolve()


def test_the_same_experiment_gives_the_same_run_in_a_new_folder(finished: Ended, folder: Path) -> None:
    again = good(
        run_fork(
            folder,
            "run",
            folder / "small.toml",
            "--runs",
            folder / "runs",
            "--json",
            "--quiet",
            "--set",
            "method=fedprox",
            "--set",
            "method.mu=0.2",
            "--set",
            "seed=3",
        )
    )
    assert again.json["weights_sha256"] == finished.json["weights_sha256"]
    assert Path(again.json["run"]).name == Path(finished.json["run"]).name + "-2"


def test_settings_reach_the_run(folder: Path) -> None:
    runs = folder / "settings"
    ended = good(
        run_fork(
            folder,
            "run",
            folder / "small.toml",
            "--runs",
            runs,
            "--json",
            "--quiet",
            "--set",
            "rounds=2",
            "--set",
            "optimise=fedyogi",
            "--set",
            "optimise.eta=0.05",
            "--set",
            "model.hidden=[3, 4]",
            "--set",
            "label=tiny one",
        )
    )
    config = tomllib.loads((Path(ended.json["run"]) / "experiment.toml").read_text())
    assert ended.json["rounds"] == 2
    assert (config["optimise"]["name"], config["optimise"]["eta"]) == ("fedyogi", 0.05)
    assert (config["model"]["hidden"], config["label"]) == ([3, 4], "tiny one")


def test_quiet_says_nothing(folder: Path) -> None:
    ended = good(run_fork(folder, "run", folder / "small.toml", "--runs", folder / "quiet", "--quiet"))
    assert (ended.out, ended.err) == ("", "")


def test_without_json_people_read_standard_output(folder: Path) -> None:
    ended = good(run_fork(folder, "run", folder / "small.toml", "--runs", folder / "people"))
    assert ended.err == ""
    assert "fedavg: done in" in ended.out
    assert "Accuracy" in ended.out


def test_a_recipe_by_its_name(folder: Path) -> None:
    ended = good(
        run_fork(
            folder,
            "run",
            "demo",
            "--runs",
            folder / "recipe",
            "--json",
            "--quiet",
            "--set",
            "rounds=1",
            "--set",
            "devices.count=20",
            "--set",
            "devices.per_round=2",
            "--set",
            "train.epochs=1",
        )
    )
    assert [run["method"] for run in ended.json["runs"]] == ["fedavg", "fedprox", "scaffold"]


@pytest.fixture(scope="module")
def compared(folder: Path) -> Ended:
    return good(
        run_fork(
            folder,
            "compare",
            folder / "small.toml",
            "--methods",
            "scaffold,fedadam",
            "--seeds",
            "2",
            "--runs",
            folder / "compared",
            "--json",
            "--set",
            "rounds=3",
        )
    )


def test_compare_runs_every_method_with_every_seed(compared: Ended) -> None:
    path = Path(compared.json["run"])
    assert sorted(p.name for p in path.iterdir() if p.is_dir()) == [
        "fedadam-seed1",
        "fedadam-seed2",
        "scaffold-seed1",
        "scaffold-seed2",
    ]
    assert len(compared.json["runs"]) == 4
    assert len({run["weights_sha256"] for run in compared.json["runs"]}) == 4
    assert [run["seed"] for run in compared.json["runs"]] == [1, 2, 1, 2]


def test_compare_is_paired(compared: Ended) -> None:
    """Methods of one seed share partition, sampling and start; seeds differ in all three."""
    path = Path(compared.json["run"])
    facts: dict[str, Any] = {}
    for run in path.iterdir():
        if run.is_dir():
            start, *rounds = map(json.loads, (run / "events.jsonl").read_text().splitlines())
            evidence = json.loads((run / "evidence.json").read_text())
            facts[run.name] = (
                start["class_mix"],
                [event["selected"] for event in rounds],
                evidence["initial_weights_sha256"],
            )
    for seed in (1, 2):
        assert facts[f"scaffold-seed{seed}"] == facts[f"fedadam-seed{seed}"]
    for one, other in zip(facts["scaffold-seed1"], facts["scaffold-seed2"], strict=True):
        assert one != other


def test_compare_prints_one_table(compared: Ended) -> None:
    table = compared.err[compared.err.index("\nMethod") :].partition("\n\n")[0].splitlines()
    rows = {line.split()[0]: line.split()[1] for line in table if line.startswith(("scaffold", "fedadam"))}
    assert rows == {"scaffold": "2", "fedadam": "2"}


def test_compare_resumes_what_is_not_finished(compared: Ended, folder: Path) -> None:
    path = Path(compared.json["run"])
    gone = path / "fedadam-seed2"
    logs = {p: p.read_bytes() for p in path.glob("*/events.jsonl")}
    (gone / "result.json").unlink()
    ended = good(
        run_fork(
            folder,
            "compare",
            folder / "small.toml",
            "--methods",
            "scaffold,fedadam",
            "--seeds",
            "2",
            "--runs",
            folder / "compared",
            "--json",
            "--set",
            "rounds=3",
            "--resume",
        )
    )
    assert ended.json["run"] == str(path)
    assert ended.err.count("already finished") == 3
    assert {p: p.read_bytes() for p in logs} == logs
    assert [run["weights_sha256"] for run in ended.json["runs"]] == [
        run["weights_sha256"] for run in compared.json["runs"]
    ]


def test_report_writes_one_page_about_several_runs(finished: Ended, compared: Ended, folder: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("remanence.report.page")
    page = folder / "pages" / "both.html"
    ended = good(
        run_fork(folder, "report", folder / finished.json["run"], compared.json["run"], "--out", page, prepare=nothing)
    )
    assert ended.out == f"report: {page}\n"
    text = page.read_text()
    assert text.lstrip().lower().startswith("<!doctype html>")
    for name in ("fedprox", "scaffold", "fedadam"):
        assert name in text
    assert 'src="http' not in text
    assert "<link" not in text.replace('<link rel="icon" href="data:', "")


def test_run_ends_with_its_report(folder: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("remanence.report.page")
    ended = good(
        run_fork(
            folder,
            "run",
            folder / "small.toml",
            "--runs",
            folder / "drawn",
            "--json",
            "--quiet",
            "--set",
            "rounds=2",
            prepare=nothing,
        )
    )
    assert Path(ended.json["report"]) == Path(ended.json["run"]) / "report.html"
    assert "fedavg" in Path(ended.json["report"]).read_text()
