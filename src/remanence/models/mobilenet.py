"""MobileNet (version 1) for small images: a 3x3 stem of stride 1 and thirteen depthwise separable convolutions."""

from collections import OrderedDict
from typing import ClassVar

from torch import nn

from remanence.models.classifier import Classifier, MeanPool, image_size
from remanence.models.resnet import Norm, check_last_map, normalisation
from remanence.registry import models, options

STEM = 32
BLOCKS = (  # channels, stride
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
)


@models.register("mobilenet")
@options
class MobileNet:
    """3,217,226 parameters at three channels and 10 classes. `norm` as in resnet10."""

    name: ClassVar[str]

    norm: Norm = "gn2"

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        planes, *_ = image_size(self.name, shape, 1)
        check_last_map(self.name, self.norm, shape, 16)
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv=nn.Conv2d(planes, STEM, 3, padding=1, bias=False),
            norm=normalisation(self.norm, STEM),
            relu=nn.ReLU(inplace=True),
        )
        channels = STEM
        for number, (after, stride) in enumerate(BLOCKS, start=1):
            layers[f"block{number}"] = _separable(channels, after, stride, self.norm)
            channels = after
        layers["pool"] = MeanPool()
        return Classifier(nn.Sequential(layers), channels, classes)


def _separable(before: int, channels: int, stride: int, norm: Norm) -> nn.Sequential:
    """A 3x3 convolution of every channel by itself, then a 1x1 convolution across them."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        depthwise=nn.Conv2d(before, before, 3, stride, padding=1, groups=before, bias=False),
        norm1=normalisation(norm, before),
        relu1=nn.ReLU(inplace=True),
        pointwise=nn.Conv2d(before, channels, 1, bias=False),
        norm2=normalisation(norm, channels),
        relu2=nn.ReLU(inplace=True),
    )
    return nn.Sequential(layers)
