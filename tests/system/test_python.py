"""The commands from Python: the same experiments, run folders and pages."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import remanence
from remanence import api
from remanence.config import parse
from remanence.core.state import load
from remanence.errors import UserError
from remanence.runs.play import play
from system.running import EXPERIMENT, good, run_fork

TINY: dict[str, Any] = {
    "name": "tiny",
    "rounds": 4,
    "devices": {"count": 8, "per_round": 4, "alpha": 1.0},
    "model": {"name": "mlp", "hidden": [8]},
    "train": {"epochs": 1, "batch": 20, "lr": 0.1},
    "engine": {"workers": 1},
}
NAMES = ["compare", "describe", "entries", "examine_machine", "run", "simulate", "write_report"]


def compared(*experiments: Any, **settings: Any) -> tuple[Path, list[dict[str, Any]]]:
    result = api.compare(*experiments, **settings)
    return Path(result["run"]), result["runs"]


def events(result: dict[str, Any]) -> bytes:
    return (Path(result["run"]) / "events.jsonl").read_bytes()


def test_tables_are_an_experiment(tmp_path: Path) -> None:
    result = api.run(TINY, runs=tmp_path)
    path = Path(result["run"])
    assert (path.parent, result["rounds"], result["method"], result["seed"]) == (tmp_path, 4, "fedavg", 1)
    assert json.loads((path / "result.json").read_text()) == result
    assert tomllib.loads((path / "experiment.toml").read_text())["model"]["hidden"] == [8]
    assert len(events(result).splitlines()) == 5


def test_a_file_its_tables_and_the_command_give_the_same_run(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(EXPERIMENT)
    tables = {"name": "small", **tomllib.loads(EXPERIMENT)}
    results = [api.run(source, runs=tmp_path / "runs") for source in (file, str(file), tables)]
    ended = good(run_fork(tmp_path, "run", file, "--runs", tmp_path / "runs", "--json", "--quiet"))
    assert len({result["run"] for result in (*results, ended.json)}) == 4
    for result in results:
        assert events(result) == events(ended.json)
        assert set(result) == set(ended.json) - {"report"}
        assert result["weights_sha256"] == ended.json["weights_sha256"]


def test_settings_are_those_of_the_command(tmp_path: Path) -> None:
    result = api.run(TINY, ["method=fedprox", "method.mu=0.2", "rounds=2", "seed=7"], runs=str(tmp_path))
    assert (result["method"], result["rounds"], result["seed"]) == ("fedprox", 2, 7)
    assert tomllib.loads((Path(result["run"]) / "experiment.toml").read_text())["method"]["mu"] == 0.2
    assert TINY["rounds"] == 4
    assert "method" not in TINY


def test_runs_are_in_the_folder_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path(api.run(TINY, ["rounds=1"])["run"]).parent == Path("runs")


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    result = api.run(TINY, runs=tmp_path)
    before = events(result), (Path(result["run"]) / "timing.jsonl").read_bytes()
    assert api.run(TINY, runs=tmp_path, resume=True) == result
    assert (events(result), (Path(result["run"]) / "timing.jsonl").read_bytes()) == before
    assert api.run(TINY, runs=tmp_path)["run"] == result["run"] + "-2"


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedpsd"])
def test_a_run_that_was_stopped_goes_on(method: str, tmp_path: Path) -> None:
    tables = TINY | {"method": method}
    whole = api.run(tables, runs=tmp_path / "whole")
    begun = play(parse(tables), tmp_path / "runs", until=2)
    assert not (Path(begun["run"]) / "result.json").exists()
    result = api.run(tables, runs=tmp_path / "runs", resume=True)
    assert (result["run"], result["rounds"]) == (begun["run"], 4)
    assert events(result) == events(whole)
    last = "checkpoints/round-00000004.safetensors"
    assert result["weights_sha256"] == whole["weights_sha256"]
    assert load(Path(result["run"]) / last)["w"].equal(load(Path(whole["run"]) / last)["w"])


def test_resuming_what_never_began_begins_it(tmp_path: Path) -> None:
    assert api.run(TINY, ["rounds=1"], runs=tmp_path, resume=True)["rounds"] == 1


SHORT = ["rounds=1", "devices.count=20", "devices.per_round=2", "train.epochs=1"]


def test_a_recipe_by_its_name(tmp_path: Path) -> None:
    result = api.run("demo", [*SHORT, "method=scaffold"], runs=tmp_path)
    assert (result["name"], result["method"], result["rounds"]) == ("demo", "scaffold", 1)


def test_a_recipe_with_several_methods(tmp_path: Path) -> None:
    """What the command does with it: a comparison, told like one."""
    result = api.run("demo", SHORT, runs=tmp_path)
    assert [run["method"] for run in result["runs"]] == ["fedavg", "fedprox", "scaffold"]
    assert Path(result["run"], "comparison.json").exists()


def test_methods_and_seeds_are_compared(tmp_path: Path) -> None:
    path, results = compared(TINY, methods=["scaffold", "fedadam"], seeds=2, runs=tmp_path, settings=["rounds=2"])
    assert path.parent == tmp_path
    assert [(result["method"], result["seed"]) for result in results] == [
        ("scaffold", 1), ("scaffold", 2), ("fedavg", 1), ("fedavg", 2)
    ]  # fmt: skip
    folders = ["scaffold-seed1", "scaffold-seed2", "fedadam-seed1", "fedadam-seed2"]
    assert [Path(result["run"]).relative_to(path).name for result in results] == folders
    assert len({result["weights_sha256"] for result in results}) == 4
    selected = [[event.get("selected") for event in map(json.loads, events(one).splitlines())] for one in results]
    assert selected[0] == selected[2] != selected[1] == selected[3]


def test_a_comparison_is_resumed(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"methods": ("fedavg", "fedprox"), "seeds": 2, "runs": tmp_path}
    path, results = compared(TINY, **settings)
    (path / "fedprox-seed2" / "result.json").unlink()
    kept = {log: log.read_bytes() for log in path.glob("*/timing.jsonl")}
    again, told = compared(TINY, **settings, resume=True)
    assert again == path
    assert [result["weights_sha256"] for result in told] == [result["weights_sha256"] for result in results]
    assert {log: log.read_bytes() for log in kept} == kept


def test_several_experiments_are_compared_to_a_reference(tmp_path: Path) -> None:
    experiments = [
        TINY | {"label": label, "train": {"lr": lr, "epochs": 1}} for label, lr in (("slow", 1e-3), ("quick", 0.1))
    ]
    _, results = compared(*experiments, reference="quick", runs=tmp_path, settings=["rounds=1"])
    assert [Path(result["run"]).name for result in results] == ["quick-seed1", "slow-seed1"]
    with pytest.raises(UserError, match="reference: 'quack' is not compared; did you mean 'quick'"):
        compared(*experiments, reference="quack", runs=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_page_of_a_run_and_of_a_comparison(tmp_path: Path) -> None:
    pytest.importorskip("altair")
    run = api.run(TINY, ["rounds=2"], runs=tmp_path)["run"]
    path, _ = compared(TINY, methods=["scaffold", "fedadam"], runs=tmp_path, settings=["rounds=2"])
    assert api.write_report(run) == Path(run) / "report.html"
    page = api.write_report(Path(run), path, out=tmp_path / "pages" / "both.html")
    assert page == tmp_path / "pages" / "both.html"
    text = page.read_text()
    assert text.lstrip().lower().startswith("<!doctype html>")
    for name in ("fedavg", "scaffold", "fedadam"):
        assert name in text


@pytest.mark.parametrize("kind", ["methods", "parts", "models", "datasets", "partitions", "recipes", "tables"])
def test_what_there_is(kind: str, tmp_path: Path) -> None:
    assert api.entries(kind) == good(run_fork(tmp_path, "list", kind, "--json")).json


def test_methods_are_listed_unless_told_otherwise() -> None:
    assert api.entries() == api.entries("methods")


@pytest.mark.parametrize("name", ["fedpsd", "dirichlet", "demo", "window"])
def test_what_a_name_means(name: str, tmp_path: Path) -> None:
    assert api.describe(name) == good(run_fork(tmp_path, "show", name, "--json")).json


def test_the_machine() -> None:
    lines = api.examine_machine()
    assert any("Python" in line for line in lines)
    assert all(line.startswith(("ok ", "note ", "missing ")) for line in lines)


WRONG: dict[str, tuple[Any, str]] = {
    "file": (lambda: api.run("nothing.toml"), "neither a file nor a recipe"),
    "key": (lambda: api.run({"round": 3}), "round: there is no such key or table; did you mean 'rounds'"),
    "setting": (lambda: api.run(TINY, ["train.lr=-1"]), r"train\.lr: -1 is not allowed"),
    "method": (lambda: compared(TINY, methods=["scafold"]), "did you mean 'scaffold'"),
    "twice": (lambda: compared(TINY, TINY), "two experiments are called 'fedavg' with seed 1"),
    "nothing to compare": (lambda: compared(), "experiment"),
    "no seed": (lambda: compared(TINY, seeds=0), "seeds"),
    "kind": (lambda: api.entries("method"), "unknown kind 'method'; did you mean 'methods'"),
    "name": (lambda: api.describe("fedpdf"), "nothing is called 'fedpdf'"),
    "page": (lambda: api.write_report("nowhere"), "nowhere: not a run folder"),
    "page of nothing": (lambda: api.write_report(), "run"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_one_line(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is left behind."""
    monkeypatch.chdir(tmp_path)
    call, line = WRONG[case]
    with pytest.raises(UserError, match=line) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_the_package_offers_them() -> None:
    assert set(NAMES) <= set(remanence.__all__)
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        remanence.rum  # noqa: B018


def test_they_stay_functions_whatever_is_imported() -> None:
    """Modules of the package have some of these names, and importing a module puts it there."""
    program = (
        f"import remanence; names = {NAMES}; before = [callable(getattr(remanence, name)) for name in names]\n"
        "import remanence.api, remanence.simulation, remanence.report.groups, remanence.catalogue, remanence.doctor\n"
        "print(all(before), [name for name in names if not callable(getattr(remanence, name))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "True []"


def test_an_experiment_is_the_same_the_first_time_and_the_second() -> None:
    """In an interpreter that knows no method yet: by the digest, a later call finds the run of an earlier one."""
    program = (
        "from remanence.config import parse; tree = {'method': 'fedavgm'}\n"
        "first = parse(tree); second = parse(tree)\n"
        "print(first.general.label, second.general.label, first.digest() == second.digest())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "fedavgm fedavgm True"


def test_what_only_prints_does_not_load_torch() -> None:
    program = "import sys, remanence; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
