"""FedFusion: features of the received extractor, frozen, are fused with those of the extractor in training.

Yao, Huang, Wu, Zhang, Sun 2019, ICIP, arXiv 1908.05891. Changes `network`, `begin`, `step`; the fusion stands behind
the last pooling layer, is trained with the rest of the model and travels with it. Deviations from the authors' code:
models are weighted by samples; the received extractor is not sent, so that the server answers with the new extractor
on both sides, as a device would on receipt (`eval_ref="previous"` sends it, and answers with that of the round
before); it is in evaluation mode, so that its batch-norm statistics do not move.
"""

import copy
from typing import Literal

import torch
from torch import Tensor, nn

from remanence.core.vector import Placed
from remanence.method import Context, Field, FlatModel, Merged, Message, Method, Samples, State, methods, options
from remanence.models.classifier import channels, halves, images_and_rest


@methods.register("fedfusion")
@options
class FedFusion(Method):
    """The device's own features and those it received, fused channel by channel."""

    fusion: Literal["conv", "multi", "single"] = Field(
        "conv", description="a 1x1 convolution, a weight for each channel, or one weight"
    )
    mu: float = Field(0.9, ge=0, lt=1, description="smoothing of the fusion weight over rounds; not of a convolution")
    conv_init: Literal["default", "identity"] = Field("default", description="identity: own features alone at first")
    eval_ref: Literal["received", "previous"] = Field(
        "received", description="previous: the received extractor is sent back, and the server answers with it"
    )

    def stacks(self) -> bool:
        return False

    def network(self, module: nn.Module, ctx: Context) -> nn.Module:
        images, rest = images_and_rest(module)
        _, head = halves(module, "method.name")
        fusion: nn.Module
        if self.fusion == "conv":
            fusion = Convolution(channels(images), self.conv_init == "identity")
        else:
            fusion = Mixture(1 if self.fusion == "single" else channels(images))
        return Fused(images, rest, head, fusion, self.eval_ref == "previous")

    def begin(self, net: FlatModel, message: Message, data: Samples, dev: State, ctx: Context) -> None:  # type: ignore[override]
        net.load(message["w"])
        ctx.scratch["reference"] = net.module.freeze()  # type: ignore[operator]  # E_g

    def step(self, w: Tensor, merged: Merged, srv: State, ctx: Context) -> Tensor:
        new: Tensor = merged["w"]
        if self.fusion != "conv":
            assert ctx.net is not None
            a = ctx.net.part("fusion")
            new[a] = (1 - self.mu) * new[a] + self.mu * w[a]  # a_t = (1 - mu) avg_k(a_k) + mu a_{t-1}
        return new


class Convolution(nn.Conv2d):
    """f = W (*) concat(f_l, f_g) + b; own features come first."""

    def __init__(self, channels: int, identity: bool) -> None:
        super().__init__(2 * channels, channels, 1)
        assert self.bias is not None
        if identity:  # W = [I | 0], b = 0
            nn.init.dirac_(self.weight)
            nn.init.zeros_(self.bias)

    def forward(self, local: Tensor, received: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(torch.cat([local, received], 1))  # W (*) concat(f_l, f_g) + b


class Mixture(nn.Module):
    """f = a f_g + (1 - a) f_l; a starts at 0 and is not bounded."""

    def __init__(self, weights: int) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(weights))

    def forward(self, local: Tensor, received: Tensor) -> Tensor:
        # Not a f_g + (1 - a) f_l as it stands: this is exact where both are the same.
        return local + self.a.view(-1, 1, 1) * (received - local)  # f_l + a (f_g - f_l)


class Fused(Placed):
    """The plain model, cut behind its convolutions; the received extractor is part of it only where it is sent."""

    def __init__(self, images: nn.Module, rest: nn.Module, head: nn.Module, fusion: nn.Module, sent: bool) -> None:
        super().__init__()
        self.extractor, self.rest, self.head, self.fusion = images, rest, head, fusion
        reference = copy.deepcopy(images).float().requires_grad_(False).eval()
        self.sent = sent
        if sent:
            self.reference = reference
        self.frozen = (reference,)  # in a tuple, where torch does not find it

    def freeze(self) -> list[Tensor]:
        """Keep the extractor as it is now; what is held besides the model."""
        kept = list(self.frozen[0].state_dict().values())
        for old, new in zip(kept, self.extractor.state_dict().values(), strict=True):
            old.copy_(new)
        return [] if self.sent else kept

    def forward(self, x: Tensor) -> Tensor:
        local = received = self.extractor(x)
        if self.sent or self.device >= 0:
            with torch.no_grad():
                received = self.frozen[0](x)
        return self.head(self.rest(self.fusion(local, received)))  # type: ignore[no-any-return]

    def train(self, mode: bool = True) -> "Fused":
        super().train(mode)
        self.frozen[0].eval()
        return self
