"""Model window (FedAWAC, Eq. 13): the global model is the mean of the last M aggregates.

Raw aggregates stay in the window; only their mean is sent and reported. The window begins with the first aggregate,
so that the random start never enters; `include_init` follows the letter of the paper's Algorithm 1 instead, where
the start is the window's first model. Batch-norm statistics are those of the newest aggregate.
"""

from typing import TYPE_CHECKING

from pydantic import Field
from torch import Tensor

from remanence.core.context import Context
from remanence.core.parts import Optimise
from remanence.core.state import State
from remanence.errors import UserError
from remanence.registry import options, parts

if TYPE_CHECKING:
    from remanence.core.method import Method


@parts["optimise"].register("window")
@options
class Window(Optimise):
    """The mean of the last M aggregated models."""

    models: int = Field(5, ge=1, description="M; until there are so many, the newest aggregate alone")
    include_init: bool = Field(False, description="the start of the run counts as the first aggregate")

    def check(self, method: "Method", ctx: Context) -> None:
        if self.models > ctx.rounds:
            raise UserError(f"optimise.models: {self.models} is not allowed: the run has {ctx.rounds} rounds")

    def open(self, w: Tensor) -> State:
        return {"models": [w.clone()] if self.include_init else []}

    def step(self, w: Tensor, target: Tensor, state: State) -> Tensor:
        state["models"] = [*state["models"], target.clone()][-self.models :]  # w^t joins, w^(t-M) leaves
        if len(state["models"]) < self.models:
            return target  # wbar^t = w^t
        total: Tensor = state["models"][0].clone()
        for model in state["models"][1:]:
            total += model
        return total.div_(self.models)  # wbar^t = mean(w^t, ..., w^(t-M+1))  Eq. 13

    def raw(self, state: State) -> Tensor | None:
        full = 1 < self.models == len(state["models"])  # before, the newest aggregate is the global model itself
        return state["models"][-1] if full else None
