"""Which samples form which step: one keyed draw per device and round."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from remanence.core.rng import key
from remanence.errors import UserError

BatchRule = int | Literal["full"] | Callable[[int, int, int], Sequence[Tensor]]
Plan = list[Sequence[Tensor]]  # per epoch, the sample numbers of every step


def plan(rule: BatchRule, samples: int, epochs: int, seed: int, round: int, device: int, pairs: bool = False) -> Plan:
    """`pairs`: no step of a single sample, which batch normalisation cannot train on."""
    if pairs and rule == 1:
        raise UserError("train.batch: 1 is not allowed with batch normalisation, which needs two samples")
    if callable(rule):
        return [_checked(rule(device, round, epoch), samples, device, pairs) for epoch in range(1, epochs + 1)]
    if rule == "full" or rule >= samples:
        steps = 0 if samples == 0 or (pairs and samples == 1) else 1
        return [(torch.arange(samples),) * steps] * epochs
    order = lots(samples, epochs, seed, round, device).argsort(1)
    return [_cut(row, rule, pairs) for row in order]


_generator = torch.Generator()  # seeded anew for every draw; making one takes longer than a small draw


def lots(samples: int, epochs: int, seed: int, round: int, device: int) -> Tensor:
    """Random numbers whose order is that of the samples, a row per epoch."""
    _generator.manual_seed(key(seed, "batches", round, device))
    return torch.rand(epochs, samples, generator=_generator, dtype=torch.float64)


def _cut(order: Tensor, size: int, pairs: bool) -> Sequence[Tensor]:
    steps = list(order.split(size))
    if pairs and len(steps[-1]) == 1:
        steps[-2:] = [torch.cat(steps[-2:])]
    return steps


def _checked(steps: Iterable[Any], samples: int, device: int, pairs: bool) -> Sequence[Tensor]:
    try:
        found = [torch.as_tensor(np.asarray(ids), dtype=torch.int64) for ids in steps]
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"batches: device {device} was not given a list of index tensors") from None
    for ids in found:
        if ids.dim() != 1 or not len(ids) or int(ids.min()) < 0 or int(ids.max()) >= samples:
            raise UserError(f"batches: device {device} was given an empty step or numbers outside 0..{samples - 1}")
        if pairs and len(ids) == 1:
            raise UserError(f"batches: device {device} was given a step of one sample; batch normalisation needs two")
    return found
