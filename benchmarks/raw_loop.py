"""What a user writes first, and the denominator of every ratio: one process, one thread, no framework."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.plain_models import plain_model
from benchmarks.synthetic import StoredDevices
from benchmarks.workloads import WORKLOADS, Settings, Workload
from remanence.core.rng import numpy_generator


@contextmanager
def raw_loop(settings: Settings) -> Iterator[tuple[Callable[[int], None], dict[str, Any]]]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loop = RawLoop(WORKLOADS[settings.workload], StoredDevices(Path(settings.folder)))
    yield loop.play, {}


class RawLoop:
    def __init__(self, workload: Workload, devices: StoredDevices) -> None:
        self.workload, self.devices = workload, devices
        self.model = plain_model(workload)
        self.datasets: dict[int, TensorDataset] = {}
        self.generator = numpy_generator(0, "raw loop")

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            chosen = self.generator.choice(self.workload.devices, self.workload.per_round, replace=False)
            self.model.load_state_dict(_average([self._trained(int(device)) for device in chosen]))

    def _trained(self, device: int) -> dict[str, Tensor]:
        model, workload = copy.deepcopy(self.model), self.workload
        optimiser = torch.optim.SGD(
            model.parameters(), lr=workload.lr, momentum=workload.momentum, weight_decay=workload.weight_decay
        )
        batches = DataLoader(self._dataset(device), batch_size=workload.batch, shuffle=True)
        loss_of = nn.CrossEntropyLoss()
        model.train()
        for _ in range(workload.epochs):
            for x, y in batches:
                optimiser.zero_grad()
                loss_of(model(x), y).backward()
                optimiser.step()
        trained: dict[str, Tensor] = model.state_dict()
        return trained

    def _dataset(self, device: int) -> TensorDataset:
        if device not in self.datasets:
            x, y = self.devices[device]
            self.datasets[device] = TensorDataset(torch.from_numpy(np.array(x)), torch.from_numpy(y))
        return self.datasets[device]


def _average(models: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: sum(model[name] for model in models) / len(models) for name in models[0]}  # type: ignore[misc]
