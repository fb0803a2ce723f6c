"""Whatever a run comes to, its logs and its result are JSON for any parser: no NaN, no Infinity."""

import json
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from system.running import Ended, good, run_fork

CLASSES = 3
LARGE: dict[str, Any] = {"train.lr": 1e-37, "data.path": "large.npz", "engine.cohort": "off"}
SETTINGS: dict[str, dict[str, Any]] = {
    "everything measured": {"measure.all": 1, "measure.devices": 1},
    "one device per round": {"devices.per_round": 1, "measure.all": 2, "measure.devices": 1},
    "seldom measured": {"measure.every": 3},
    "nothing arrives": {"engine.lost": 0.999999},
    "a model beyond every number": {"optimise.name": "fedavgm", "optimise.eta": 1e39},
    "logits beyond every number": {"optimise.name": "fedavgm", "optimise.eta": 1e38},
    "losses beyond every number": LARGE,
    "control variates beyond every number": LARGE | {"method.name": "scaffold"},
    "curvatures beyond every number": LARGE | {"method.name": "fedcurv"},
    "a window over seldom measured rounds": {"optimise.name": "window", "optimise.models": 2, "measure.every": 2},
}


def strict(text: str) -> Any:
    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} in {text}")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Devices of one class each; the test part knows nothing of the last class."""
    path = tmp_path_factory.mktemp("strict")
    y = np.arange(60) % CLASSES
    x = np.random.default_rng(0).normal(size=(60, 4)) + 2 * np.eye(CLASSES, 4)[y]
    known = y[:30] < CLASSES - 1
    for name, factor in (("small.npz", 1.0), ("large.npz", 4e37)):
        large = (x * factor).astype(np.float32)
        np.savez(path / name, x_train=large, y_train=y, x_test=large[:30][known], y_test=y[:30][known])
    return path


def run(folder: Path, case: str) -> Ended:
    base: dict[str, Any] = {
        "rounds": 5, "data.path": "small.npz", "data.normalise": "none", "data.classes": CLASSES, "devices.count": 3,
        "devices.per_round": 3, "devices.partition": "shards", "devices.per_device": 1, "model.hidden": [],
        "train.epochs": 1,
    } | SETTINGS[case]  # fmt: skip
    base["data.path"] = folder / base["data.path"]
    words = [f"--set={key}={value}" for key, value in base.items()]
    (folder / "strict.toml").write_text("")
    return run_fork(folder, "run", folder / "strict.toml", "--runs", folder / "runs", "--json", "--quiet", *words)


@pytest.mark.parametrize("case", SETTINGS)
def test_every_line_is_strict_json(folder: Path, case: str) -> None:
    ended = good(run(folder, case))
    result = strict(ended.out.splitlines()[-1])
    path = folder / result["run"]
    for name in ("events.jsonl", "timing.jsonl"):
        lines = (path / name).read_text().splitlines()
        assert len(lines) == 5 + (name == "events.jsonl")
        for line in lines:
            strict(line)
    for name in ("result.json", "evidence.json"):
        strict((path / name).read_text())


def test_the_cases_are_what_they_are_called(folder: Path) -> None:
    """Otherwise the test above would show little."""
    results = {case: good(run(folder, case)).json for case in ("everything measured", "a model beyond every number")}
    assert results["everything measured"]["per_class"][2] is None
    assert results["a model beyond every number"]["diverged"] is True
    events = (folder / results["everything measured"]["run"] / "events.jsonl").read_text().splitlines()
    for event in map(json.loads, events[1:]):
        assert 0 <= event["client_acc_all"] <= 1
        assert event["counted"] == [0, 1, 2]
