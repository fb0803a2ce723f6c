"""remanence: federated learning across industrial devices that does not forget."""

import importlib
from typing import TYPE_CHECKING, Any

from remanence.errors import RunError, UserError

if TYPE_CHECKING:
    from remanence.api import compare, describe, entries, examine_machine, run, write_report
    from remanence.simulation import simulate

__version__ = "0.1.0"
__all__ = [
    "RunError",
    "UserError",
    "__version__",
    "compare",
    "describe",
    "entries",
    "examine_machine",
    "run",
    "simulate",
    "write_report",
]


def __getattr__(name: str) -> Any:
    # torch is loaded only when it is needed: commands that only print stay quick.
    if name == "simulate":
        return importlib.import_module("remanence.simulation").simulate
    if name in __all__:
        return getattr(importlib.import_module("remanence.api"), name)
    raise AttributeError(f"module 'remanence' has no attribute '{name}'")
