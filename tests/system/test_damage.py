"""Folders that were damaged, exchanged or mixed up: --resume says which file, and touches nothing before it knows."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from remanence.core.state import load, save
from system.running import (
    EXPERIMENT,
    Ended,
    Fork,
    held_back,
    lines,
    nothing,
    only_run,
    refused,
    resumed,
    run_fork,
    same_end,
    started,
    states_in_files,
    unbroken,
    until,
    without_report,
)

Damage = Callable[[Path], Path]  # does harm to a run folder, returns the file that must be named
SETTINGS = """
[method]
name = "scaffold"
[engine]
cohort = "on"
[checkpoint]
seconds = 0
every = 2
"""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run killed behind its second checkpoint, and the same run unbroken."""
    folder = tmp_path_factory.mktemp("stopped")
    (folder / "run.toml").write_text(EXPERIMENT + SETTINGS)
    with started(folder, "run", folder / "run.toml", "--runs", folder / "runs", prepare=partial(held_back, 5)) as run:
        until(lambda: lines(folder / "runs") == 6, "the fifth round")
        run.kill()
    assert len(list((only_run(folder / "runs") / "checkpoints").iterdir())) == 2
    assert unbroken(folder, folder / "run.toml").code == 0
    return folder


@pytest.fixture
def broken(stopped: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    shutil.copytree(stopped, tmp_path / "copy")
    return tmp_path / "copy"


def the_end(folder: Path) -> Ended:
    """What the unbroken run printed."""
    again = run_fork(folder, "run", folder / "run.toml", "--runs", folder / "unbroken", "--json", "--quiet", "--resume")
    assert again.code == 0
    return again


def newest(run: Path) -> Path:
    return sorted((run / "checkpoints").iterdir())[-1]


def halved(run: Path) -> Path:
    path = newest(run)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def emptied(run: Path) -> Path:
    newest(run).write_bytes(b"")
    return newest(run)


def garbage(run: Path) -> Path:
    newest(run).write_bytes(b"\x10\0\0\0\0\0\0\0not a checkpoint")
    return newest(run)


def strange(run: Path) -> Path:
    """A good file of ours, but no checkpoint."""
    save(newest(run), {"w": load(newest(run))["w"]})
    return newest(run)


def without_a_key(run: Path) -> Path:
    tree = load(newest(run))
    save(newest(run), {key: value for key, value in tree.items() if key != "srv"})
    return newest(run)


def flipped(share: float, run: Path) -> Path:
    """One bit in the header, the tree or the numbers."""
    path = newest(run)
    content = bytearray(path.read_bytes())
    content[int(share * len(content))] ^= 0x10
    path.write_bytes(bytes(content))
    return path


def other_round(run: Path) -> Path:
    """Only the number of the round is changed, inside the text that describes the tree."""
    path = newest(run)
    content = path.read_bytes()
    assert content.count(b'\\"round\\", 4') == 1
    path.write_bytes(content.replace(b'\\"round\\", 4', b'\\"round\\", 3'))
    return path


CHECKPOINTS: dict[str, Damage] = {
    "halved": halved,
    "emptied": emptied,
    "garbage": garbage,
    "strange": strange,
    "without-a-key": without_a_key,
    "other-round": other_round,
    **{f"flipped-at-{share}": partial(flipped, share) for share in (0.0001, 0.01, 0.2, 0.4, 0.6, 0.8, 0.9999)},
}


@pytest.mark.parametrize("damage", CHECKPOINTS)
def test_damaged_checkpoints(damage: str, broken: Path) -> None:
    run = only_run(broken / "runs")
    events = (run / "events.jsonl").read_bytes()
    path = CHECKPOINTS[damage](run)
    refused(resumed(broken, broken / "run.toml"), path.name)
    assert (run / "events.jsonl").read_bytes() == events
    path.unlink()  # as the line advises: the older one is still there
    same_end(resumed(broken, broken / "run.toml"), the_end(broken))


def test_all_checkpoints_damaged(broken: Path) -> None:
    """The line must not advise what does not help."""
    run = only_run(broken / "runs")
    for path in (run / "checkpoints").iterdir():
        path.write_bytes(b"")
    refused(resumed(broken, broken / "run.toml"), newest(run).name)
    for path in (run / "checkpoints").iterdir():
        path.unlink()
    same_end(resumed(broken, broken / "run.toml"), the_end(broken))


@pytest.mark.parametrize("change", ["method.eta_g=0.5", "model.hidden=[9]", "method=fedavg", "seed=2"])
def test_the_checkpoint_of_another_experiment(change: str, broken: Path) -> None:
    run = only_run(broken / "runs")
    other = run_fork(
        broken, "run", broken / "run.toml", "--runs", broken / "other", "--json", "--quiet", "--set", change
    )
    events = (run / "events.jsonl").read_bytes()
    shutil.copy(newest(Path(other.json["run"])), newest(run))
    refused(resumed(broken, broken / "run.toml"), "checkpoint", "of another")
    assert (run / "events.jsonl").read_bytes() == events


def test_the_folder_of_another_experiment(broken: Path) -> None:
    path = only_run(broken / "runs") / "experiment.toml"
    path.write_text(path.read_text().replace("eta_g = 1.0", "eta_g = 2.0"))
    refused(resumed(broken, broken / "run.toml"), "another experiment", "method.eta_g is 2.0 there, 1.0 here")


def test_a_damaged_experiment_in_the_folder(broken: Path) -> None:
    path = only_run(broken / "runs") / "experiment.toml"
    path.write_text(path.read_text()[:100])
    refused(resumed(broken, broken / "run.toml"), "experiment.toml")


def middle(content: bytes, text: bytes) -> bytes:
    """`text` over as many bytes of the second line."""
    start = content.index(b"\n") + 20
    return content[:start] + text + content[start + len(text) :]


LOGS = {
    "cut": lambda content: content[: len(content) // 2],
    "emptied": lambda content: b"",
    "garbage": lambda content: middle(content, b"\xff\xfe\x00\x01"),
    "words": lambda content: middle(content, b"} this was edited {"),
    "numbers": lambda content: content.splitlines(keepends=True)[0] + b"5\n" * len(content),
    "other-entries": lambda content: content.splitlines(keepends=True)[0] + b'{"a":1}\n' * len(content),
    "nested": lambda content: content.splitlines(keepends=True)[0] + b"[" * 200_000,
}


@pytest.mark.parametrize("log", ["events.jsonl", "timing.jsonl"])
@pytest.mark.parametrize("damage", LOGS)
def test_damaged_logs(log: str, damage: str, broken: Path) -> None:
    path = only_run(broken / "runs") / log
    path.write_bytes(LOGS[damage](path.read_bytes()))
    before, checkpoint = path.read_bytes(), newest(path.parent).read_bytes()
    refused(resumed(broken, broken / "run.toml"), log)
    assert path.read_bytes() == before
    assert newest(path.parent).read_bytes() == checkpoint


@pytest.mark.parametrize("log", ["events.jsonl", "timing.jsonl"])
def test_a_log_that_is_gone(log: str, broken: Path) -> None:
    (only_run(broken / "runs") / log).unlink()
    refused(resumed(broken, broken / "run.toml"), log)


def test_half_a_line_behind_the_checkpoint_does_not_matter(broken: Path) -> None:
    """What a crash of the whole machine may leave."""
    with open(only_run(broken / "runs") / "events.jsonl", "ab") as file:
        file.write(b'{"event":"round","round":6,"lr"')
    same_end(resumed(broken, broken / "run.toml"), the_end(broken))


@pytest.mark.parametrize("damage", [name for name in LOGS if name not in ("cut",)])
def test_reports_of_damaged_runs(damage: str, broken: Path) -> None:
    path = only_run(broken / "runs") / "events.jsonl"
    path.write_bytes(LOGS[damage](path.read_bytes()))
    refused(run_fork(broken, "report", path.parent, prepare=nothing), path.parent.name)


def test_a_damaged_result(broken: Path) -> None:
    run = only_run(broken / "unbroken")
    (run / "result.json").write_text('{"rounds": ')
    ended = run_fork(broken, "run", broken / "run.toml", "--runs", broken / "unbroken", "--resume", "--json")
    refused(ended, "result.json")


def test_a_damaged_comparison(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(EXPERIMENT)
    arguments = [
        "compare",
        tmp_path / "run.toml",
        "--methods",
        "fedavg,fedprox",
        "--runs",
        tmp_path / "runs",
        "--json",
        "--quiet",
        "--set",
        "rounds=2",
    ]
    path = Path(run_fork(tmp_path, *arguments).json["run"])
    (path / "comparison.json").write_text("[5]")
    refused(run_fork(tmp_path, "report", path, prepare=nothing), "comparison.json")
    assert run_fork(tmp_path, *arguments, "--resume").code == 0


@pytest.fixture(scope="module")
def stopped_with_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "run.toml").write_text(EXPERIMENT + SETTINGS)
    with started(
        folder, "run", folder / "run.toml", "--runs", folder / "runs", prepare=partial(held_back_with_files, 5)
    ) as run:
        until(lambda: lines(folder / "runs") == 6, "the fifth round")
        run.kill()
    return folder


def held_back_with_files(round: int) -> None:
    held_back(round)
    states_in_files()


@pytest.mark.parametrize("damage", ["gone", "halved"])
def test_damaged_states_of_devices(damage: str, stopped_with_files: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped_with_files, tmp_path / "copy")
    run = only_run(tmp_path / "copy" / "runs")
    referred = load(newest(run))["devices"]["files"].values()
    for name in referred:
        path = run / "devices" / name
        path.unlink() if damage == "gone" else path.write_bytes(path.read_bytes()[:50])
    ended = resumed(tmp_path / "copy", tmp_path / "copy" / "run.toml", states_in_files)
    refused(ended, "devices/", ".safetensors")


# Places that cannot be written


def test_runs_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(EXPERIMENT)
    for arguments in (["run"], ["compare", "--seeds", "2"]):
        ended = run_fork(tmp_path, *arguments, tmp_path / "run.toml", "--runs", tmp_path / "run.toml", "--quiet")
        refused(ended, "--runs", "run.toml")
        ended = run_fork(
            tmp_path, *arguments, tmp_path / "run.toml", "--runs", tmp_path / "run.toml" / "below", "--quiet"
        )
        refused(ended, "--runs", "run.toml")


def test_runs_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(EXPERIMENT)
    for place in ("/proc/runs", "/dev/null/runs"):
        for arguments in (["run"], ["compare", "--seeds", "2"]):
            ended = run_fork(tmp_path, *arguments, tmp_path / "run.toml", "--runs", place, "--quiet")
            refused(ended, "--runs", place)


def test_the_page_cannot_be_written(stopped: Path) -> None:
    pytest.importorskip("altair")
    run = only_run(stopped / "unbroken")
    refused(run_fork(stopped, "report", run, "--out", "/proc/page.html", prepare=nothing), "/proc/page.html")


def test_a_log_that_is_a_folder(tmp_path: Path) -> None:
    """Something else stands where the log should be."""
    (tmp_path / "run.toml").write_text(EXPERIMENT)
    fork = Fork(tmp_path, "run", tmp_path / "run.toml", "--runs", tmp_path / "runs", "--quiet", prepare=log_in_the_way)
    refused(fork.wait(), "events.jsonl", code=1)


def log_in_the_way() -> None:
    from remanence.runs.folder import RunFolder

    without_report()
    restart = RunFolder.restart

    def in_the_way(folder: RunFolder) -> None:
        restart(folder)
        folder.events.mkdir()

    RunFolder.restart = in_the_way


def test_timing_has_a_line_per_round(stopped: Path) -> None:
    told = (only_run(stopped / "unbroken") / "timing.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in told] == [1, 2, 3, 4, 5, 6]
