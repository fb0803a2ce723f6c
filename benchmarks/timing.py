"""The seconds that something takes, as the median of some tries."""

import statistics
import time
from collections.abc import Callable


def median_seconds(action: Callable[[], object], tries: int) -> float:
    taken = []
    for _ in range(tries):
        started = time.perf_counter()
        action()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)
