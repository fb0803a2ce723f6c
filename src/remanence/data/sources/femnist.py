"""FEMNIST as LEAF makes it: handwritten digits and letters of NIST Special Database 19, grouped by writer.

62 classes and grey images of 28x28 on a background of 1.0: nothing is inverted, centred or standardised. Read are
LEAF's JSON files (the folder `all_data`, or the folders `train` and `test` of its own division, which is then kept) and
Parquet as on the hub (columns image, writer_id, and character or label). What is not divided yet is reduced and divided
by LEAF's rules `-s niid -k ... -t sample`; the defaults are those of FedGS: `--sf 0.1 -k 100`, about 350 writers.
Deviations: files and writers are gone through in the order of their names, where LEAF takes that of the folder, so
that the writers are others; a table is treated as if it lay in files of 100 writers; with `-k 100` LEAF also drops
a writer of exactly 100 samples.
"""

import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import Field

from remanence.data.assemble import About, Raw, assemble
from remanence.data.hub import HubName, hub_owned
from remanence.data.leaf import Form, leaf_files, leaf_sizes, leaf_users
from remanence.data.named import cache_folder, find, not_found
from remanence.data.picture_tables import PictureTable, picture_table
from remanence.data.samples import Dataset
from remanence.data.text_tables import is_parquet
from remanence.data.writers import WHOLE, Rule, divided_by_sample, in_blocks, taken
from remanence.errors import UserError
from remanence.registry import datasets, options

_SIDE = 28
_NAMES = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
_FORM = Form(_SIDE * _SIDE, len(_NAMES))
_TABLE = PictureTable("image", "writer_id", ("character", "label"), _SIDE, _NAMES)
_HUB = HubName("flwrlabs/femnist", label="character", group="writer_id")
_ADVICE = "LEAF's folder all_data of JSON files, the folder above its train and test, or the hub's Parquet files"


@datasets.register("femnist")
@options
class Femnist:
    """Handwritten digits and letters by writer, 62 classes; by default a tenth, drawn as for FedGS."""

    path: Path | None = None
    fraction: float = Field(0.1, gt=0, le=1, description="of the samples, in whole writers drawn at random; 1 = all")
    least: int = Field(100, ge=2, description="samples that a writer must have")
    writers: int = Field(0, ge=0, description="drawn at random where there are more; 0 = all")
    train: float = Field(0.9, gt=0, lt=1, description="share of every writer's samples, the rest is for testing")
    sample_seed: int = Field(0, ge=0, lt=2**53, description="of the draw of writers")
    split_seed: int = Field(0, ge=0, lt=2**53, description="of the division of their samples")

    def load(self) -> Dataset:
        places = [cache_folder() / "femnist", cache_folder() / "femnist.parquet"]
        found = find(self.path, places)
        if found is None:
            return self._divided(*self._from_hub(places))
        folder = _own_division(found)
        if folder is not None:
            return self._as_divided(folder)
        return self._divided(self._read(found), str(found))

    def _rule(self) -> Rule:
        return Rule(self.fraction, self.least, self.writers, self.sample_seed)

    def _read(self, place: Path) -> Raw:
        tables = [place] if is_parquet(place) else sorted([*place.glob("*.parquet"), *place.glob("data/*.parquet")])
        if tables:
            return picture_table(tables, _TABLE, self._choose)
        files = _undivided(place)
        sizes = _sizes(files)
        return _leaf_part(files, sizes, _wanted(sizes, self._rule()))

    def _choose(self, owner: np.ndarray) -> np.ndarray:
        names, number = np.unique(owner, return_inverse=True)
        return in_blocks(number, len(names), self._rule())

    def _from_hub(self, places: Sequence[Path]) -> tuple[Raw, str]:
        try:
            raw, names = hub_owned(_HUB, self._choose)
        except UserError as error:
            raise not_found("femnist", places, error, _ADVICE) from None
        named = names and names != _NAMES
        return replace(raw, y=np.array(names)[raw.y]) if named else raw, f"hub: {_HUB.dataset}"

    def _divided(self, whole: Raw, origin: str) -> Dataset:
        assert whole.group is not None
        train, test = divided_by_sample(whole.group, self.train, self.split_seed)
        count = len(np.unique(whole.group))
        origin += f" ({count} writers of at least {self.least} samples, drawn from a share of {self.fraction:g})"
        return _assembled(whole.take(train), whole.take(test), origin)

    def _as_divided(self, folder: Path) -> Dataset:
        """LEAF has drawn and divided already; `writers` may still take some of those in its training part."""
        files = [leaf_files(folder / part) for part in ("train", "test")]
        train, test = map(_sizes, files)
        wanted = _wanted(train, replace(WHOLE, most=self.writers, seed=self.sample_seed))
        known = {name for part in wanted for name in part} if self.writers else {name for part in test for name in part}
        also = [{name: size for name, size in part.items() if name in known} for part in test]
        parts = _leaf_part(files[0], train, wanted), _leaf_part(files[1], test, also)
        return _assembled(*parts, f"{folder} (as LEAF divided it)")


def _own_division(place: Path) -> Path | None:
    folders = (place, place / "data")
    return next((f for f in folders if leaf_files(f / "train") and leaf_files(f / "test")), None)


def _undivided(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    found = next(filter(None, map(leaf_files, (place, place / "all_data", place / "data" / "all_data"))), None)
    if found is None:
        raise UserError(f"data.path: {place}: no JSON and no Parquet files there; give {_ADVICE}")
    return found


def _sizes(files: Sequence[Path]) -> list[dict[str, int]]:
    """Samples of every user, by file."""
    sizes = [leaf_sizes(path) for path in files]
    name, times = Counter(name for part in sizes for name in part).most_common(1)[0] if any(sizes) else ("", 0)
    if times > 1:
        raise UserError(f"{files[0].parent}: user '{name}' is in {times} files")
    return sizes


def _wanted(sizes: Sequence[dict[str, int]], rule: Rule) -> list[dict[str, int]]:
    """Of every file the users that are taken, and how many of their samples."""
    kept = taken([np.array([*part.values()], dtype=np.int64) for part in sizes], rule)
    return [
        {name: int(count) for name, count in zip(part, counts, strict=True) if count}
        for part, counts in zip(sizes, kept, strict=True)
    ]


def _leaf_part(files: Sequence[Path], sizes: Sequence[dict[str, int]], wanted: Sequence[dict[str, int]]) -> Raw:
    users = [user for place in zip(files, sizes, wanted, strict=True) for user in leaf_users(*place, _FORM)]
    if not users:
        raise UserError(f"{files[0].parent}: has no samples of the writers of the training part")
    x = np.concatenate([user.x for user in users]).reshape(-1, 1, _SIDE, _SIDE)
    group = np.repeat([user.name for user in users], [len(user.y) for user in users])
    return Raw(x, np.concatenate([user.y for user in users]), str(files[0].parent), group)


def _assembled(train: Raw, test: Raw, origin: str) -> Dataset:
    about = About("femnist", origin, len(_NAMES), _NAMES, normalise="none")
    for part in (train, test):
        if part.x.shape[1:] != (1, _SIDE, _SIDE) or part.x.dtype != np.uint8:
            raise UserError(f"{part.where}: images {part.x.shape[1:]} {part.x.dtype}, expected (1, 28, 28) uint8")
    return assemble(train, test, about)
