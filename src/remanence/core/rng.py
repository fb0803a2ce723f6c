"""Every random draw, keyed by (seed, purpose, numbers): no generator state to save, no dependence on order."""

import hashlib

import numpy as np
import torch


def key(seed: int, purpose: str, *numbers: int) -> int:
    """63 bits that depend on all of the arguments and on nothing else."""
    text = f"{seed}/{purpose}/" + ",".join(map(str, numbers))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def torch_generator(seed: int, purpose: str, *numbers: int) -> torch.Generator:
    return torch.Generator().manual_seed(key(seed, purpose, *numbers))


def numpy_generator(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, *numbers)))
