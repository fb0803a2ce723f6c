"""Methods that train beside frozen networks: what these are and stay, and losses seen at the logits."""

from dataclasses import dataclass
from typing import Any

import torch
from by_autograd import normalised_layers
from torch import Tensor, nn
from worlds import ONE_BY_ONE, classification, same_bits

import remanence
from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.method import Method, Network
from remanence.core.optimiser import Training
from remanence.core.state import State
from remanence.core.vector import FlatModel
from remanence.data.samples import Batch, Samples
from remanence.methods.fedavg import FedAvg


def context(*teachers: FlatModel, classes: int) -> Context:
    return Context(round=1, rounds=1, lr=0.1, train=Training(), devices=1, classes=classes, teachers=teachers)


@dataclass(frozen=True)
class Held:
    """What a device's frozen networks held in a round, beside what it received and sent."""

    round: int
    device: int
    received: Tensor
    frozen: list[Tensor]
    sent: Tensor


HELD: list[Held] = []


class Watched:
    """Mixin: checks that frozen networks answer in evaluation mode and do not change. Only for this process."""

    def begin(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> None:
        super().begin(net, message, data, dev, ctx)  # type: ignore[misc]
        ctx.scratch["received"] = message["w"].clone()
        ctx.scratch["frozen"] = [teacher.copy() for teacher in ctx.teachers]

    def loss(self, net: FlatModel, batch: Batch, dev: State, ctx: Context) -> Tensor:
        assert all(module.training for module in net.module.modules())
        assert not any(module.training for teacher in ctx.teachers for module in teacher.module.modules())
        losses: Tensor = super().loss(net, batch, dev, ctx)  # type: ignore[misc]
        return losses

    def up(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> Message:
        upload: Message = super().up(net, message, data, dev, ctx)  # type: ignore[misc]
        for teacher, before in zip(ctx.teachers, ctx.scratch["frozen"], strict=True):
            assert same_bits(teacher.copy(), before)
            assert not teacher.g.any()
        received, frozen = ctx.scratch["received"], ctx.scratch["frozen"]
        if ctx.device >= 0:  # not the server's rehearsal
            HELD.append(Held(ctx.round, ctx.device, received, frozen, upload["w"].clone()))
        return upload


def held(method: Method, participation: list[list[int]]) -> list[Held]:
    """Of a method that is `Watched`, on a model with batch normalisation and dropout."""
    HELD.clear()
    remanence.simulate(
        method, model=normalised_layers(), devices=classification(), rounds=len(participation), epochs=2,
        batches=3, participation=participation, engine=ONE_BY_ONE,
    )  # fmt: skip
    return list(HELD)


def answering(*z: float) -> FlatModel:
    """A model whose weights are its logits, so that its gradient is the gradient by the logits."""
    layer = nn.Linear(1, len(z), bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(z).unsqueeze(1))
    return FlatModel(nn.Sequential(layer))


@dataclass(frozen=True)
class Seen:
    """One sample's loss, and its gradient by the logits; of the method and of its term alone."""

    loss: float
    gradient: Tensor
    term: float
    term_gradient: Tensor


def seen(method: Method, z: Any, received: Any, y: int, counts: Any = None) -> Seen:
    """For a sample of class y on a device with `counts` samples of each class."""
    labels = torch.tensor([y]) if counts is None else torch.arange(len(z)).repeat_interleave(torch.tensor(counts))
    loss, gradient = _loss(method, z, received, y, labels)
    plain, plain_gradient = _loss(FedAvg(), z, received, y, labels)
    return Seen(float(loss), gradient, float(loss - plain), gradient - plain_gradient)


def _loss(method: Method, z: Any, received: Any, y: int, labels: Tensor) -> tuple[Tensor, Tensor]:
    net, teacher = answering(*z), answering(*received)
    data, ctx = Samples(torch.ones(len(labels), 1), labels, len(z)), context(teacher, classes=len(z))
    method.begin(net, Message(w=net.copy()), data, {}, ctx)
    loss = method.loss(net, Batch(torch.ones(1, 1), torch.tensor([y]), torch.tensor([0])), {}, ctx)
    loss.sum().backward()
    return loss.detach().double(), net.g.clone()
