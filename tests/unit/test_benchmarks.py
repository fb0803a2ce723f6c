"""The benchmarks: that they run end to end, what they print, and how they answer mistakes."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # benchmarks belong to the repository, not to the installed package

from benchmarks.__main__ import main  # noqa: E402
from benchmarks.bare_loop import Pooled, Single  # noqa: E402
from benchmarks.federated import workload_plan  # noqa: E402
from benchmarks.machine import ForeignWork, PeakMemory, process_tree  # noqa: E402
from benchmarks.merge import by_dictionary, reduced  # noqa: E402
from benchmarks.peers import VARIABLE, Harness, find_harness  # noqa: E402
from benchmarks.plain_models import plain_model  # noqa: E402
from benchmarks.players import Player  # noqa: E402
from benchmarks.raw_loop import RawLoop  # noqa: E402
from benchmarks.show import Table, text_of  # noqa: E402
from benchmarks.speed import Race, turns  # noqa: E402
from benchmarks.synthetic import StoredDevices, TinyDevices, write_data  # noqa: E402
from benchmarks.tiny_fleet import TinyFleet  # noqa: E402
from benchmarks.workloads import WORKLOADS, Settings  # noqa: E402
from remanence.core.federation import Federation  # noqa: E402
from remanence.core.state import equal  # noqa: E402
from remanence.engine.memory import one_thread  # noqa: E402
from remanence.errors import RunError, UserError  # noqa: E402

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def run(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """As a user does."""
    clean = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=ROOT, env=clean | environment, capture_output=True, text=True, timeout=120)


def result_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """In this process, which spares the start of another."""
    code = main([*words, "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    found: dict[str, Any] = json.loads(printed.out)
    return found


def refused(*words: str, **environment: str) -> str:
    done = run(*words, **environment)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("w2")
    write_data(WORKLOADS["w2"], folder)
    return folder


# --- speed ------------------------------------------------------------------------------------------------


def test_speed_runs_everything_that_is_compared_in_one_call() -> None:
    done = run("w2", "--rounds", "4", "--method", "scaffold", "--bare", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ratio"] == pytest.approx(found["samples_per_second"] / found["raw_samples_per_second"], rel=0.01)
    assert found["samples_per_second"] == pytest.approx(750 / found["round_seconds"], rel=0.01)
    assert found["raw_samples_per_second"] == pytest.approx(750 / found["raw_round_seconds"], rel=0.01)
    efficiency = found["samples_per_second"] / found["bare_samples_per_second"]
    assert found["engine_efficiency"] == pytest.approx(efficiency, rel=0.01)
    assert found["cost"] == pytest.approx(found["fedavg_samples_per_second"] / found["samples_per_second"], rel=0.01)
    assert found["first_round_seconds"] > 0
    expected = {"workload": "w2", "rounds": 4, "method": "scaffold", "precision": "float32", "workers": 1}
    assert expected.items() <= found.items()
    assert found["engine"].startswith("cohort")
    if sys.platform.startswith("linux"):
        assert 20 < found["peak_mb"] < 4096
        assert 0 <= found["foreign_cores"] <= (os.cpu_count() or 1)


@LINUX
def test_bare_workers_train_every_device_once(data: Path) -> None:
    settings = Settings("w2", str(data), 2, "scaffold", {"cohort": "off"}, carrier="pool", workers=2)
    federation = Federation(workload_plan(settings))
    pooled = Pooled(federation, 2)
    work = [(number, device) for number in (1, 2) for device in federation.choose(number)]
    pooled.train(work)
    assert pooled.next.value == len(work) + 2  # every worker has asked once more and found nothing left
    pooled.close()


def test_bare_loop_trains_as_the_engine_does(data: Path) -> None:
    settings = Settings("w2", str(data), 1, "scaffold", {"cohort": "off", "workers": 1})
    with one_thread(), Federation(workload_plan(settings)) as federation:
        single = Single(Federation(workload_plan(settings)))
        single.train([(1, device) for device in federation.choose(1)])
        federation.play_round()
        assert list(federation.states) == sorted(single.states)
        assert all(equal(federation.states.get(device), kept) for device, kept in single.states.items())


def test_rounds_are_shared_out_in_turns_of_at_most_a_block() -> None:
    assert turns(WORKLOADS["w2"], 200) == [50, 50, 50, 50]
    assert turns(WORKLOADS["w2"], 7) == [1] * 7
    assert turns(WORKLOADS["w2"], 450) == [50] * 9
    assert turns(WORKLOADS["w2"], 11) == [2, 2, 2, 2, 2, 1]
    assert turns(WORKLOADS["w1"], 3) == [1, 1, 1]


def test_result_takes_medians() -> None:
    race = Race("w2", {"engine": "e", "workers": 1}, {"remanence": [0.1, 0.3, 9.0], "raw": [0.6, 0.7, 0.5]}, 2.0)
    result = race.result()
    assert result["ratio"] == pytest.approx(2.0)
    assert result["samples_per_second"] == pytest.approx(2500)
    assert result["first_round_seconds"] == pytest.approx(1.7)
    assert "engine_efficiency" not in result


def test_workloads_have_the_stated_models_and_work() -> None:
    sizes = {"w1": (878_538, 25_000), "w2": (4_810, 750), "w3": (11_173_962, 1_000)}
    for name, (parameters, samples) in sizes.items():
        assert sum(p.numel() for p in WORKLOADS[name].build_model().parameters()) == parameters
        assert WORKLOADS[name].samples_per_round == samples


def test_raw_loop_learns_the_synthetic_data(data: Path) -> None:
    torch.manual_seed(0)
    devices = StoredDevices(data)
    loop = RawLoop(WORKLOADS["w2"], devices)
    x = torch.from_numpy(np.concatenate([x for x, _ in devices]))
    y = torch.from_numpy(np.concatenate([y for _, y in devices]))
    before = torch.nn.functional.cross_entropy(loop.model(x), y).item()
    loop.play(10)
    after = torch.nn.functional.cross_entropy(loop.model(x), y).item()
    assert after < 0.9 * before


# --- other measurements -----------------------------------------------------------------------------------


def test_memory_plays_until_every_device_took_part(capsys: pytest.CaptureFixture[str]) -> None:
    found = result_of(capsys, "memory", "--devices", "23", "--rounds", "4")
    assert found["devices"] == 23
    assert found["parameters"] == 4810
    if sys.platform.startswith("linux"):
        assert found["within_limit"] is True
        assert 20 < found["peak_mb"] < found["limit_mb"]


def test_resume_writes_and_reads_a_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    found = result_of(capsys, "resume", "--devices", "10", "--tries", "2")
    assert found["write_seconds"] > 0
    assert found["read_seconds"] > 0
    assert found["checkpoint_mb"] == pytest.approx(12 * 4810 * 4 / 2**20, rel=0.05)  # w, c, and c_k of ten devices


def test_merge_ways_agree_and_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    vectors = [torch.full((6,), float(value)) for value in (1, 2, 6)]
    assert reduced(vectors).tolist() == [3.0] * 6
    trees = [{"a": vector[:4], "b": vector[4:]} for vector in vectors]
    assert {name: part.tolist() for name, part in by_dictionary(trees).items()} == {"a": [3.0] * 4, "b": [3.0] * 2}
    found = result_of(capsys, "merge", "--tries", "1")
    assert found["111k"]["parameters"] == 111_310
    assert found["2.16M"]["parameters"] == 2_156_490
    assert all(found["111k"][f"{way}_milliseconds"] > 0 for way in ("reducer", "dictionary", "stack"))


def test_startup_times_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    found = result_of(capsys, "startup", "--tries", "1")
    assert 0 < found["python_seconds"] < found["first_round_digits_seconds"]
    assert 0 < found["import_seconds"] < found["torch_seconds"]


def test_selectors_are_set_against_the_proven_optimum(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from benchmarks import selection

    names = ("random draws: 1", "GBP-CS: pseudo-inverse", "best swap: 64 more starts", "exact: branch and bound")
    monkeypatch.setattr(selection, "SELECTORS", {name: selection.SELECTORS[name] for name in names})
    monkeypatch.setattr(selection, "EPSILONS", (0.5,))
    found = result_of(capsys, "selection", "--instances", "2", "--picture", str(tmp_path / "new" / "all.svg"))
    rows = {row["selector"]: row for row in found["selectors"]}
    assert tuple(rows) == names
    assert all(row["milliseconds"] > 0 for row in rows.values())
    assert all(value >= 0 for row in rows.values() for value in row["excess_percent"].values())
    assert rows["exact: branch and bound"]["optima_percent"] == 100
    assert 0.05 < rows["random draws: 1"]["divergence"]["dir20"] < 0.12
    assert 0.03 < rows["exact: branch and bound"]["divergence"]["dir20"] < 0.06
    noisy, exact = found["divergence_with_noise"]
    assert (noisy["epsilon"], exact["epsilon"]) == ("0.5", "exact")
    assert noisy["best_swap"]["dir20"] > exact["best_swap"]["dir20"]
    picture = (tmp_path / "new" / "all.svg").read_text()
    assert picture.startswith("<svg")
    assert all(text in picture for text in ("GBP-CS", "pseudo-inverse", "64 more starts", "Above the optimum"))
    assert "var(--" not in picture


def test_writers_are_as_skewed_as_they_should_be() -> None:
    from benchmarks.writers import BATCH, FAMILIES, PER_SITE, World, whole_mix

    assert whole_mix().sum() == pytest.approx(1)
    assert len(whole_mix()) == 62
    for family in FAMILIES.values():
        world = World(family, 0)
        assert sorted(world.sites.reshape(-1).tolist()) == list(range(350))
        assert world.written.sum(1).min() >= 100
        assert world.written.sum(1).mean() == pytest.approx(226.8, rel=0.05)
        assert world.written.sum(0) / world.written.sum() == pytest.approx(whole_mix(), abs=0.02)
        batches = world.batches(3)
        assert batches.shape == (PER_SITE, 62)
        assert (batches.sum(1) == BATCH).all()
        assert (batches <= world.written[world.sites[3]]).all()
        assert (batches == World(family, 0).batches(3)).all()
        assert (batches != World(family, 1).batches(3)).any()


def test_tiny_devices_are_the_same_whenever_they_are_made() -> None:
    devices = TinyDevices(3, (4,))
    assert len(devices) == 3
    assert np.array_equal(devices[1][0], devices[1][0])
    assert not np.array_equal(devices[1][0], devices[2][0])
    with pytest.raises(IndexError):
        devices[3]


# --- the machine ------------------------------------------------------------------------------------------


@LINUX
def test_memory_of_a_process_and_its_children_is_seen() -> None:
    source = "import subprocess, sys; subprocess.run([sys.executable, '-c', {!r}])"
    inner = "import sys; block = b'x' * 60_000_000; print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", source.format(inner)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        memory = PeakMemory(process.pid)
        assert len(process_tree(process.pid)) == 2
        process.communicate("")
    assert memory.megabytes is not None
    assert 57 < memory.megabytes < 200
    memory.look()
    assert memory.megabytes > 57


@LINUX
def test_own_work_is_not_foreign() -> None:
    foreign = ForeignWork()
    busy, own = foreign.busy, foreign.own
    sum(number * number for number in range(2_000_000))
    found = foreign.cores()
    assert found is not None
    assert found >= 0
    later = ForeignWork()
    assert later.own > own
    assert later.busy > busy


# --- peers ------------------------------------------------------------------------------------------------


def fake_harness(folder: Path, source: str) -> Harness:
    (folder / "run.py").write_text(source)
    return find_harness(str(folder))


def test_a_peer_is_measured_by_the_harness(tmp_path: Path) -> None:
    line = (
        "print('noise'); import json, sys; print(json.dumps({'samples_per_s': 50.0, 'round_s': 15, 'peer': sys.argv}))"
    )
    found = fake_harness(tmp_path, line).measure("other", "w2", 1, 2, ours=200.0)
    assert found["ratio_to_peer"] == 4
    assert found["peer_round_seconds"] == 15
    assert found["peer_peak_mb"] is None


def test_a_harness_that_fails_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="--peer other: no result: it is broken"):
        fake_harness(tmp_path, "print('it is broken')").measure("other", "w2", 1, 2, ours=1.0)
    with pytest.raises(UserError, match="--peer other: unknown"):
        fake_harness(tmp_path, "import sys; print('unknown', file=sys.stderr); sys.exit(2)").measure(
            "other", "w2", 1, 2, ours=1.0
        )


def test_a_missing_harness_is_told_before_anything_runs(tmp_path: Path) -> None:
    assert VARIABLE in refused("w2", "--peer", "flwr")
    assert "no run.py" in refused("w2", "--peer", "flwr", "--harness", str(tmp_path))
    assert str(tmp_path / "gone") in refused("w1", "--peer", "flwr", **{VARIABLE: str(tmp_path / "gone")})


# --- mistakes ---------------------------------------------------------------------------------------------


def test_an_unknown_benchmark_is_answered_with_the_nearest_name() -> None:
    assert "did you mean 'memory'?" in refused("memroy")
    assert "unknown benchmark 'w9'" in refused("w9", "--rounds", "1")
    assert "which benchmark?" in refused()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("w2", "--rounds", "0"), "'0' is not a whole number, 1 or more"),
        (("w2", "--workers", "many"), "'many' is not a whole number"),
        (("w2", "--cohort", "maybe"), "'maybe'"),
        (("w3", "--tries", "3"), "--tries"),
        (("selection", "--instances", "-1"), "'-1' is not a whole number"),
        (("selection", "--picture", "all.jpg"), "--picture: 'all.jpg' is not allowed: must end in .svg"),
    ],
)
def test_wrong_options_are_one_line(words: tuple[str, ...], expected: str) -> None:
    assert expected in refused(*words)


def test_a_mistake_found_by_a_measured_process_is_the_users(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings("w2", str(data), 1, method="fedavgg")
    with Player("remanence", asdict(settings)) as player, pytest.raises(UserError, match="did you mean 'fedavg'"):
        player.play(1)


def test_a_fleet_too_small_for_its_rounds_is_refused() -> None:
    with pytest.raises(UserError, match="--rounds: 4 is more than the 3 devices"):
        TinyFleet(devices=3, model="mlp", rounds=4).plan()


def test_a_measured_process_that_dies_is_a_run_that_failed() -> None:
    with Player("tiny", {"devices": 2, "model": "mlp", "rounds": 1}) as player:
        player.process.kill()
        with pytest.raises(RunError, match="the process 'tiny' ended"):
            player.play(1)


def test_help_names_every_benchmark() -> None:
    done = run("--help")
    assert done.returncode == 0
    names = [line.split()[0] for line in done.stdout.splitlines()[2:]]
    assert names == [*WORKLOADS, "startup", "memory", "merge", "resume", "selection"]


def test_the_table_is_for_people() -> None:
    table = text_of({"a_b": 1234567.0, "c": {"d": None, "e": True}, "f": "x", "g": 0.123456}, as_json=False)
    assert table.splitlines() == ["a b   1,234,567.0", "c: d  -", "c: e  True", "f     x", "g     0.1235"]
    assert json.loads(text_of({"a": 0.123456, "b": 12345.67}, as_json=True)) == {"a": 0.1235, "b": 12345.7}


def test_tables_line_up() -> None:
    rows = [
        {"what": "a", "size": {"low": 1.0, "high": 20.25}, "count": 3},
        {"what": "bcd", "size": {"low": None, "high": 1234.5}, "count": 12},
    ]
    shown = text_of({"x": 1, "the_rows": Table(rows, {"size": 1})}, as_json=False)
    assert shown.splitlines() == [
        "x  1",
        "",
        "the rows:",
        "      size",
        "what  low     high  count",
        "a     1.0     20.2      3",
        "bcd     -  1,234.5     12",
    ]
    assert json.loads(text_of({"the_rows": Table(rows, {})}, as_json=True)) == {"the_rows": rows}


@pytest.mark.parametrize("name", ["w1", "w2"])
def test_the_plain_models_are_the_registered_functions(name: str) -> None:
    """The ratio compares loops, so both sides must train the same network."""
    workload = WORKLOADS[name]
    plain, registered = plain_model(workload), workload.build_model()
    for mine, theirs in zip(registered.parameters(), plain.parameters(), strict=True):
        mine.data.copy_(theirs.data)
    x = torch.randn(4, *workload.shape)
    assert torch.allclose(plain(x), registered(x), atol=1e-5)
