"""Local optimisers on the flat vector of one device, or on one row per device. Fresh at the start of every round."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from remanence.registry import options


@options
class Training:
    """The `[train]` table: what a device does with its data in one round."""

    epochs: int = Field(5, ge=1)
    batch: Annotated[int, Field(ge=1)] | Literal["full"] = Field(
        50, description="samples per step; the last, smaller batch is kept"
    )
    lr: float = Field(0.01, gt=0)
    lr_decay: float = Field(1.0, gt=0, le=1, description="the rate is multiplied by this after every round")
    optimiser: Literal["sgd", "adam"] = "sgd"
    momentum: float = Field(0.0, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    clip: float = Field(0.0, ge=0, description="largest gradient norm; 0 = no clipping")

    def rate(self, round: int) -> float:
        return self.lr * self.lr_decay ** (round - 1)


class LocalOptimiser:
    """v <- momentum * v + g + weight_decay * w;  w <- w - lr * v   (or Adam), in place."""

    def __init__(self, train: Training, lr: float) -> None:
        self.train, self.lr = train, lr
        self.moments: list[Tensor] = []
        self.count = torch.zeros(())

    def step(self, w: Tensor, g: Tensor) -> None:
        """`w`, `g`: vectors, or a row per device; rows may drop out from the end, never come back."""
        if self.train.clip:
            norms = g.norm(dim=-1, keepdim=True)
            g.mul_((self.train.clip / (norms + 1e-6)).clamp_(max=1.0))
        if self.train.optimiser == "adam":
            self._adam(w, g)
        else:
            self._sgd(w, g)

    def _sgd(self, w: Tensor, g: Tensor) -> None:
        momentum = self.train.momentum
        torch._fused_sgd_(
            [w],
            [g],
            self._moments(w, 1 if momentum else 0),
            weight_decay=self.train.weight_decay,
            momentum=momentum,
            lr=self.lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )

    def _adam(self, w: Tensor, g: Tensor) -> None:
        first, second = self._moments(w, 2)
        self.count += 1
        torch._fused_adam_(
            [w],
            [g],
            [first],
            [second],
            [],
            [self.count],
            lr=self.lr,
            beta1=0.9,
            beta2=0.999,
            weight_decay=self.train.weight_decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    def _moments(self, w: Tensor, number: int) -> list[Tensor]:
        if len(self.moments) < number:
            self.moments = [torch.zeros_like(w) for _ in range(number)]
        return (
            self.moments if self.moments and self.moments[0].shape == w.shape else [m[: len(w)] for m in self.moments]
        )


def effective_steps(steps: int, momentum: float) -> float:
    """Sum of the coefficients with which the gradients of `steps` steps enter the total change (FedNova's a_k)."""
    if not momentum:
        return float(steps)
    if steps * (1 - momentum) > 0.01:
        return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    a = c = 0.0  # the closed form cancels here
    for _ in range(steps):
        c = momentum * c + 1
        a += c
    return a
