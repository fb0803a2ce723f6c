"""Consistency weights (FedAWAC): a model counts for the variance of its logits on unlabelled samples of the server.

Zhang, Mao, Xu, Chen, Muazu, He, Wu, "Overcoming Forgetting Using Adaptive Federated Learning for IIoT Devices with
Non-IID Data", Eq. 8-9. Usable with every method that leaves the weights open. Without the extra 1/K that its
Eq. 8 prints: with it, K equal models would shrink to one K-th. A diverged or over-confident model gains weight,
the opposite of what the paper claims: models that are not finite are refused before they are scored, the largest
weight is in the event log of every round, and `cap` bounds it.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.parts import Merge
from remanence.core.state import State
from remanence.core.vector import FlatModel
from remanence.data.samples import Samples
from remanence.measure.accuracy import BATCH
from remanence.registry import options, parts


@parts["merge"].register("consistency")
@options
class Consistency(Merge):
    """Weights by the variance of each model's logits on the server's unlabelled samples."""

    reduce: Literal["mean_of_ratios", "normalise_last"] = Field(
        "mean_of_ratios", description="shares per sample, then their mean; or shares of the mean variances"
    )
    score_on: Literal["server", "device"] = Field(
        "server", description="device: it gets the samples once and sends a number for each; the same weights"
    )
    cap: float = Field(1.0, gt=0, le=1, description="largest weight of one device; 1 = no limit")
    weighs = True
    public_data = True

    @property
    def public_on_devices(self) -> bool:
        return self.score_on == "device"

    def stacks(self) -> bool:
        return self.score_on == "server"

    def report(self, net: FlatModel, data: Samples, dev: State, ctx: Context) -> Mapping[str, Any]:
        if self.score_on == "server":
            return {}
        net.stand(-1)  # as the server would
        scores = variances(net, dev["public"])
        net.stand(ctx.device)
        return {"scores": scores}

    def arrive(self, upload: Message, ctx: Context) -> Mapping[str, Any]:
        if self.score_on == "device":
            return {}
        assert ctx.net is not None
        assert ctx.public is not None
        ctx.net.load(upload["w"])
        derived = Message(scores=variances(ctx.net, ctx.public.x))
        derived.check_finite()  # weights may be finite where the logits' variance is not
        return derived

    def weigh(self, messages: Mapping[int, Message], ctx: Context) -> Tensor:
        scores = torch.stack([message["scores"] for message in messages.values()]).double()
        if self.reduce == "normalise_last":
            scores = scores.mean(1, keepdim=True)
        return capped(_shares(scores).mean(1), self.cap)


@torch.no_grad()
def variances(net: FlatModel, x: Tensor) -> Tensor:
    """s_k(x): population variance of the raw logits, in evaluation mode, for every sample."""
    net.train(False)
    return torch.cat([net(piece).var(1, correction=0) for piece in x.split(BATCH)])


def _shares(scores: Tensor) -> Tensor:
    """a_k(x) = s_k(x) / sum_j s_j(x); 1/K where all are 0. A row per device.  Eq. 9"""
    total = scores.sum(0)
    return torch.where(total > 0, scores / total, 1 / len(scores))


def capped(shares: Tensor, cap: float) -> Tensor:
    """What is above `cap` goes to the others in proportion; equal weights where the cap leaves no other choice."""
    if cap * len(shares) <= 1:
        return torch.full_like(shares, 1 / len(shares)) if cap < 1 else shares
    fixed = torch.zeros_like(shares, dtype=torch.bool)
    while bool((shares > cap + 1e-12).any()):
        fixed |= shares > cap
        free = shares * ~fixed
        if not float(free.sum()):
            free = (~fixed).to(shares.dtype)
        shares = torch.where(fixed, cap, free * ((1 - cap * int(fixed.sum())) / free.sum()))
    return shares
