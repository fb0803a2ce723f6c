"""Peak memory of a run: how far resident memory grew beyond what was there when data and model were loaded."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


class PeakMemory:
    """Of this process and its workers together. Known on Linux only; it differs a little from run to run."""

    def __init__(self) -> None:
        self.places: list[Path] = []
        self.before: int | None = 0
        self.include(["self"])

    def include(self, processes: Sequence[int | str]) -> None:
        """What these processes hold now is not counted."""
        places = [Path("/proc") / str(process) for process in processes]
        for place in places:
            with suppress(OSError):
                (place / "clear_refs").write_text("5")  # the peak begins anew
        self.places += places
        held = self._sum(places, "VmRSS")
        self.before = None if self.before is None or held is None else self.before + held

    def growth(self) -> int | None:
        """Bytes; None where the system does not tell."""
        peak = self._sum(self.places, "VmHWM")
        return None if peak is None or self.before is None else peak - self.before

    def _sum(self, places: Sequence[Path], field: str) -> int | None:
        found = [_field(place / "status", field) for place in places]
        known = [number for number in found if number is not None]
        return sum(known) if len(known) == len(found) else None


def _field(path: Path, field: str) -> int | None:
    with suppress(OSError):
        for line in path.read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return None
