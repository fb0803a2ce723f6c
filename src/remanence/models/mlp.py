"""Fully connected layers with ReLU, for tables and for anything that can be flattened.

A plain chain of modules and nothing else: the engine recognises such chains and trains many devices at once.
"""

import math
from collections import OrderedDict
from typing import ClassVar

from pydantic import PositiveInt
from torch import nn

from remanence.errors import UserError
from remanence.models.classifier import Classifier
from remanence.registry import models, options


@models.register("mlp")
@options
class Mlp:
    """Flatten, Linear and ReLU for each width of `hidden`, then the head. No width: softmax regression."""

    name: ClassVar[str]

    hidden: tuple[PositiveInt, ...] = (64,)

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        if not shape or min(shape) < 1:
            raise UserError(f"model '{self.name}' needs at least one input value; got shape {tuple(shape)}")
        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        width = math.prod(shape)
        for number, hidden in enumerate(self.hidden, start=1):
            layers[f"fc{number}"] = nn.Linear(width, hidden)
            layers[f"relu{number}"] = nn.ReLU(inplace=True)
            width = hidden
        return Classifier(nn.Sequential(layers), width, classes)
