"""remanence: federated learning across industrial devices that does not forget."""

from typing import TYPE_CHECKING, Any

from remanence.errors import RunError, UserError

if TYPE_CHECKING:
    from remanence.simulation import simulate

__version__ = "0.1.0"
__all__ = ["RunError", "UserError", "__version__", "simulate"]


def __getattr__(name: str) -> Any:
    if name == "simulate":  # torch is loaded only when it is needed: commands that only print stay quick
        from remanence.simulation import simulate

        return simulate
    raise AttributeError(f"module 'remanence' has no attribute '{name}'")
