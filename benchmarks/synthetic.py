"""Synthetic samples, noise around a mean per class: written once, then read by every measured process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads import Workload
from remanence.core.rng import numpy_generator


def write_data(workload: Workload, folder: Path) -> None:
    generator = numpy_generator(0, "benchmark data")
    means = 0.5 * generator.standard_normal((workload.classes, *workload.shape), dtype=np.float32)
    y = generator.integers(0, workload.classes, (workload.devices, workload.samples))
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (*y.shape, *workload.shape))
    for device in range(workload.devices):
        noise = generator.standard_normal((workload.samples, *workload.shape), dtype=np.float32)
        x[device] = noise + means[y[device]]
    np.save(folder / "y.npy", y)


class StoredDevices(Sequence[tuple[np.ndarray, np.ndarray]]):
    """Device after device from the files; a map is opened per access, so that what was read is not held."""

    def __init__(self, folder: Path) -> None:
        self._x, self._y = folder / "x.npy", np.load(folder / "y.npy")

    def __len__(self) -> int:
        return len(self._y)

    def __getitem__(self, device: Any) -> Any:
        if not 0 <= device < len(self):
            raise IndexError(device)
        # "c": a private map counts as writable, which spares a copy and a warning of torch.
        return np.load(self._x, mmap_mode="c")[device], self._y[device]


class TinyDevices(Sequence[tuple[np.ndarray, np.ndarray]]):
    """Two samples per device, made when they are asked for."""

    samples, classes = 2, 10

    def __init__(self, count: int, shape: tuple[int, ...]) -> None:
        self.devices, self.shape = count, shape

    def __len__(self) -> int:
        return self.devices

    def __getitem__(self, device: Any) -> Any:
        if not 0 <= device < self.devices:
            raise IndexError(device)
        generator = numpy_generator(0, "benchmark device", device)
        x = generator.standard_normal((self.samples, *self.shape), dtype=np.float32)
        return x, generator.integers(0, self.classes, self.samples)
