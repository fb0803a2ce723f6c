"""FedCM: every local step is mixed with last round's global direction.

Xu, Wang, Wang, Yao 2021, arXiv 2106.10874. Changes `down`, `grad`, `up`, `arrive`, `step`; the server keeps Delta,
which covers the trainable parameters; batch-norm statistics are averaged as in FedAvg.
Deviation: each device's change is divided by its own number of steps, where the paper has one number for all.
Local momentum would amplify the global part by 1 / (1 - momentum) and is refused.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from remanence.core.optimiser import Training
from remanence.errors import UserError
from remanence.method import Context, Field, Merged, Message, Method, Network, Samples, State, methods, options


@methods.register("fedcm")
@options
class FedCM(Method):
    """Steps of alpha * gradient + (1 - alpha) * last round's mean step."""

    alpha: float = Field(0.1, gt=0, le=1, description="share of the local gradient")
    eta_g: float = Field(1.0, gt=0, description="server learning rate")
    ups = {"w": "weighted", "delta": "weighted"}
    keeps = ("delta",)
    sgd_only = True

    def check(self, train: Training) -> None:
        super().check(train)
        if train.momentum:
            raise UserError(f"train.momentum: {train.momentum} is not allowed: fedcm has a momentum of its own")

    def open_server(self, net: Network, ctx: Context) -> State:
        return {"delta": net.w.new_zeros(net.size)}  # Delta_1 = 0

    def down(self, w: Tensor, device: int, srv: State, ctx: Context) -> Message:
        return Message(w=w, delta=srv["delta"])

    def grad(self, net: Network, message: Message, dev: State, ctx: Context) -> None:
        if self.alpha == 1:
            return
        w, g = net.trainable
        # The optimiser adds the whole decay; it belongs inside g, so (1 - alpha) of it is taken back.
        if ctx.train.weight_decay:
            g.sub_(w, alpha=(1 / self.alpha - 1) * ctx.train.weight_decay)
        g.mul_(self.alpha).add_(message["delta"], alpha=1 - self.alpha)  # v = alpha g + (1 - alpha) Delta_t

    def up(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> Message:
        return Message(w=net.copy(), n=len(data), steps=ctx.steps)

    def arrive(self, upload: Message, w: Tensor, ctx: Context) -> Mapping[str, Any]:
        assert ctx.net is not None
        change = (w - upload["w"])[: ctx.net.size]
        return {"delta": change / (ctx.lr * upload["steps"])}  # (w_g - w_k) / (eta_t tau_k)

    def step(self, w: Tensor, merged: Merged, srv: State, ctx: Context) -> Tensor:
        srv["delta"] = merged["delta"]  # Delta_{t+1} = sum p_k (w_g - w_k) / (eta_t tau_k)
        new, size = merged["w"], len(srv["delta"])
        if self.eta_g != 1:
            new[:size] = (w + self.eta_g * (new - w))[:size]  # w_g - eta_g sum p_k (w_g - w_k)
        return new  # type: ignore[no-any-return]
