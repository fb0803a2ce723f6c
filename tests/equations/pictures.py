"""Small images on devices of different sizes, networks with convolutions for them, and FEMNIST's network."""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from worlds import Device

from remanence.models.classifier import Classifier
from remanence.registry import models

PICTURE_SIZES = (5, 8, 3, 6)
PICTURE_CLASSES = 3


def pictures(sizes: Sequence[int] = PICTURE_SIZES, seed: int = 7) -> list[Device]:
    """(1, 6, 6), brighter by class and by device."""
    generator = torch.Generator().manual_seed(seed)
    devices = []
    for number, samples in enumerate(sizes):
        y = torch.randint(0, PICTURE_CLASSES, (samples,), generator=generator)
        x = torch.randn(samples, 1, 6, 6, generator=generator) + (y - 1 + number / 4).view(-1, 1, 1, 1)
        devices.append((x, y))
    return devices


def convolutional(normalised: bool = False) -> Classifier:
    """Two channels of 3x3 behind the pooling, five hidden units."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(conv1=nn.Conv2d(1, 2, 3, padding=1))
    if normalised:
        layers["norm1"] = nn.BatchNorm2d(2)
    layers |= OrderedDict(
        relu1=nn.ReLU(inplace=True), pool1=nn.MaxPool2d(2), flatten=nn.Flatten(), fc1=nn.Linear(18, 5), relu2=nn.ReLU()
    )
    model = Classifier(nn.Sequential(layers), 5, PICTURE_CLASSES)
    generator = torch.Generator().manual_seed(13)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return model


def femnist_cnn() -> Classifier:
    """6,603,710 parameters, whatever they are."""
    with torch.device("meta"):  # without the time that random numbers take
        model: Classifier = models.create("femnist-cnn", {}).build((1, 28, 28), 62)
    return model.to_empty(device="cpu")


def parameters_of(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def noise(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
