"""How long a user waits before anything happens: imports, the command's help, the first round on digits."""

import argparse
import subprocess
import sys
from typing import Any

from benchmarks.arguments import positive
from benchmarks.players import ROOT
from benchmarks.timing import median_seconds
from remanence.errors import RunError

FIRST_ROUND = """
import numpy, torch, remanence
from remanence.data.datasets import load_dataset
from remanence.registry import models
digits = load_dataset(None, None, {})
rows = numpy.array_split(numpy.arange(len(digits.train)), 10)
devices = [(part.x, part.y) for part in (digits.prepare(digits.train.take(each)) for each in rows)]
test = digits.prepare(digits.test)
torch.manual_seed(0)
model = models.create("mlp").build(digits.shape, digits.classes)
result = remanence.simulate(model=model, devices=devices, test=(test.x, test.y), batches=10)
assert len(result.history) == 1
"""
HELP = "import sys; sys.argv = ['remanence', '--help']; from remanence.cli import main; sys.exit(main())"
NO_COMMAND = (
    "from importlib.util import find_spec; import sys; sys.exit(0 if find_spec('remanence.cli') is None else 1)"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tries", type=positive, default=3, help="the median of so many is told")


def measure(command: str, given: argparse.Namespace) -> dict[str, Any]:
    sources = {
        "python": "pass",
        "import": "import remanence",
        "torch": "import torch",
        "help": HELP,
        "first_round_digits": FIRST_ROUND,
    }
    if subprocess.run([sys.executable, "-c", NO_COMMAND], cwd=ROOT).returncode == 0:
        del sources["help"]
    seconds = {
        name: median_seconds(lambda source=source: _run(source), given.tries)  # type: ignore[misc]
        for name, source in sources.items()
    }
    names = ("python", "import", "torch", "help", "first_round_digits")
    return {"benchmark": command} | {f"{name}_seconds": seconds.get(name) for name in names}


def _run(source: str) -> None:
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RunError(f"startup: {(done.stderr.strip().splitlines() or ['it ended without a word'])[-1]}")
