"""The three workloads on which speed is measured: a usual one, a tiny model, a large one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remanence.registry import models


@dataclass(frozen=True)
class Workload:
    """FedAvg over equal devices; no evaluation in the timed rounds."""

    summary: str
    model: str
    options: Mapping[str, Any]  # of the model
    shape: tuple[int, ...]
    devices: int
    samples: int  # per device
    per_round: int
    epochs: int
    batch: int
    block: int = 1  # most rounds in one turn: a round of a few milliseconds cannot be timed alone
    quick: int = 1  # rounds of ours for one of the raw loop's: else its turns would be short, just woken up
    classes: int = 10
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-5

    @property
    def samples_per_round(self) -> int:
        return self.per_round * self.samples * self.epochs

    def training(self) -> dict[str, Any]:
        """The `[train]` table."""
        names = ("epochs", "batch", "lr", "momentum", "weight_decay")
        return {name: getattr(self, name) for name in names}

    def build_model(self) -> Any:
        """The plain module; the caller has seeded the weights."""
        return models.create(self.model, self.options, "model").build(self.shape, self.classes)


WORKLOADS = {
    "w1": Workload(
        "SimpleCNN, 10 of 100 devices, 5 epochs of 500 images",
        "simple-cnn",
        {"padded": False},
        (3, 32, 32),
        devices=100,
        samples=500,
        per_round=10,
        epochs=5,
        batch=50,
    ),
    "w2": Workload(
        "MLP, 10 of 100 devices, 5 epochs of 15 rows",
        "mlp",
        {"hidden": [64]},
        (64,),
        devices=100,
        samples=15,
        per_round=10,
        epochs=5,
        batch=10,
        block=50,
        quick=10,
    ),
    "w3": Workload(
        "ResNet-18, 2 of 10 devices, 1 epoch of 500 images",
        "resnet18",
        {"norm": "bn"},
        (3, 32, 32),
        devices=10,
        samples=500,
        per_round=2,
        epochs=1,
        batch=50,
    ),
}


@dataclass(frozen=True)
class Settings:
    """What a measured process is told when it starts."""

    workload: str
    folder: str  # where the data are
    rounds: int  # that it will be asked for, all together
    method: str = "fedavg"
    engine: dict[str, Any] = field(default_factory=dict)
    carrier: str = ""  # for the bare loop: which engine it must match
    workers: int = 1  # for the bare loop
