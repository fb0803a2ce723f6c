"""Other frameworks on the same workloads, measured by a harness outside of this package."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remanence.errors import RunError, UserError

VARIABLE = "REMANENCE_BENCH_HARNESS"
LEAST_ROUNDS = 3  # the harness takes the time between the ends of rounds


@dataclass(frozen=True)
class Harness:
    """`run.py` in `folder` measures one peer per call and prints one JSON line."""

    folder: Path

    def measure(self, peer: str, workload: str, rounds: int, workers: int, ours: float) -> dict[str, Any]:
        command = [
            sys.executable,
            str(self.folder / "run.py"),
            "--peer",
            peer,
            "--workload",
            workload,
            "--rounds",
            str(max(rounds, LEAST_ROUNDS)),
            "--workers",
            str(workers),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 2:
            raise UserError(f"--peer {peer}: {_last_line(done.stderr)}")
        found = _last_object(done.stdout)
        if not found.get("samples_per_s"):
            reason = found.get("tail") or done.stderr or done.stdout
            raise RunError(f"--peer {peer}: no result: {_last_line(reason)}")
        return {
            "peer": peer,
            "ratio_to_peer": ours / found["samples_per_s"],
            "peer_samples_per_second": found["samples_per_s"],
            "peer_round_seconds": found.get("round_s"),
            "peer_peak_mb": found.get("peak_mem_mb"),
            "peer_foreign_cores": found.get("foreign_cores"),
        }


def find_harness(given: str | None) -> Harness:
    place = given or os.environ.get(VARIABLE)
    source = "--harness" if given else VARIABLE
    if not place:
        raise UserError(f"--peer: give the folder of the peers' harness with --harness or in {VARIABLE}")
    if not (Path(place) / "run.py").is_file():
        raise UserError(f"{source}: {place} is not a folder that holds a harness: there is no run.py in it")
    return Harness(Path(place))


def _last_object(text: str) -> dict[str, Any]:
    for line in reversed(text.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return {}


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1][:300]
