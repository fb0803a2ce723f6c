"""NPZ files: x_train, y_train, x_test, y_test, or x and y to be divided."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from remanence.data.assemble import Raw
from remanence.data.files import npz_arrays, npz_names
from remanence.data.layout import Layout, arranged
from remanence.errors import UserError


@dataclass(frozen=True)
class Names:
    """What the arrays are called, without `_train` and `_test`."""

    x: str = "x"
    y: str = "y"
    group: str | None = None

    def with_ending(self, ending: str) -> dict[str, str]:
        wanted = {"x": self.x, "y": self.y, "group": self.group}
        return {role: name + ending for role, name in wanted.items() if name}


def npz_parts(path: Path, names: Names, layout: Layout = "auto") -> tuple[Raw, Raw] | Raw:
    """The two parts, or one `Raw` when the file is not divided."""
    present = set(npz_names(path))
    for ending in ("_train", ""):
        if {names.x + ending, names.y + ending} <= present:
            break
    else:
        raise UserError(
            f"{path}: needs the arrays {names.x}_train, {names.y}_train, {names.x}_test and {names.y}_test, "
            f"or {names.x} and {names.y}; it has {', '.join(sorted(present)) or 'none'}"
        )
    if not ending:
        return _part(path, names, "", layout)
    return _part(path, names, "_train", layout), _part(path, names, "_test", layout)


def npz_class_names(path: Path) -> tuple[str, ...]:
    """The text array `classes`, if the file has one."""
    if "classes" not in npz_names(path):
        return ()
    names = npz_arrays(path, ["classes"])["classes"]
    return tuple(names.tolist()) if names.ndim == 1 and names.dtype.kind == "U" else ()


def _part(path: Path, names: Names, ending: str, layout: Layout) -> Raw:
    wanted = names.with_ending(ending)
    arrays = npz_arrays(path, list(wanted.values()))
    x, y = arrays[wanted["x"]], arrays[wanted["y"]]
    where = f"{path} ({wanted['x']}, {wanted['y']})"
    group: np.ndarray | None = arrays[wanted["group"]] if "group" in wanted else None
    return Raw(arranged(x, layout, where), y, where, group)
