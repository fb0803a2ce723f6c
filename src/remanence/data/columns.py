"""Which column of a table is what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remanence.errors import UserError, suggestion


@dataclass(frozen=True)
class Columns:
    """Which column is what; those that are neither label, group nor dropped are features."""

    label: str = "label"
    group: str | None = None
    drop: tuple[str, ...] = ()

    def features(self, present: Sequence[str], path: Path) -> list[str]:
        check_present({"data.label": (self.label,), "data.group": (self.group,), "data.drop": self.drop}, present, path)
        features = [name for name in present if name not in (self.label, self.group, *self.drop)]
        if not features:
            raise UserError(f"{path}: no feature columns besides {', '.join(present)}")
        return features


def check_present(wanted: Mapping[str, Sequence[str | None]], present: Sequence[str], path: Path) -> None:
    """`wanted`: the columns that each option names."""
    for key, names in wanted.items():
        for name in names:
            if name is not None and name not in present:
                raise UserError(f"{key}: {path} has no column '{name}'; {suggestion(name, present)}")
