"""Correct answers per class: the numbers from which every accuracy is computed."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from remanence.core.vector import FlatModel
from remanence.data.samples import Samples

BATCH = 500  # fixed, because models with batch statistics answer by batch


@torch.no_grad()
def count_correct(net: FlatModel, samples: Samples, start: int = 0, stop: int | None = None) -> tuple[Tensor, float]:
    """Correct answers per class and the summed loss over samples start..stop, in evaluation mode."""
    net.train(False)
    correct, loss = torch.zeros(samples.classes, dtype=torch.int64), 0.0
    for first in range(start, len(samples) if stop is None else stop, BATCH):
        batch = samples.batch(torch.arange(first, min(first + BATCH, len(samples))))
        logits = net(batch.x)
        right = batch.y[logits.argmax(1) == batch.y]
        correct += torch.bincount(right, minlength=samples.classes)
        loss += float(F.cross_entropy(logits, batch.y, reduction="sum"))
    return correct, loss


def per_class(correct: Tensor, counts: Tensor) -> list[float | None]:
    """Accuracy of every class; None for a class without test samples."""
    return [c / n if n else None for c, n in zip(correct.tolist(), counts.tolist(), strict=True)]


def per_task(correct: Tensor, counts: Tensor, tasks: Sequence[Sequence[int]]) -> list[float | None]:
    """Accuracy on the test samples of every task, a task being a set of classes."""
    sums = [(int(correct[list(task)].sum()), int(counts[list(task)].sum())) for task in tasks]
    return [right / total if total else None for right, total in sums]


def device_accuracies(classes: Sequence[float | None], shares: np.ndarray) -> tuple[float | None, ...]:
    """One device's model on the whole test set, on the device's own mix of classes, and outside that mix.

    Each is a mean over classes that have test samples, None where there is none of them; the three agree for a device
    with an even mix.
    """
    known = np.array([value is not None for value in classes])
    accuracy = np.array([value or 0.0 for value in classes])
    inside = np.where(known, shares, 0.0)
    outside = np.where(known, 1.0 - shares, 0.0)
    return (_weighted(accuracy, known.astype(float)), _weighted(accuracy, inside), _weighted(accuracy, outside))


def _weighted(values: np.ndarray, weights: np.ndarray) -> float | None:
    total = weights.sum()
    return float((values * weights).sum() / total) if total else None
