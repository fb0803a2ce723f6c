"""How long it takes to write a checkpoint, flushed to the disk, and to read it back."""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.arguments import positive
from benchmarks.timing import median_seconds
from benchmarks.tiny_fleet import TinyFleet, tiny_federation
from remanence.core import state
from remanence.core.federation import Federation
from remanence.errors import RunError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--devices", type=positive, default=100)
    parser.add_argument("--model", default="mlp", help="any registered model; 3x32x32 images, for mlp 64 numbers")
    parser.add_argument("--method", default="scaffold")
    parser.add_argument("--tries", type=positive, default=5, help="the median of so many is told")


def measure(command: str, given: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="remanence-benchmark-") as folder:
        path, states = Path(folder) / "checkpoint.safetensors", Path(folder) / "devices"
        fleet = TinyFleet(given.devices, given.model, rounds=1, method=given.method, folder=str(states))
        with tiny_federation(fleet) as federation:
            federation.play_round()
            write = median_seconds(lambda: state.save(path, federation.tree()), given.tries)
            read = median_seconds(lambda: federation.restore(state.load(path)), given.tries)
            _check(federation, path)
        return {
            "benchmark": command,
            "devices": given.devices,
            "model": given.model,
            "method": given.method,
            "write_seconds": write,
            "read_seconds": read,
            "checkpoint_mb": path.stat().st_size / 2**20,
            "device_files_mb": sum(file.stat().st_size for file in states.glob("*")) / 2**20,
        }


def _check(federation: Federation, path: Path) -> None:
    if not state.equal(federation.tree(), state.load(path)):
        raise RunError("resume: what was read is not what was written")
