"""FedNova: normalised averaging removes the bias of unequal numbers of local steps.

Wang, Liu, Liang, Joshi, Poor 2020, NeurIPS, arXiv 2007.07481. Changes `up`, `weigh`, `step` (and `grad` when
mu > 0). The original rule, without the variance reduction that a public library adds under the same name. Its
optional server momentum is `optimise = "fedavgm"`, the same as the authors' while the rate is constant. Batch-norm
statistics: averaged by samples, not normalised.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from remanence.core.optimiser import Training, effective_steps
from remanence.errors import UserError
from remanence.method import Context, Field, Merged, Message, Network, Refused, Samples, State, methods, options
from remanence.methods.fedprox import FedProx


@methods.register("fednova")
@options
class FedNova(FedProx):
    """FedAvg over changes divided by each device's number of effective steps a_k."""

    mu: float = Field(0.0, ge=0, description="strength of a proximal term; needs train.momentum = 0")
    ups = {"w": "weighted", "a": "samples", "steps": "samples", "tail": "samples"}
    sgd_only = True

    def check(self, train: Training) -> None:
        super().check(train)
        if train.lr * self.mu > 1:
            raise UserError(
                f"method.mu: {self.mu} with train.lr = {train.lr} is not allowed: lr * mu must be at most 1"
            )
        if self.mu and train.momentum:
            raise UserError(
                f"method.mu: {self.mu} with train.momentum = {train.momentum} is not allowed: "
                "FedNova's step count is defined for one of the two"
            )

    def up(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> Message:
        pull = ctx.lr * self.mu
        a = proximal_steps(ctx.steps, pull) if pull else effective_steps(ctx.steps, ctx.train.momentum)
        w = net.copy()
        upload = Message(w=w, n=len(data), a=float(a))
        if self.mu:
            upload["steps"] = float(ctx.steps)
        if len(w) > net.size:
            upload["tail"] = w[net.size :].clone()
        return upload

    def arrive(self, upload: Message, w: Tensor, ctx: Context) -> Mapping[str, Any]:
        if upload["a"] <= 0:
            raise Refused(f"'a' is {upload['a']}, not a number of steps")
        return {}

    def weigh(self, messages: Mapping[int, Message], srv: State, ctx: Context) -> Tensor:
        return torch.tensor([m["n"] / m["a"] for m in messages.values()], dtype=torch.float64)

    def step(self, w: Tensor, merged: Merged, srv: State, ctx: Context) -> Tensor:
        tau = merged.get("steps", merged["a"])  # tau_eff = sum p_k a_k
        direction = (w - merged["w"]) * (merged["total_weight"] / merged["samples"])  # sum p_k d_k
        new: Tensor = w - tau * direction  # w_g - tau_eff sum p_k d_k
        if "tail" in merged:
            new[-len(merged["tail"]) :] = merged["tail"]
        return new


def proximal_steps(steps: int, pull: float) -> float:
    """a <- a (1 - eta mu) + 1 with each step, in a form that does not cancel for a small pull."""
    return 1.0 if pull == 1 else -math.expm1(steps * math.log1p(-pull)) / pull
