"""Which samples every device of a stack uses in every step, as one table."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from remanence.core.batches import BatchRule, lots, plan
from remanence.core.context import Context
from remanence.data.samples import Batch, Samples

GATHERED_AT_ONCE = 32 << 20  # bytes of inputs that are gathered for a whole round instead of step by step


@dataclass
class StepTable:
    """Devices stand in the order of falling numbers of steps, so those that still have one are always the first."""

    order: Sequence[int]  # positions in the given list of devices
    counts: Sequence[int]  # steps of every device
    active: Sequence[int]  # devices that still have a step, per step
    data: list[Samples]
    index: Tensor  # (steps, devices, largest batch), into the data of all devices behind one another
    weight: Tensor  # same shape; 1 / batch, 0 for padding

    def __post_init__(self) -> None:
        self._x = torch.cat([one.flat for one in self.data])
        self._y = torch.cat([one.y for one in self.data])
        self._ids, self._weight = self.index.flatten(1).unbind(0), self.weight.flatten(1).unbind(0)
        self._ready: list[Batch] = []
        if self.index.numel() * self._x.shape[1] * 4 <= GATHERED_AT_ONCE:
            self._ready = self._gathered()

    def _gathered(self) -> list[Batch]:
        """Every step's batch, all devices, in a few operations for the whole round."""
        steps, devices, width = self.index.shape
        x = self._x[self.index.view(-1)].view(steps, devices * width, -1).unbind(0)
        y = self._y[self.index.view(-1)]
        pull = self._pull(y, self.weight.view(-1)).view(steps, devices * width, -1).unbind(0)
        ys = y.view(steps, -1).unbind(0)
        return [Batch(x[s], ys[s], self._ids[s], self._weight[s], devices, pull[s]) for s in range(steps)]

    def _pull(self, y: Tensor, weight: Tensor) -> Tensor:
        zeros = torch.zeros(len(y), self.data[0].classes)
        return zeros.scatter_(1, y.unsqueeze(1), weight.neg().unsqueeze(1))

    def batch(self, step: int) -> Batch:
        active, (_, devices, width) = self.active[step], self.index.shape
        rows = active * width
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
    shuffled = torch.stack(drawn).argsort(-1)
    ordered = [data[k] for k in order]
    index = shuffled.view(-1)[cut.position.view(-1)].view(cut.position.shape) + _starts(ordered)
    return StepTable(order, cut.counts, cut.active, ordered, index, cut.weight)


@dataclass(frozen=True)
class _Cut:
    """How shuffled samples are cut into steps; depends on sizes alone."""

    counts: list[int]
    active: list[int]
    position: Tensor
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
    position = row + np.where(real, place, 0)
    return order.tolist(), _Cut(
        counts.tolist(),
        (counts[None, :] > step[:, :, 0]).sum(1).tolist(),
        torch.from_numpy(position),
        torch.from_numpy((real / batch_size).astype(np.float32)),
    )


def _listed(steps: list[list[Tensor]], data: Sequence[Samples]) -> StepTable:
    """From explicit lists of sample numbers."""
    order = sorted(range(len(steps)), key=lambda k: -len(steps[k]))
    counts, ordered = [len(steps[k]) for k in order], [data[k] for k in order]
    flat = [ids for k in order for ids in steps[k]]
    slots = torch.tensor([step * len(order) + k for k, count in enumerate(counts) for step in range(count)])
    sizes = torch.tensor([len(ids) for ids in flat]).unsqueeze(1)
    padded = pad_sequence(flat, batch_first=True)
    shape = (counts[0], len(order), padded.shape[1])
    index = torch.zeros(shape[0] * shape[1], shape[2], dtype=torch.int64)
    weight = torch.zeros(shape[0] * shape[1], shape[2])
    index[slots], weight[slots] = padded, (torch.arange(shape[2]) < sizes) / sizes
    active = [sum(count > step for count in counts) for step in range(counts[0])]
    return StepTable(order, counts, active, ordered, index.view(shape) + _starts(ordered), weight.view(shape))


def _starts(data: Sequence[Samples]) -> Tensor:
    """Where each device's samples begin when all lie behind one another."""
    sizes = [len(one) for one in data]
    return torch.tensor([0, *sizes[:-1]]).cumsum(0).view(1, -1, 1)
