"""The server's average of ten models against two plain ways to write it."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.arguments import positive
from benchmarks.timing import median_seconds
from remanence.core.message import Message
from remanence.core.reduce import Reducer
from remanence.core.rng import torch_generator
from remanence.core.vector import FlatModel
from remanence.engine.memory import one_thread
from remanence.errors import RunError
from remanence.registry import models

UPLOADS = 10
MODELS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "111k": ("mlp", {"hidden": [140]}, (784,)),
    "2.16M": ("simple-cnn", {"padded": True}, (3, 32, 32)),
}
TOLERANCE = 1e-6


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tries", type=positive, default=20, help="the median of so many is told")


def measure(command: str, given: argparse.Namespace) -> dict[str, Any]:
    with one_thread():
        return {"benchmark": command, "uploads": UPLOADS} | {
            label: _measure_model(models.create(name, options).build(shape, 10), given.tries)
            for label, (name, options, shape) in MODELS.items()
        }


def _measure_model(module: nn.Module, tries: int) -> dict[str, Any]:
    vectors, trees = _uploads(FlatModel(module))
    ways: dict[str, Callable[[], Tensor]] = {
        "reducer": lambda: reduced(vectors),
        "dictionary": lambda: _joined(by_dictionary(trees)),
        "stack": lambda: torch.stack(vectors).mean(0),
    }
    _check_agreement({name: way() for name, way in ways.items()})
    ways["dictionary"] = lambda: by_dictionary(trees)["head.bias"]  # only the check needs it joined
    result: dict[str, Any] = {"parameters": len(vectors[0])}
    for name, way in ways.items():
        seconds = median_seconds(way, tries)
        result[f"{name}_milliseconds"] = 1000 * seconds
        result[f"{name}_gigabytes_per_second"] = UPLOADS * vectors[0].nbytes / seconds / 1e9
    return result


def _uploads(net: FlatModel) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """The same ten models as vectors and as dictionaries."""
    vectors, trees = [], []
    for number in range(UPLOADS):
        generator = torch_generator(0, "benchmark upload", number)
        net.load(torch.randn(len(net.w), generator=generator))
        vectors.append(net.copy())
        trees.append({name: tensor.clone() for name, tensor in net.module.state_dict().items()})
    return vectors, trees


def reduced(vectors: list[Tensor]) -> Tensor:
    reducer = Reducer({"w": "weighted"}, slice(len(vectors[0]), len(vectors[0])))
    for vector in vectors:
        reducer.add(Message(w=vector, n=50), 50.0)
    average: Tensor = reducer.result()["w"]
    return average


def by_dictionary(trees: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    average = {name: tensor / len(trees) for name, tensor in trees[0].items()}
    for tree in trees[1:]:
        average = {name: average[name] + tensor / len(trees) for name, tensor in tree.items()}
    return average


def _joined(tree: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tree.values()])


def _check_agreement(averages: Mapping[str, Tensor]) -> None:
    for name, average in averages.items():
        difference = float((average - averages["reducer"]).abs().max())
        if difference > TOLERANCE:
            raise RunError(f"merge: '{name}' and the reducer differ by {difference:.1e}")
