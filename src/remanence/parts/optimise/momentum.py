"""FedAvgM: server momentum (Hsu, Qi, Brown 2019, arXiv 1909.06335).

The averaged change of the model is an ascent direction: x + eta * m, never damped by 1 - beta.
"""

import torch
from pydantic import Field
from torch import Tensor

from remanence.core.parts import Optimise
from remanence.core.state import State
from remanence.registry import options, parts


@parts["optimise"].register("fedavgm")
@options
class FedAvgM(Optimise):
    eta: float = Field(1.0, gt=0, description="server learning rate")
    beta: float = Field(0.9, ge=0, lt=1, description="server momentum")

    def open(self, w: Tensor) -> State:
        return {"m": torch.zeros_like(w)}

    def step(self, w: Tensor, target: Tensor, state: State) -> Tensor:
        if self.beta == 0 and self.eta == 1:
            return target  # FedAvg's own average: x + (average - x) would round
        state["m"] = self.beta * state["m"] + (target - w)  # m_t = beta m_{t-1} + Delta_t
        return w + self.eta * state["m"]  # type: ignore[no-any-return]  # x_{t+1} = x_t + eta m_t
