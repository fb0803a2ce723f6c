"""Who holds what: devices as index lists into one dataset, or as the tensors that a user brings."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from remanence.data.samples import Dataset, Samples
from remanence.errors import UserError

SMALL = 32 << 20  # bytes of float32 up to which prepared devices are kept ready


class Counts(Protocol):
    """Who holds how much of what."""

    @property
    def sizes(self) -> Sequence[int]: ...

    def counts(self, device: int) -> np.ndarray:
        """Samples per class."""
        ...


class IndexedFleet:
    def __init__(self, dataset: Dataset, indices: Sequence[np.ndarray]) -> None:
        self.dataset, self.indices, self.classes = dataset, list(indices), dataset.classes
        self.sizes = [len(rows) for rows in self.indices]
        self._labels = dataset.train.y.numpy()
        self._keep = dataset.train.x.numel() * 4 <= SMALL
        self._ready: dict[int, Samples] = {}

    def counts(self, device: int) -> np.ndarray:
        return np.bincount(self._labels[self.indices[device]], minlength=self.classes)

    def samples(self, device: int) -> Samples:
        if device in self._ready:
            return self._ready[device]
        ready = self.dataset.prepare(self.dataset.train.take(self.indices[device]))
        if self._keep:
            self._ready[device] = ready
        return ready


class TensorFleet:
    """`devices[i]` is (x, y): tensors or arrays; a sequence that makes them on demand is read when a device trains."""

    def __init__(self, devices: Sequence[tuple[Any, Any]], classes: int, kind: torch.dtype = torch.float32) -> None:
        self.devices, self.classes, self.kind = devices, classes, kind
        self.sizes = [len(devices[i][1]) for i in range(len(devices))]
        self._keep = isinstance(devices, (list, tuple)) and sum(x[0].nbytes for x in devices) <= SMALL
        self._ready: dict[int, Samples] = {}

    def counts(self, device: int) -> np.ndarray:
        return self.samples(device).counts.numpy()

    def samples(self, device: int) -> Samples:
        if device in self._ready:
            return self._ready[device]
        x, y = self.devices[device]
        ready = checked(x, y, self.classes, f"device {device}", kind=self.kind)
        if self._keep:
            self._ready[device] = ready
        return ready


def checked(
    x: Any,
    y: Any,
    classes: int,
    owner: str,
    shape: tuple[int, ...] | None = None,
    kind: torch.dtype = torch.float32,
) -> Samples:
    """Samples ready for training, or one line about what is wrong with them; `shape` is that of one sample."""
    inputs, labels = as_inputs(x, owner, kind), y if isinstance(y, Tensor) else torch.from_numpy(np.array(y))
    if shape is not None and len(inputs) and tuple(inputs.shape[1:]) != shape:
        raise UserError(f"{owner}: samples of shape {tuple(inputs.shape[1:])}, expected {shape} as on the first device")
    if labels.dim() != 1 or len(labels) != len(inputs):
        raise UserError(f"{owner}: {len(inputs)} samples but labels of shape {tuple(labels.shape)}")
    if labels.is_floating_point() and bool((labels != labels.round()).any()):
        raise UserError(f"{owner}: labels must be whole numbers 0..{classes - 1}")
    labels = labels.to(torch.int64)
    if len(labels) and (int(labels.min()) < 0 or int(labels.max()) >= classes):
        wrong = int(labels.min()) if int(labels.min()) < 0 else int(labels.max())
        raise UserError(f"{owner}: label {wrong} is outside the classes 0..{classes - 1}")
    return Samples(inputs, labels, classes)


def as_inputs(x: Any, owner: str, kind: torch.dtype = torch.float32) -> Tensor:
    inputs = x if isinstance(x, Tensor) else torch.from_numpy(np.array(x))
    inputs = inputs.detach().to(kind)
    if not inputs.is_floating_point():
        return inputs
    wrong = int((~inputs.isfinite()).sum()) if not bool(inputs.sum().isfinite()) else 0
    if wrong:
        raise UserError(f"{owner}: {wrong} of {inputs.numel()} input values are not finite (NaN or infinite)")
    return inputs
