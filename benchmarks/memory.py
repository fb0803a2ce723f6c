"""Peak memory and disk of a large fleet whose every device keeps a state as large as the model."""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.arguments import positive
from benchmarks.machine import PeakMemory
from benchmarks.players import Player

LIMIT_MB = 4096


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--devices", type=positive, default=10_000)
    parser.add_argument("--model", default="mlp", help="any registered model; 3x32x32 images, for mlp 64 numbers")
    parser.add_argument("--method", default="scaffold")
    parser.add_argument("--rounds", type=positive, default=10, help="in which every device takes part once")


def measure(command: str, given: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="remanence-benchmark-") as folder:
        fleet: dict[str, Any] = {
            "devices": given.devices,
            "model": given.model,
            "method": given.method,
            "rounds": given.rounds,
            "folder": folder,
        }
        started = time.perf_counter()
        with Player("tiny", fleet) as player:
            memory = PeakMemory(player.process.pid)
            with memory.watching():
                # One round more than all devices need: the first of them read their states back.
                facts = player.play(given.rounds + 1)
        seconds = time.perf_counter() - started
        del fleet["folder"]
        peak = memory.megabytes
        return {
            "benchmark": command,
            **fleet,
            "parameters": facts["parameters"],
            "peak_mb": peak,
            "limit_mb": LIMIT_MB,
            "within_limit": None if peak is None else peak < LIMIT_MB,
            "disk_mb": _disk_megabytes(Path(folder)),
            "seconds": seconds,
            "rounds_seconds": facts["seconds"],
            "engine": facts["engine"],
        }


def _disk_megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
