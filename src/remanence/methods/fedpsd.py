"""FedPSD: each epoch distils the outputs of the epoch before; cross entropy is calibrated by the device's classes.

Wang, Niu, "Federated Progressive Self-Distillation with Logits Calibration for Personalized IIoT Edge Intelligence",
arXiv 2412.00410. Changes `begin`, `loss`, `end_epoch`; a device keeps O_k, one probability vector per sample of its
own, which never leaves it. The outputs are those of the training pass, before each step. The first participation of a
device trains on the cross entropy alone, as in the authors' code; `first="progressive"` distils from its second epoch.
The three switches are those of the paper's ablation; all off is FedAvg.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from remanence.data.fleet import Counts
from remanence.errors import UserError
from remanence.method import (
    Batch,
    Context,
    Field,
    FlatModel,
    Message,
    Method,
    Network,
    Samples,
    State,
    methods,
    options,
)

LOG_0 = -1e9  # of a class that the device does not have: probability 0, gradient 0


@methods.register("fedpsd")
@options
class FedPSD(Method):
    """Progressive self-distillation with logits calibration."""

    rhpk: bool = Field(True, description="the first epoch distils what the device stored when it last took part")
    psd: bool = Field(True, description="later epochs distil the epoch before")
    cll: bool = Field(True, description="cross entropy is calibrated by the device's share of every class")
    first: Literal["ce_only", "progressive"] = Field("ce_only", description="what a device's first round distils")

    remembers_samples = True

    def stacks(self) -> bool:
        return False

    def examine(self, fleet: Counts) -> list[str]:
        single = [k for k, size in enumerate(fleet.sizes) if size and (fleet.counts(k) > 0).sum() == 1]
        if not self.cll or not single:
            return []
        if len(single) == sum(size > 0 for size in fleet.sizes) and not (self.rhpk or self.psd):
            raise UserError(
                "method.cll: true is not allowed here: every device holds one class and nothing is distilled, "
                "so nothing is left to learn"
            )
        return [f"{len(single)} devices hold one class; calibrated, their cross entropy is 0: {single[:10]}"]

    def begin(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> None:
        net.load(message["w"])
        log_prior = (data.counts / len(data)).log().clamp(min=LOG_0)  # log pi
        ctx.scratch.update(epoch=1, first="soft" not in dev, log_prior=log_prior)
        dev.setdefault("soft", torch.zeros(len(data), data.classes))  # O_k; a row of zeros: not seen yet

    def loss(self, net: Network, batch: Batch, dev: State, ctx: Context) -> Tensor:
        z = net(batch.x)
        calibrated = z + ctx.scratch["log_prior"] if self.cll else z
        loss = F.cross_entropy(calibrated, batch.y, reduction="none")  # L_CE
        log_p = F.log_softmax(z, 1)
        if self._distils(ctx):
            loss = loss + divergence(dev["soft"][batch.ids], batch.y, log_p, ctx.round / ctx.rounds)  # L_CE + L_KD
        dev["soft"].index_copy_(0, batch.ids, log_p.detach().exp())  # O_k[ids] <- p
        return loss

    def _distils(self, ctx: Context) -> bool:
        if ctx.scratch["epoch"] == 1:
            return self.rhpk and not ctx.scratch["first"]
        return self.psd and (self.first == "progressive" or not ctx.scratch["first"])

    def end_epoch(self, net: FlatModel, data: Samples, dev: State, ctx: Context) -> None:
        ctx.scratch["epoch"] += 1


def divergence(soft: Tensor, y: Tensor, log_p: Tensor, alpha: float) -> Tensor:
    """L_KD = KL( H || p ) with H = alpha O_k + (1 - alpha) Y; 0 for samples without stored outputs."""
    target = (alpha * soft).scatter_add_(1, y.unsqueeze(1), soft.new_full((len(y), 1), 1 - alpha))  # H
    kl = (torch.xlogy(target, target) - target * log_p).sum(1)
    return kl * (soft.sum(1) > 0)
