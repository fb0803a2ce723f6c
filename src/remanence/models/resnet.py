"""ResNet-10 and ResNet-18 for small images: 3x3 stem without pooling, four stages, mean pooling."""

from collections import OrderedDict
from typing import ClassVar, Literal

from torch import Tensor, nn

from remanence.errors import UserError
from remanence.models.classifier import Classifier, MeanPool, image_size
from remanence.registry import models, options

Norm = Literal["bn", "bn_nostats", "gn2"]
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the first block


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is 1x1 where the shape changes."""

    def __init__(self, before: int, channels: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, padding=1, bias=False)
        self.norm1 = normalisation(norm, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = normalisation(norm, channels)
        self.shortcut = _shortcut(before, channels, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu_()))
        return y.add_(self.shortcut(x)).relu_()


@models.register("resnet10")
@options
class ResNet10:
    """One block per stage; 4,903,242 parameters at three channels and 10 classes.

    `norm`: "gn2" GroupNorm of two groups, "bn" BatchNorm, "bn_nostats" BatchNorm without running statistics.
    GroupNorm is the default because a prediction then depends on its own sample alone and there are no
    buffers to aggregate; with skewed devices neither kind of batch statistics fits the fleet.
    """

    name: ClassVar[str]

    norm: Norm = "gn2"

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        return residual_network(self.name, 1, self.norm, shape, classes)


@models.register("resnet18")
@options
class ResNet18:
    """Two blocks per stage; 11,173,962 parameters at three channels and 10 classes. `norm` as in resnet10."""

    name: ClassVar[str]

    norm: Norm = "gn2"

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        return residual_network(self.name, 2, self.norm, shape, classes)


def residual_network(name: str, blocks: int, norm: Norm, shape: tuple[int, ...], classes: int) -> Classifier:
    planes, *_ = image_size(name, shape, 1)
    check_last_map(name, norm, shape, 8)
    channels = STAGES[0][0]
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv=nn.Conv2d(planes, channels, 3, padding=1, bias=False),
        norm=normalisation(norm, channels),
        relu=nn.ReLU(inplace=True),
    )
    for number, (after, stride) in enumerate(STAGES, start=1):
        layers[f"stage{number}"] = _stage(blocks, channels, after, stride, norm)
        channels = after
    layers["pool"] = MeanPool()
    return Classifier(nn.Sequential(layers), channels, classes)


def check_last_map(name: str, norm: Norm, shape: tuple[int, ...], shrink: int) -> None:
    """Batch statistics of a last map of one pixel: a batch of one sample has no variance; refuse before training."""
    if norm != "gn2" and max(shape[1:]) <= shrink:
        raise UserError(
            f"model '{name}' with norm '{norm}' needs images larger than {shrink}x{shrink} pixels; "
            f"got shape {tuple(shape)}; norm 'gn2' takes any size"
        )


def normalisation(norm: Norm, channels: int) -> nn.Module:
    if norm == "gn2":
        return nn.GroupNorm(2, channels)
    return nn.BatchNorm2d(channels, track_running_stats=norm == "bn")


def _stage(blocks: int, before: int, channels: int, stride: int, norm: Norm) -> nn.Sequential:
    first = Block(before, channels, stride, norm)
    return nn.Sequential(first, *(Block(channels, channels, 1, norm) for _ in range(blocks - 1)))


def _shortcut(before: int, channels: int, stride: int, norm: Norm) -> nn.Module:
    if stride == 1 and before == channels:
        return nn.Identity()
    return nn.Sequential(
        nn.Conv2d(before, channels, 1, stride, bias=False),
        normalisation(norm, channels),
    )
