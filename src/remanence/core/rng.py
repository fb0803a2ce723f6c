"""Every random draw, keyed by (seed, purpose, numbers): no generator state to save, no dependence on order."""

import hashlib
from typing import Any

import numpy as np
import torch


def key(seed: int, purpose: str, *numbers: int) -> int:
    """63 bits that depend on all of the arguments and on nothing else."""
    text = f"{seed}/{purpose}/" + ",".join(map(str, numbers))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


# torch's generator uses the lower 32 bits of its seed: enough to shuffle, not for noise that must hide something.
def torch_generator(seed: int, purpose: str, *numbers: int) -> torch.Generator:
    return torch.Generator().manual_seed(key(seed, purpose, *numbers))


def numpy_generator(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(_Words(key(seed, purpose, *numbers))))  # type: ignore[arg-type]


class _Words(np.random.bit_generator.ISeedSequence):
    """Hands Philox its key as it is: numpy's own seeding first asks the system for chance, which takes longer."""

    def __init__(self, number: int) -> None:
        self.number = number

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        return np.array([self.number, *range(1, n_words)], dtype=dtype)
