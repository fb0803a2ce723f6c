"""Who holds what, and when: devices as index lists into one dataset, or as the tensors that a user brings."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from remanence.data.samples import Dataset, Samples
from remanence.data.stream import Stream
from remanence.errors import UserError

SMALL = 32 << 20  # bytes of float32 up to which prepared devices are kept ready


class Counts(Protocol):
    """Who holds how much of what, over its whole life."""

    @property
    def sizes(self) -> Sequence[int]: ...

    def counts(self, device: int) -> np.ndarray:
        """Samples per class."""
        ...


class Fleet:
    """The devices' data, all of it and as they see it over time."""

    classes: int
    sizes: Sequence[int]

    def __init__(self, stream: Stream | None, seed: int) -> None:
        self.stream, self.seed = stream, seed  # None: every device has all of its data at any time
        self._seen: dict[int, tuple[int, int, np.ndarray]] = {}  # device -> tick, used, rows

    def counts(self, device: int) -> np.ndarray:
        """Samples per class, of the device's whole life."""
        return np.bincount(self.labels(device), minlength=self.classes)

    def labels(self, device: int) -> np.ndarray:
        raise NotImplementedError

    def whole(self, device: int) -> Samples:
        """All that a device ever has."""
        raise NotImplementedError

    @property
    def consumes(self) -> bool:
        return self.stream is not None and self.stream.consumes

    def rows(self, device: int, tick: int, used: int) -> np.ndarray | None:
        """Which of its samples a device trains on at this moment; None: all."""
        if self.stream is None:
            return None
        seen = self._seen.get(device)
        if seen is not None and seen[:2] == (tick, used):
            return seen[2]
        rows = self.stream.rows(device, self.sizes[device], tick, used, self.seed)
        self._seen[device] = (tick, used, rows)
        return rows

    def samples(self, device: int, tick: int = 1, used: int = 0) -> Samples:
        rows = self.rows(device, tick, used)
        return self.whole(device) if rows is None else self.part(device, rows)

    def part(self, device: int, rows: np.ndarray) -> Samples:
        return self.whole(device).take(rows)

    def pending(self, device: int, tick: int, used: int) -> np.ndarray:
        """Samples per class of what a device would train on now."""
        rows = self.rows(device, tick, used)
        labels = self.labels(device)
        return np.bincount(labels if rows is None else labels[rows], minlength=self.classes)

    def joint(self, devices: Sequence[int], tick: int, used: Mapping[int, int]) -> np.ndarray:
        """Samples per class of what these devices train on now, all together."""
        counts = np.zeros(self.classes, dtype=np.int64)
        for device in devices:
            counts += self.pending(device, tick, used.get(device, 0))
        return counts

    def size(self, device: int, tick: int, used: int) -> int:
        rows = self.rows(device, tick, used)
        return self.sizes[device] if rows is None else len(rows)


class IndexedFleet(Fleet):
    """Index lists into one dataset."""

    def __init__(
        self, dataset: Dataset, indices: Sequence[np.ndarray], stream: Stream | None = None, seed: int = 0
    ) -> None:
        super().__init__(stream, seed)
        self.dataset, self.indices, self.classes = dataset, list(indices), dataset.classes
        self.sizes = [len(rows) for rows in self.indices]
        self._labels = dataset.train.y.numpy()
        self._keep = dataset.train.x.numel() * 4 <= SMALL
        self._ready: dict[int, Samples] = {}

    def labels(self, device: int) -> np.ndarray:
        labels: np.ndarray = self._labels[self.indices[device]]
        return labels

    def whole(self, device: int) -> Samples:
        if device in self._ready:
            return self._ready[device]
        ready = self.dataset.prepare(self.dataset.train.take(self.indices[device]))
        if self._keep:
            self._ready[device] = ready
        return ready

    def part(self, device: int, rows: np.ndarray) -> Samples:
        if self._keep:
            return super().part(device, rows)
        return self.dataset.prepare(self.dataset.train.take(self.indices[device][rows]))


class TensorFleet(Fleet):
    """`devices[i]` is (x, y): tensors or arrays; a sequence that makes them on demand is read when a device trains."""

    def __init__(
        self,
        devices: Sequence[tuple[Any, Any]],
        classes: int,
        kind: torch.dtype = torch.float32,
        stream: Stream | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(stream, seed)
        self.devices, self.classes, self.kind = devices, classes, kind
        self.sizes = [len(devices[i][1]) for i in range(len(devices))]
        self._keep = isinstance(devices, (list, tuple)) and sum(x[0].nbytes for x in devices) <= SMALL
        self._ready: dict[int, Samples] = {}

    def labels(self, device: int) -> np.ndarray:
        return self.whole(device).y.numpy()

    def whole(self, device: int) -> Samples:
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
    if kind == torch.int64 and inputs.is_floating_point() and not bool((inputs == inputs.round()).all()):
        raise UserError(f"{owner}: the model reads token numbers, but some inputs are not whole numbers")
    inputs = inputs.detach().to(kind)
    if not inputs.is_floating_point():
        return inputs
    wrong = int((~inputs.isfinite()).sum()) if not bool(inputs.sum().isfinite()) else 0
    if wrong:
        raise UserError(f"{owner}: {wrong} of {inputs.numel()} input values are not finite (NaN or infinite)")
    return inputs
