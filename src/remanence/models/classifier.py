"""What every model is: `features`, up to the penultimate activation, and `head`, the rest."""

import torch
from torch import Tensor, nn

from remanence.errors import UserError


class Classifier(nn.Module):
    """Methods address the two halves by these names, so no model may call its last layer anything else."""

    def __init__(self, features: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        if classes < 1:
            raise UserError(f"a model needs at least one class; got {classes}")
        self.features = features
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


class MeanPool(nn.Module):
    """The mean of each channel over the image, whatever the image's size."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.mean(x, (2, 3))


def image_size(model: str, shape: tuple[int, ...], least: int, advice: str = "") -> tuple[int, int, int]:
    """(channels, height, width) of images at least `least` pixels high and wide, or the user's error."""
    if len(shape) != 3 or shape[0] < 1 or min(shape[1:]) < least:
        raise UserError(
            f"model '{model}' needs images (channels, height, width) of at least {least}x{least} pixels; "
            f"got shape {tuple(shape)}{advice}"
        )
    return shape[0], shape[1], shape[2]


def halves(module: nn.Module, key: str) -> tuple[nn.Module, nn.Linear]:
    """Features and head of a model whose head a method replaces or extends."""
    features, head = getattr(module, "features", None), getattr(module, "head", None)
    if not isinstance(head, nn.Linear) or not isinstance(features, nn.Module):
        raise UserError(f"{key}: the model must have `features` and a linear `head`")
    return features, head


def images_and_rest(module: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The features, cut behind the last convolution and pooling, where images end."""
    features = getattr(module, "features", None)
    layers = features if isinstance(features, nn.Sequential) else nn.Sequential()
    flat = (number for number, layer in enumerate(layers) if isinstance(layer, nn.Flatten | MeanPool))
    cut = next(flat, len(layers))
    images, rest = layers[:cut], layers[cut:]
    if not any(isinstance(layer, nn.Conv2d) for layer in images.modules()):
        raise UserError(
            f"model: {type(module).__name__} has no `features` that begin with convolutions, which this method needs"
        )
    return images, rest


def channels(images: nn.Module) -> int:
    """Of what a chain of convolutions gives."""
    return [layer.out_channels for layer in images.modules() if isinstance(layer, nn.Conv2d)][-1]
