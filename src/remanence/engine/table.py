"""Which samples every device of a stack uses in every step, as one table."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from remanence.core.batches import BatchRule, lots, plan
from remanence.core.context import Context
from remanence.data.samples import Batch, Samples

GATHERED_AT_ONCE = 32 << 20  # bytes of inputs that are gathered for a whole round instead of step by step


@dataclass
class StepTable:
    """Devices stand in the order of falling numbers of steps, so those that still have one are always the first.

    Every step is as wide as its largest batch: the rows of all devices, device by device, of all steps, step by step.
    """

    order: Sequence[int]  # positions in the given list of devices
    counts: Sequence[int]  # steps of every device
    active: Sequence[int]  # devices that still have a step, per step
    widths: Sequence[int]  # of every step
    data: list[Samples]
    index: Tensor  # into the data of all devices behind one another
    weight: Tensor  # same shape; 1 / batch, 0 for padding

    def __post_init__(self) -> None:
        self._x = torch.cat([one.flat for one in self.data])
        self._y = torch.cat([one.y for one in self.data])
        self._rows = [width * len(self.data) for width in self.widths]
        self._ids, self._weight = self.index.split(self._rows), self.weight.split(self._rows)
        self._ready: list[Batch] = []
        if self.index.numel() * self._x.shape[1] * 4 <= GATHERED_AT_ONCE:
            self._ready = self._gathered()

    def _gathered(self) -> list[Batch]:
        """Every step's batch, all devices, in a few operations for the whole round."""
        x, y = self._x[self.index], self._y[self.index]
        pieces = (each.split(self._rows) for each in (x, y, self.index, self.weight, self._pull(y, self.weight)))
        devices = len(self.data)
        return [Batch(x, y, ids, weight, devices, pull) for x, y, ids, weight, pull in zip(*pieces, strict=True)]

    def _pull(self, y: Tensor, weight: Tensor) -> Tensor:
        zeros = torch.zeros(len(y), self.data[0].classes)
        return zeros.scatter_(1, y.unsqueeze(1), weight.neg().unsqueeze(1))

    def batch(self, step: int) -> Batch:
        active, devices = self.active[step], len(self.data)
        rows = active * self.widths[step]
        if not self._ready:
            ids, weight = self._ids[step][:rows], self._weight[step][:rows]
            y = self._y[ids]
            return Batch(self._x[ids], y, ids, weight, active, self._pull(y, weight))
        whole = self._ready[step]
        return whole if active == devices else whole.first(rows, active)


def step_table(rule: BatchRule, data: Sequence[Samples], devices: Sequence[int], ctx: Context) -> StepTable:
    """The same steps that each device would take alone (`core.batches.plan`)."""
    if isinstance(rule, int):
        return _shuffled(rule, data, devices, ctx)
    steps = [
        [ids for epoch in plan(rule, len(one), ctx.train.epochs, ctx.seed, ctx.tick, device) for ids in epoch]
        for one, device in zip(data, devices, strict=True)
    ]
    return _listed(steps, data)


def _shuffled(size: int, data: Sequence[Samples], devices: Sequence[int], ctx: Context) -> StepTable:
    sizes = [len(one) for one in data]
    order, cut = _cut(tuple(sizes), size, ctx.train.epochs)
    longest = max(sizes)
    drawn = [lots(sizes[k], ctx.train.epochs, ctx.seed, ctx.tick, devices[k]) for k in order]
    if min(sizes) < longest:  # what is missing is drawn last
        drawn = [torch.nn.functional.pad(lot, (0, longest - lot.shape[1]), value=torch.inf) for lot in drawn]
    shuffled = torch.stack(drawn).argsort(-1).view(-1)
    index = shuffled[cut.position].add_(cut.start)
    return StepTable(order, cut.counts, cut.active, cut.widths, [data[k] for k in order], index, cut.weight)


@dataclass(frozen=True)
class _Cut:
    """How shuffled samples are cut into steps; depends on sizes alone."""

    counts: list[int]
    active: list[int]
    widths: list[int]
    position: Tensor  # of every row, in the shuffled numbers of all devices and epochs
    start: Tensor  # of every row, where its device's samples begin
    weight: Tensor


@lru_cache(maxsize=8)
def _cut(sizes: tuple[int, ...], batch: int, epochs: int) -> tuple[list[int], _Cut]:
    per_epoch = np.array([-(-size // batch) for size in sizes])
    order = np.argsort(-per_epoch, kind="stable")
    samples, per_epoch = np.array(sizes)[order], per_epoch[order]
    counts = per_epoch * epochs
    width = min(batch, max(sizes))
    step = np.arange(counts[0])[:, None, None]
    epoch, number = np.divmod(step, per_epoch[None, :, None])
    place = number * batch + np.arange(width)
    real = (place < samples[None, :, None]) & (step < counts[None, :, None])
    batch_size = np.maximum(real.sum(2, keepdims=True), 1)
    row = (np.arange(len(sizes))[None, :, None] * epochs + np.minimum(epoch, epochs - 1)) * max(sizes)
    widths = real.sum(2).max(1)
    wanted = np.broadcast_to(np.arange(width) < widths[:, None, None], real.shape)
    begin = np.broadcast_to(np.cumsum([0, *samples[:-1]])[None, :, None], real.shape)
    return order.tolist(), _Cut(
        counts.tolist(),
        (counts[None, :] > step[:, :, 0]).sum(1).tolist(),
        widths.tolist(),
        torch.from_numpy((row + np.where(real, place, 0))[wanted]),
        torch.from_numpy(begin[wanted]),
        torch.from_numpy((real / batch_size).astype(np.float32)[wanted]),
    )


def _listed(steps: list[list[Tensor]], data: Sequence[Samples]) -> StepTable:
    """From explicit lists of sample numbers."""
    order = sorted(range(len(steps)), key=lambda k: -len(steps[k]))
    counts, ordered = [len(steps[k]) for k in order], [data[k] for k in order]
    starts = np.cumsum([0, *(len(one) for one in ordered[:-1])]).tolist()
    active = [sum(count > step for count in counts) for step in range(counts[0])]
    widths = [max(len(steps[k][step]) for k in order if step < len(steps[k])) for step in range(counts[0])]
    index, weight = [], []
    for step, width in enumerate(widths):
        for place, k in enumerate(order):
            ids = steps[k][step] if step < counts[place] else torch.empty(0, dtype=torch.int64)
            share = torch.full((len(ids),), 1 / max(1, len(ids)))
            index.append(torch.nn.functional.pad(ids, (0, width - len(ids))) + starts[place])
            weight.append(torch.nn.functional.pad(share, (0, width - len(ids))))
    return StepTable(order, counts, active, widths, ordered, torch.cat(index), torch.cat(weight))
