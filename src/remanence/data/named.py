"""Well-known datasets: where their files are looked for, and what must hold of them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from remanence.data.arrays import Names, npz_class_names, npz_parts
from remanence.data.assemble import About, Raw, assemble
from remanence.data.files import existing
from remanence.data.hub import HubName, hub_parts
from remanence.data.samples import Dataset
from remanence.errors import UserError

Parts = tuple[Raw, Raw, Sequence[str]]  # training part, test part, class names if the files tell them
Reader = Callable[[Path], Parts]


@dataclass(frozen=True)
class Known:
    """What is fixed about a named dataset."""

    about: About
    shape: tuple[int, ...]
    hub: HubName
    advice: str  # what data.path may point to, and how to get it
    packaged: tuple[Path, ...] = ()  # where an installed package puts it


def cache_folder() -> Path:
    """The user's copies of named datasets: `<name>/`, `<name>.npz` or `<name>.tar.gz` in this folder."""
    place = os.environ.get("REMANENCE_DATA") or Path("~/.cache/remanence")
    return Path(place).expanduser()


def load_named(known: Known, path: Path | None, read: Reader) -> Dataset:
    """From the path given, else the user's cache, else an installed package, else the hub."""
    places = _places(known)
    found = find(path, places)
    if found is None:
        return _from_hub(known, places)
    parts = _npz(found) if found.suffix == ".npz" else read(found)
    return _checked(known, parts, str(found))


def find(path: Path | None, places: Sequence[Path]) -> Path | None:
    """The path given, else the first place where something lies."""
    return existing(path) if path else next((place for place in places if place.exists()), None)


def not_found(name: str, places: Sequence[Path], failed: UserError, advice: str) -> UserError:
    """The line that says what was tried, the hub last, and how to get it."""
    reason = str(failed).partition("\n")[0].removeprefix("data.dataset: ")
    return UserError(
        f"data.name: '{name}' not found. Looked for {', '.join(map(str, places))}; then on the hub: {reason}\n"
        f"Give data.path: {advice}"
    )


def _places(known: Known) -> list[Path]:
    name = known.about.name
    return [cache_folder() / (name + ending) for ending in ("", ".npz", ".tar.gz")] + list(known.packaged)


def _npz(path: Path) -> Parts:
    parts = npz_parts(path, Names())
    if isinstance(parts, Raw):
        raise UserError(f"{path}: needs x_train, y_train, x_test and y_test; for x and y use data.name = 'npz'")
    return *parts, npz_class_names(path)


def _from_hub(known: Known, places: list[Path]) -> Dataset:
    try:
        parts = hub_parts(known.hub)
    except UserError as error:
        raise not_found(known.about.name, places, error, known.advice) from None
    return _checked(known, parts, f"hub: {known.hub.dataset}")


def _checked(known: Known, parts: Parts, origin: str) -> Dataset:
    train, test, names = parts
    for part in (train, test):
        if part.x.shape[1:] != known.shape or part.x.dtype != "uint8":
            raise UserError(
                f"{part.where}: wrong shape or type: {known.about.name} has images {known.shape} uint8, "
                f"these are {part.x.shape[1:]} {part.x.dtype}"
            )
    return assemble(train, test, replace(known.about, origin=origin, class_names=known.about.class_names or names))
