"""Forgetting: how far each class, or task, has fallen below its best earlier round (FedAWAC's Eq. 34)."""

from collections.abc import Sequence

import numpy as np


def forgetting(history: Sequence[Sequence[float | None]]) -> tuple[float | None, float | None]:
    """As printed (a class at its best in the last round counts negative), and clamped at 0.

    `history` has a row per measured round and a column per class; a class without test samples is None throughout.
    """
    if len(history) < 2:
        return None, None
    table = np.array([[np.nan if value is None else value for value in row] for row in history])
    table = table[:, ~np.isnan(table[-1])]
    if table.shape[1] == 0:
        return None, None
    falls = table[:-1].max(axis=0) - table[-1]
    return float(falls.mean()), float(np.maximum(falls, 0.0).mean())
