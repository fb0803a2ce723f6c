"""Call the command inside this process: quick enough to try hundreds of wrong ways."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remanence import commands
from remanence.cli import main
from system.running import EXPERIMENT, Ended

Call = Callable[..., Ended]
ACCEPTED = 99  # instead of an exit code


class Accepted(BaseException):
    """The input was found good, and would have been run."""


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one good experiment file, in which the command is called."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.toml").write_text(EXPERIMENT)
    return tmp_path


@pytest.fixture
def call(inside: Path, capfd: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str | Path) -> Ended:
        try:
            code = main([str(argument) for argument in arguments])
        except Accepted:
            code = ACCEPTED
        return Ended(code, *capfd.readouterr())

    return run


@pytest.fixture
def plays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is accepted is not run."""

    def accepted(*_: Any) -> None:
        raise Accepted

    monkeypatch.setattr(commands, "play", accepted)
    monkeypatch.setattr(commands, "play_cells", accepted)
