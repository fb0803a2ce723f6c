"""A run does not go on with other data than it began with."""

from pathlib import Path

import numpy as np
import pytest

from remanence.config import parse
from remanence.errors import UserError
from remanence.runs.play import play


def write(path: Path, seed: int) -> None:
    generator = np.random.default_rng(seed)
    y = np.arange(60) % 3
    np.savez(
        path, x_train=generator.normal(size=(60, 4)), y_train=y, x_test=generator.normal(size=(30, 4)), y_test=y[:30]
    )


def test_resume_with_other_data_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    tree = {
        "name": "mine", "rounds": 4, "data": {"path": str(path)},
        "devices": {"count": 3, "per_round": 2, "partition": "iid"}, "checkpoint": {"every": 1, "seconds": 0},
    }  # fmt: skip
    write(path, 1)
    folder = Path(play(parse(tree), tmp_path / "runs")["run"])
    (folder / "result.json").unlink()
    write(path, 2)
    with pytest.raises(UserError, match="began with other data"):
        play(parse(tree), tmp_path / "runs", resume=True)
    write(path, 1)
    assert play(parse(tree), tmp_path / "runs", resume=True)["rounds"] == 4
