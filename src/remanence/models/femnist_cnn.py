"""The network of FedGS on FEMNIST: simple-cnn with a wide hidden layer and another start.

Kernels of 5x5 that keep the size, ReLU and the start are those of the authors' code, where the paper gives widths only:
weights uniform up to sqrt(6 / (fan in + fan out)) (Glorot), biases zero.
"""

from typing import ClassVar

from torch import nn

from remanence.models.classifier import Classifier, image_size
from remanence.models.simple_cnn import SimpleCnn
from remanence.registry import models, options


@models.register("femnist-cnn")
@options
class FemnistCnn:
    """32 and 64 channels, 2,048 hidden units; 6,603,710 parameters at 1x28x28 and 62 classes."""

    name: ClassVar[str]

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        image_size(self.name, shape, 4)
        return _start_glorot(SimpleCnn(channels=(32, 64), hidden=2048).build(shape, classes))


def _start_glorot(model: Classifier) -> Classifier:
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            assert module.bias is not None
            nn.init.zeros_(module.bias)
    return model
