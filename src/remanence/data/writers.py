"""Which writers of a large collection are taken, and which of their samples are for training.

The rules of LEAF's preprocessing (`-s niid -t sample`), with random draws of our own: its own depend on the order in
which a folder lists its files.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remanence.core.rng import numpy_generator
from remanence.errors import UserError

BLOCK = 100  # writers that LEAF puts into one file


@dataclass(frozen=True)
class Rule:
    fraction: float  # of each block's samples
    least: int  # samples of a writer
    most: int  # writers; 0 = all
    seed: int


WHOLE = Rule(fraction=1.0, least=1, most=0, seed=0)


def taken(blocks: Sequence[np.ndarray], rule: Rule) -> list[np.ndarray]:
    """How many of its first samples are taken of every writer; `blocks` holds how many there are, by writer."""
    kept = [_drawn(sizes, rule, number) for number, sizes in enumerate(blocks)]
    whole = np.concatenate(kept)
    found = np.flatnonzero(whole)
    if not len(found):
        raise UserError(
            f"data.least: {rule.least} is not allowed: none of the {len(whole)} writers has so many samples "
            f"in a fraction of {rule.fraction}"
        )
    if rule.most:
        whole[numpy_generator(rule.seed, "writers").permutation(found)[rule.most :]] = 0
    return np.split(whole, np.cumsum([len(sizes) for sizes in blocks])[:-1])


def _drawn(sizes: np.ndarray, rule: Rule, number: int) -> np.ndarray:
    """Whole writers in random order up to the fraction, the last one cut to fit; then those with too few left out."""
    order = numpy_generator(rule.seed, "fraction", number).permutation(len(sizes))
    before = np.cumsum(sizes[order]) - sizes[order]
    drawn = np.empty(len(sizes), dtype=np.int64)
    drawn[order] = np.clip(int(rule.fraction * sizes.sum()) - before, 0, sizes[order])
    return np.where(drawn >= rule.least, drawn, 0)


def in_blocks(owner: np.ndarray, writers: int, rule: Rule) -> np.ndarray:
    """The rows that are taken of a table, writer by writer; `owner` numbers every row's writer."""
    sizes = np.bincount(owner, minlength=writers)
    kept = np.concatenate(taken(np.split(sizes, range(BLOCK, writers, BLOCK)), rule))
    order = np.argsort(owner, kind="stable")
    place = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # of each row among its writer's
    rows: np.ndarray = order[place < np.repeat(kept, sizes)]
    return rows


def divided_by_sample(group: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the training and of the test part: max(1, int(share N)) random ones of every writer's N, the rest."""
    chosen = np.zeros(len(group), dtype=bool)
    owner = np.unique(group, return_inverse=True)[1]
    order = np.argsort(owner, kind="stable")
    for number, rows in enumerate(np.split(order, np.cumsum(np.bincount(owner))[:-1])):
        generator = numpy_generator(seed, "share", number)
        chosen[generator.permutation(rows)[: max(1, int(share * len(rows)))]] = True
    return np.flatnonzero(chosen), np.flatnonzero(~chosen)
