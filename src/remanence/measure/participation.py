"""Who took part how often, and how evenly."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def participation_counts(rounds: Iterable[Iterable[int]], devices: int) -> np.ndarray:
    counts = np.zeros(devices, dtype=np.int64)
    for counted in rounds:
        np.add.at(counts, list(counted), 1)
    return counts


def turns(event: Mapping[str, Any]) -> list[int]:
    """The counted devices of a round, as often as they were counted."""
    often = event.get("turns") or [1] * len(event["counted"])
    return [device for device, turns in zip(event["counted"], often, strict=True) for _ in range(turns)]


def gini(counts: np.ndarray) -> float:
    """0: every device equally often; towards 1: one device always."""
    total = counts.sum()
    if not total:
        return 0.0
    ordered = np.sort(counts)
    ranks = np.arange(1, len(ordered) + 1)
    return float((2 * ranks - len(ordered) - 1).dot(ordered) / (len(ordered) * total))
