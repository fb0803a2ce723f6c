"""FedAdagrad, FedAdam, FedYogi (Reddi et al. 2021, arXiv 2003.00295, Algorithm 2).

Start v = tau^2 and no bias correction, as in the paper; `v0` and `bias_correction` give the other published forms.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from remanence.core.parts import Optimise
from remanence.core.state import State
from remanence.registry import options, parts


@options
class Adaptive(Optimise):
    eta: float = Field(0.01, gt=0, description="server learning rate")
    beta1: float = Field(0.9, ge=0, lt=1)
    tau: float = Field(0.001, gt=0, description="how far the step adapts")
    v0: float | None = Field(None, ge=0, description="start of v; none = tau squared")

    def open(self, w: Tensor) -> State:
        start = self.tau**2 if self.v0 is None else self.v0
        return {"m": torch.zeros_like(w), "v": torch.full_like(w, start), "round": 0}

    def step(self, w: Tensor, target: Tensor, state: State) -> Tensor:
        delta = target - w
        state["round"] += 1
        state["m"] = self.beta1 * state["m"] + (1 - self.beta1) * delta  # m_t
        state["v"] = self.second(state["v"], delta.square())  # v_t
        rate = self.eta * self.correction(state["round"])
        return w + rate * state["m"] / (state["v"].sqrt() + self.tau)  # type: ignore[no-any-return]  # x_{t+1}

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        raise NotImplementedError

    def correction(self, round: int) -> float:
        return 1.0


@parts["optimise"].register("fedadagrad")
@options
class FedAdagrad(Adaptive):
    eta: float = Field(0.1, gt=0, description="server learning rate")
    beta1: float = Field(0.0, ge=0, lt=1)

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return v + square


@parts["optimise"].register("fedadam")
@options
class FedAdam(Adaptive):
    beta2: float = Field(0.99, ge=0, lt=1)
    bias_correction: Literal["none", "adam", "flower"] = Field("none", description="the paper has none")

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * square

    def correction(self, round: int) -> float:
        if self.bias_correction == "none":
            return 1.0
        power = round + (self.bias_correction == "flower")  # Flower raises the first round to 2
        return (1 - self.beta2**power) ** 0.5 / (1 - self.beta1**power)  # type: ignore[no-any-return]


@parts["optimise"].register("fedyogi")
@options
class FedYogi(Adaptive):
    beta2: float = Field(0.99, ge=0, lt=1)

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.beta2) * square * torch.sign(v - square)
