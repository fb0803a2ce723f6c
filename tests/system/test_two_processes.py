"""Two processes never write into one run folder; a comparison goes on in its newest folder."""

from pathlib import Path

import pytest

from remanence.config import parse
from remanence.errors import UserError
from remanence.runs.compare import comparison_path, plan_cells
from remanence.runs.folder import RunFolder
from remanence.runs.play import play

TREE = {
    "name": "two",
    "rounds": 2,
    "devices": {"count": 20, "per_round": 2, "partition": "iid"},
    "train": {"epochs": 1},
}


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(Path(play(parse(TREE), tmp_path)["run"]))
    (folder.path / "result.json").unlink()
    with folder.locked(), pytest.raises(UserError, match="another process"):
        play(parse(TREE), tmp_path, resume=True)
    assert play(parse(TREE), tmp_path, resume=True)["rounds"] == 2


def test_a_comparison_resumes_its_newest_folder(tmp_path: Path) -> None:
    cells = plan_cells([TREE], 2)
    first = comparison_path(cells, tmp_path, resume=True)
    assert first == comparison_path(cells, tmp_path, resume=False)
    first.mkdir()
    second = comparison_path(cells, tmp_path, resume=False)
    assert second.name == f"{first.name}-2"
    second.mkdir()
    assert comparison_path(cells, tmp_path, resume=True) == second
