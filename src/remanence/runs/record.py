"""A run as its folder tells it: everything that reports and comparisons are made from."""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remanence.errors import UserError
from remanence.runs.folder import RunFolder


@dataclass(frozen=True)
class RunRecord:
    folder: Path
    config: dict[str, Any]  # experiment.toml, fully resolved
    start: dict[str, Any]  # the first event: what was found before the first round
    rounds: list[dict[str, Any]]  # one event per round
    result: dict[str, Any] | None  # result.json; None while a run is unfinished
    timing: list[dict[str, Any]]  # {"round", "seconds", "samples"} per round

    @property
    def label(self) -> str:
        """What tells this run from the others of a comparison."""
        return str(self.config.get("label") or self.config["method"]["name"])

    @property
    def seed(self) -> int:
        return int(self.config["seed"])


def read_run(path: Path) -> RunRecord:
    folder, result = RunFolder(path), path / "result.json"
    try:
        config = tomllib.loads((path / "experiment.toml").read_text())
        folder.events.stat()
        events = folder.read_events()
        rounds = [event for event in events if event["event"] == "round"]
        told = json.loads(result.read_text()) if result.exists() else None
        return RunRecord(path, config, events[0], rounds, told, folder.read_timing())
    except FileNotFoundError as error:
        raise UserError(f"{path}: not a run folder ({Path(str(error.filename)).name} is missing)") from None
    except NotADirectoryError:
        raise UserError(f"{path}: not a run folder") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: damaged run folder ({type(error).__name__}: {str(error)[:80]})") from None
