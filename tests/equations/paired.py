"""The same softmax regression twice: through `simulate`, and through the equations `by_hand`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from by_hand import Vector, World
from torch import Tensor
from worlds import SIZES, classification, shuffled_batches, softmax_model

import remanence
from remanence.core.method import Method
from remanence.simulation import Simulation

BATCH = 3
TRAINING: dict[str, Any] = {
    "participation": [[0, 1, 2, 3], [1, 3], [0, 2, 3], [1, 2]],
    "epochs": 2,
    "lr": 0.1,
    "lr_decay": 0.8,
}
WITH_MOMENTUM: dict[str, Any] = TRAINING | {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.05}


def simulated(method: str | Method, options: Mapping[str, Any] | None = None, **settings: Any) -> Simulation:
    training = TRAINING | settings
    return remanence.simulate(
        method,
        options,
        model=softmax_model(),
        devices=classification(),
        rounds=len(training["participation"]),
        batches=shuffled_batches(SIZES, BATCH),
        **training,
    )


def world(**settings: Any) -> World:
    devices = [(x.double().numpy(), y.numpy()) for x, y in classification()]
    batches = shuffled_batches(SIZES, BATCH)
    return World(
        devices,
        flat(*softmax_model().parameters()),
        classes=3,
        batches=lambda device, round, epoch: [ids.numpy() for ids in batches(device, round, epoch)],
        **TRAINING | settings,
    )


def flat(*tensors: Tensor) -> Vector:
    return np.concatenate([tensor.detach().double().numpy().reshape(-1) for tensor in tensors])


def distance(simulated: Tensor, calculated: Vector) -> float:
    """The largest difference of a coordinate."""
    return float(np.abs(flat(simulated) - calculated).max())
