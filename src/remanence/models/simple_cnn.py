"""SimpleCNN: two 5x5 convolutions and one hidden linear layer, the usual small image network of the field.

ReLU stands behind max-pooling: both are monotone, so the function and its gradients are those of the usual
order, on a quarter of the values.
"""

from collections import OrderedDict
from typing import ClassVar

from pydantic import PositiveInt
from torch import nn

from remanence.models.classifier import Classifier, image_size
from remanence.registry import models, options


@models.register("simple-cnn")
@options
class SimpleCnn:
    """`padded` convolutions keep the image's size, others take 4 pixels off it.

    At 3x32x32 and 10 classes: 2,156,490 parameters padded, 878,538 without.
    """

    name: ClassVar[str]

    padded: bool = True
    channels: tuple[PositiveInt, PositiveInt] = (32, 64)
    hidden: PositiveInt = 512

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        planes, height, width = self._size(shape)
        first, second = self.channels
        padding = 2 if self.padded else 0
        inner = second * self._left(height) * self._left(width)
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(planes, first, 5, padding=padding),
            pool1=nn.MaxPool2d(2),
            relu1=nn.ReLU(inplace=True),
            conv2=nn.Conv2d(first, second, 5, padding=padding),
            pool2=nn.MaxPool2d(2),
            relu2=nn.ReLU(inplace=True),
            flatten=nn.Flatten(),
            fc1=nn.Linear(inner, self.hidden),
            relu3=nn.ReLU(inplace=True),
        )
        return Classifier(nn.Sequential(layers), self.hidden, classes)

    def _size(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        if self.padded:
            return image_size(self.name, shape, 4)
        small = len(shape) == 3 and min(shape[1:]) >= 4
        return image_size(self.name, shape, 16, "; padded = true takes 4x4" if small else "")

    def _left(self, size: int) -> int:
        """Pixels left of `size` behind both poolings."""
        lost = 0 if self.padded else 4
        return ((size - lost) // 2 - lost) // 2
