"""MOON: features close to the received model's and far from those of the device's previous model.

Li, He, Song 2021, CVPR, arXiv 2103.16257. Changes `network`, `begin`, `loss`, `up`; a device keeps the model that it
sent last, before its first round the model the run began with. Contrasts the penultimate activation, as the library
behind the published comparisons does; `head=256` is the projection of the original. Deviation: the two frozen models
answer in evaluation mode, so that their batch-norm statistics do not move.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remanence.method import Batch, Context, Field, Message, Method, Network, Samples, State, methods, options
from remanence.models.classifier import halves


@methods.register("moon")
@options
class Moon(Method):
    """A contrastive term between the features of three models."""

    mu: float = Field(0.1, ge=0, description="strength of the contrastive term")
    tau: float = Field(0.5, gt=0, description="temperature")
    head: int = Field(0, ge=0, description="outputs of a projection head in front of the classifier; 0 = none")

    @property
    def teachers(self) -> int:  # type: ignore[override]
        return 2 if self.mu else 0

    def stacks(self) -> bool:
        return not self.mu and not self.head

    def network(self, module: nn.Module, ctx: Context) -> nn.Module:
        return Projected(module, self.head) if self.head else module

    def begin(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> None:
        net.load(message["w"])
        if self.mu:
            assert ctx.start is not None
            ctx.teachers[1].load(dev.pop("previous", ctx.start))  # not held twice while it trains

    def loss(self, net: Network, batch: Batch, dev: State, ctx: Context) -> Tensor:
        if not self.mu:
            return super().loss(net, batch, dev, ctx)
        z = net.features(batch.x)  # type: ignore[attr-defined]
        with torch.no_grad():
            received, previous = (teacher.features(batch.x) for teacher in ctx.teachers)
        cross_entropy = F.cross_entropy(net.head(z), batch.y, reduction="none")  # type: ignore[attr-defined]
        return cross_entropy + self.mu * contrast(z, received, previous, self.tau)

    def up(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> Message:
        w = net.copy()
        if self.mu:
            dev["previous"] = w
        return Message(w=w, n=len(data))


def contrast(z: Tensor, received: Tensor, previous: Tensor, tau: float) -> Tensor:
    """-log( e^{cos(z, z_g) / tau} / (e^{cos(z, z_g) / tau} + e^{cos(z, z_p) / tau}) ) for every sample."""
    near, far = (F.cosine_similarity(z, other, dim=1) / tau for other in (received, previous))
    # At z = 0 the cosine's gradient is as large as 1/eps: such a sample gets the constant ln 2 instead.
    away = torch.where(z.detach().abs().sum(1) > 0, far - near, 0.0)
    return F.softplus(away)


class Projected(nn.Module):
    """The plain model with two more layers between its features and its classifier."""

    def __init__(self, module: nn.Module, outputs: int) -> None:
        super().__init__()
        features, plain = halves(module, "method.head")
        width = plain.in_features
        self.features = nn.Sequential(features, nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))
        self.head = nn.Linear(outputs, plain.out_features)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))  # type: ignore[no-any-return]
