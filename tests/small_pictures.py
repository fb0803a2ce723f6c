"""A CIFAR-10 of made-up pictures, and the settings that make a paper's cells run on it within a second."""

from pathlib import Path

import numpy as np

SMALL = (
    "devices.count=5", "devices.per_round=2", "data.augment=none", "model.channels=[2,2]", "model.hidden=4",
    "train.epochs=1", "measure.devices=1", "rounds=10", "data.public=5",
)  # fmt: skip
ARGUMENTS = [word for setting in SMALL for word in ("--set", setting)]


def write_pictures(folder: Path) -> None:
    """The file that `$REMANENCE_DATA = folder` makes known as cifar10."""
    folder.mkdir()
    x = np.random.default_rng(0).integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)
    y = np.arange(60) % 10
    np.savez(folder / "cifar10.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
