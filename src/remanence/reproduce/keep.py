"""The measured cells, small enough to keep in a repository: run folders with the metrics only."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remanence.errors import RunError
from remanence.reproduce.play import Cell

LEFT_OUT = {"start": {"class_mix"}, "round": {"selected", "per_task"}}


def keep_cells(cells: Sequence[Cell], played: Path, kept: Path) -> None:
    """Copy what was played beyond what is kept already."""
    for cell in cells:
        if cell.rounds_in(played) > cell.rounds_in(kept):
            _keep(played / cell.name, kept / cell.name)


def _keep(source: Path, target: Path) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in ("experiment.toml", "timing.jsonl"):
            shutil.copyfile(source / name, target / name)
        lines = [_thinned(json.loads(line)) for line in (source / "events.jsonl").read_text().splitlines()]
        (target / "events.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        for name in ("evidence.json", "result.json"):
            if (source / name).exists():
                content = _anywhere(json.loads((source / name).read_text()))
                (target / name).write_text(json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise RunError(f"{target}: could not be written: {str(error.strerror).lower()}") from None


def _thinned(event: dict[str, Any]) -> dict[str, Any]:
    dropped = LEFT_OUT.get(event["event"], set())
    return _anywhere({key: value for key, value in event.items() if key not in dropped})


def _anywhere(facts: dict[str, Any]) -> dict[str, Any]:
    """Without the folders of the machine on which it was played."""
    origin = {"origin": Path(facts["origin"]).name} if "origin" in facts else {}
    return {key: value for key, value in facts.items() if key != "run"} | origin
