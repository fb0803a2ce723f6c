"""LeNet-5 in the form used for continual learning on FashionMNIST: 5x5 convolutions without padding.

Two properties are unusual and kept because published numbers rest on them: no ReLU between the second
convolution and its pooling, and He-normal weights with zero biases at the start.
"""

from collections import OrderedDict
from typing import ClassVar

from torch import nn

from remanence.models.classifier import Classifier, image_size
from remanence.registry import models, options


@models.register("lenet5")
@options
class LeNet5:
    """6 and 16 channels, then 120 and 84 units; 44,426 parameters at 1x28x28 and 10 classes."""

    name: ClassVar[str]

    second_relu: bool = False  # ReLU behind the second convolution too, as most descriptions of LeNet-5 have it

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        planes, height, width = image_size(self.name, shape, 16)
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(planes, 6, 5),
            pool1=nn.MaxPool2d(2),
            relu1=nn.ReLU(inplace=True),
            conv2=nn.Conv2d(6, 16, 5),
            pool2=nn.MaxPool2d(2),
            relu2=nn.ReLU(inplace=True) if self.second_relu else nn.Identity(),
            flatten=nn.Flatten(),
            fc1=nn.Linear(16 * _left(height) * _left(width), 120),
            relu3=nn.ReLU(inplace=True),
            fc2=nn.Linear(120, 84),
            relu4=nn.ReLU(inplace=True),
        )
        return _start_he_normal(Classifier(nn.Sequential(layers), 84, classes))


def _left(size: int) -> int:
    """Pixels left of `size` behind two convolutions and two poolings."""
    return ((size - 4) // 2 - 4) // 2


def _start_he_normal(model: Classifier) -> Classifier:
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            assert module.bias is not None
            nn.init.zeros_(module.bias)
    return model
