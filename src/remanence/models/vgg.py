"""VGG-11 for small images: eight 3x3 convolutions with bias, no normalisation, two hidden linear layers.

ReLU stands behind max-pooling, which is the same function on a quarter of the values.
"""

from collections import OrderedDict
from typing import ClassVar

from torch import nn

from remanence.models.classifier import Classifier, image_size
from remanence.registry import models, options

STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # channels; a pooling ends each stage
HIDDEN = 512


@models.register("vgg11")
@options
class Vgg11:
    """9,750,922 parameters at 3x32x32 and 10 classes. Images under 32 pixels go without the last pooling."""

    name: ClassVar[str]

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        planes, height, width = image_size(self.name, shape, 16)
        pools = 5 if min(height, width) >= 32 else 4
        layers = _convolutions(planes, pools)
        layers["flatten"] = nn.Flatten()
        layers["fc1"] = nn.Linear(STAGES[-1][-1] * (height >> pools) * (width >> pools), HIDDEN)
        layers["relu9"] = nn.ReLU(inplace=True)
        layers["fc2"] = nn.Linear(HIDDEN, HIDDEN)
        layers["relu10"] = nn.ReLU(inplace=True)
        return Classifier(nn.Sequential(layers), HIDDEN, classes)


def _convolutions(channels: int, pools: int) -> OrderedDict[str, nn.Module]:
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    number = 0
    for stage, widths in enumerate(STAGES, start=1):
        for position, width in enumerate(widths, start=1):
            number += 1
            layers[f"conv{number}"] = _convolution(channels, width)
            if position == len(widths) and stage <= pools:
                layers[f"pool{stage}"] = nn.MaxPool2d(2)
            layers[f"relu{number}"] = nn.ReLU(inplace=True)
            channels = width
    return layers


def _convolution(before: int, channels: int) -> nn.Conv2d:
    """Weights of variance 2 / (9 channels), zero bias: without normalisation the depth needs this start."""
    convolution = nn.Conv2d(before, channels, 3, padding=1)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    assert convolution.bias is not None
    nn.init.zeros_(convolution.bias)
    return convolution
