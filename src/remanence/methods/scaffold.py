"""SCAFFOLD: control variates cancel each device's drift.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020, ICML. Changes `down`, `grad`, `up`, `step`; a device
keeps c_k, the server c; both cover the trainable parameters, batch-norm statistics are averaged as in FedAvg.
Deviation: with momentum the displacement is divided by the effective number of steps, so that c_k keeps the
size of a gradient (`divisor="steps"` is the plain count; without momentum the two are the same).
"""

from typing import Literal

from torch import Tensor

from remanence.core.method import full_gradient
from remanence.core.optimiser import effective_steps
from remanence.method import Context, Field, Merged, Message, Method, Network, Samples, State, methods, options


@methods.register("scaffold")
@options
class Scaffold(Method):
    """Every local gradient is corrected by c - c_k, the drift of this device."""

    eta_g: float = Field(1.0, gt=0, description="server learning rate")
    option: Literal["I", "II"] = Field("II", description="I: c_k is the full gradient at the received model")
    divisor: Literal["effective", "steps"] = "effective"
    ups = {"w": "weighted", "delta_c": "sum"}
    keeps = ("w", "c")
    sgd_only = True

    def stacks(self) -> bool:
        return self.option == "II"

    def open_server(self, net: Network, ctx: Context) -> State:
        return {"c": net.w.new_zeros(net.size)}

    def open_device(self, net: Network, data: Samples, ctx: Context) -> State:
        return {"c": net.w.new_zeros(net.size)}

    def down(self, w: Tensor, device: int, srv: State, ctx: Context) -> Message:
        return Message(w=w, c=srv["c"])

    def grad(self, net: Network, message: Message, dev: State, ctx: Context) -> None:
        net.g[..., : net.size].add_(message["c"] - dev["c"])  # g - c_k + c

    def up(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> Message:
        w, old = net.copy(), dev["c"]
        steps = effective_steps(ctx.steps, ctx.train.momentum if self.divisor == "effective" else 0.0)
        # c_k^+ = c_k - c + (w_g - w_k) / (eta A_k)
        # A divisor that float32 takes for 0 would make no displacement at all into NaN.
        dev["c"] = old - message["c"] + (message["w"] - w)[: net.size] / max(ctx.lr * steps, 1e-37)
        if self.option == "I":
            dev["c"] = full_gradient(self, net, message["w"], data, dev, ctx)[: net.size]  # type: ignore[arg-type]
            net.load(w)  # the device's own model is measured after this
        return Message(w=w, n=len(data), delta_c=dev["c"] - old)

    def step(self, w: Tensor, merged: Merged, srv: State, ctx: Context) -> Tensor:
        srv["c"] = srv["c"] + merged["delta_c"] / ctx.devices  # c <- c + (K/N) mean of delta c_k
        new, size = merged["w"], len(srv["c"])
        if self.eta_g != 1:
            new[:size] = (w + self.eta_g * (new - w))[:size]  # w_g + eta_g (mean of w_k - w_g)
        return new  # type: ignore[no-any-return]

    def facts(self, srv: State) -> dict[str, float]:
        return {"norm_c": float(srv["c"].norm())}
