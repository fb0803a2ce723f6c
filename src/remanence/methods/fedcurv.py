"""FedCurv: a quadratic penalty around the other devices' models, weighted by their Fisher information.

Shoham, Avidor, Keren, Israel, Benditkis, Mor-Yosef, Zeitak 2019, NeurIPS FL workshop, arXiv 1910.07796. Changes `down`,
`begin`, `grad`, `up`, `step`; a device keeps its last (u_k, v_k), the server their sums (U, V) over all devices that
ever took part, accumulated in float64. The Fisher diagonal is the mean of per-sample squares; `fisher="batch"` squares
the mean of a batch instead, as the library behind the published comparisons does. Squared gradients travel with the
model: more leaves the device than in FedAvg.
"""

from typing import Literal

import torch
from torch import Tensor

from remanence.core.fisher import fisher_per_batch, fisher_per_sample
from remanence.method import (
    Context,
    Field,
    FlatModel,
    Merged,
    Message,
    Method,
    Network,
    Samples,
    State,
    methods,
    options,
)


@methods.register("fedcurv")
@options
class FedCurv(Method):
    """Elastic weight consolidation towards every other device's latest model."""

    strength: float = Field(1.0, ge=0, description="lambda; strength * lr * 2 * max(U) must stay below 2")
    fisher: Literal["per_sample", "batch"] = "per_sample"
    fisher_samples: int = Field(500, ge=1, description="samples of the device for its Fisher diagonal")
    ups = {"w": "weighted", "du": "sum", "dv": "sum"}

    def stacks(self) -> bool:
        return False

    def open_server(self, net: Network, ctx: Context) -> State:
        return {name: torch.zeros(net.size, dtype=torch.float64) for name in ("U", "V")}

    def open_device(self, net: Network, data: Samples, ctx: Context) -> State:
        return {name: torch.zeros(net.size) for name in ("u", "v")}

    def down(self, w: Tensor, device: int, srv: State, ctx: Context) -> Message:
        for name in ("U", "V"):
            if name not in ctx.scratch:
                ctx.scratch[name] = srv[name].float()
        return Message(w=w, U=ctx.scratch["U"], V=ctx.scratch["V"])

    def begin(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> None:
        net.load(message["w"])
        ctx.scratch.update(U=message["U"] - dev["u"], V=message["V"] - dev["v"])  # U_{-k}, V_{-k}

    def grad(self, net: Network, message: Message, dev: State, ctx: Context) -> None:
        if self.strength:
            w, g = net.trainable  # 2 lambda (U_{-k} w - V_{-k})
            g.addcmul_(ctx.scratch["U"], w, value=2 * self.strength).sub_(ctx.scratch["V"], alpha=2 * self.strength)

    def up(self, net: FlatModel, message: Message, data: Samples, dev: State, ctx: Context) -> Message:  # type: ignore[override]
        w, old = net.copy(), dict(dev)
        dev["u"] = self._fisher(net, data, ctx)  # u_k = F_k
        dev["v"] = dev["u"] * w[: net.size]  # v_k = F_k w_k
        return Message(w=w, n=len(data), du=dev["u"] - old["u"], dv=dev["v"] - old["v"])

    def _fisher(self, net: FlatModel, data: Samples, ctx: Context) -> Tensor:
        chosen = torch.randperm(len(data), generator=ctx.generator("fisher"))[: self.fisher_samples]
        if self.fisher == "per_sample":
            return fisher_per_sample(net, data, chosen)
        size = ctx.train.batch if isinstance(ctx.train.batch, int) else len(chosen)
        return fisher_per_batch(net, data, chosen, size)

    def step(self, w: Tensor, merged: Merged, srv: State, ctx: Context) -> Tensor:
        srv["U"] = (srv["U"] + merged["du"]).clamp_(min=0)  # a sum of squares; rounding must not make it negative
        srv["V"] = srv["V"] + merged["dv"]
        return merged["w"]  # type: ignore[no-any-return]

    def facts(self, srv: State) -> dict[str, float]:
        return {"largest_curvature": float(srv["U"].max())}
