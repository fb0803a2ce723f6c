"""Peak memory of a run: how far resident memory grew beyond what was there when data and model were loaded."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


class PeakMemory:
    """Of this process and its workers together. Known on Linux only; it differs a little from run to run."""

    def __init__(self, workers: Sequence[int]) -> None:
        self.places = [Path("/proc") / name for name in ("self", *map(str, workers))]
        for place in self.places:
            with suppress(OSError):
                (place / "clear_refs").write_text("5")  # the peak begins anew
        self.before = self._sum("VmRSS")

    def growth(self) -> int | None:
        """Bytes; None where the system does not tell."""
        peak = self._sum("VmHWM")
        return None if peak is None or self.before is None else peak - self.before

    def _sum(self, field: str) -> int | None:
        found = [_field(place / "status", field) for place in self.places]
        known = [number for number in found if number is not None]
        return sum(known) if len(known) == len(found) else None


def _field(path: Path, field: str) -> int | None:
    with suppress(OSError):
        for line in path.read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return None
