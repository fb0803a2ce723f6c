"""A run as its folder tells it: everything that reports and comparisons are made from."""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remanence.errors import UserError


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


def read_run(folder: Path) -> RunRecord:
    try:
        config = tomllib.loads((folder / "experiment.toml").read_text())
        events = _lines(folder / "events.jsonl")
        result = folder / "result.json"
        return RunRecord(
            folder,
            config,
            events[0],
            [e for e in events if e["event"] == "round"],
            json.loads(result.read_text()) if result.exists() else None,
            _lines(folder / "timing.jsonl"),
        )
    except FileNotFoundError as error:
        raise UserError(f"{folder}: not a run folder ({Path(str(error.filename)).name} is missing)") from None
    except (ValueError, KeyError, IndexError) as error:
        raise UserError(f"{folder}: damaged run folder ({error})") from None


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
