"""CGAU: after rounds of FedAvg, gated layers take the place of the head, with offsets learned for every device.

Rieger, Hoegh, Hansen 2020, FL-ICML workshop, arXiv 2007.04806. Changes `network`, `down`, `begin`, `up`, `arrive`,
`step`. Deviations: the original features were trained elsewhere, here FedAvg trains them for `pretrain` rounds on the
same devices, which count as rounds of the run; offsets start at 0 instead of at random; the second bias of the authors'
code is an option; a device that is not known, as the server, answers with the mean of all offsets. What a phase trains
is all that travels; frozen features go to a device once and are kept there, or come down in every round. The server
learns which device is which.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from remanence.core.vector import Placed
from remanence.errors import UserError
from remanence.method import Context, Field, FlatModel, Merged, Message, Method, Samples, State, methods, options
from remanence.models.classifier import halves


@methods.register("cgau")
@options
class CGAU(Method):
    """A head of gated layers (tanh times sigmoid) that every device shifts by offsets of its own."""

    pretrain: int = Field(100, ge=0, description="rounds of FedAvg on the plain model that come first")
    mode: Literal["frozen", "finetune"] = Field("frozen", description="finetune: the features go on learning")
    units: int = Field(256, ge=1, description="H, of each gated layer")
    layers: int = Field(1, ge=1, le=100, description="gated layers")
    dropout: float = Field(0.0, ge=0, lt=1, description="in front of each gated layer")
    v_avg: Literal["fedavg", "own"] = Field(
        "fedavg", description="fedavg: all offsets travel and are averaged; own: a device keeps its own, unchanged"
    )
    features: Literal["kept", "sent"] = Field("kept", description="frozen features: on the device, or sent every round")
    double_bias: bool = Field(False, description="a second bias beside each, which doubles their steps")
    ups = {"w": "weighted", "offset": "sum"}

    @property
    def freezes(self) -> bool:
        return self.mode == "frozen"

    @property
    def once(self) -> tuple[str, ...]:
        return ("features",) if self.features == "kept" else ()

    def stacks(self) -> bool:
        return False

    def network(self, module: nn.Module, ctx: Context) -> nn.Module:
        features, head = halves(module, "method.name")
        rows = 1 if self.v_avg == "own" else ctx.devices
        gated = GatedHead(head, self.units, self.layers, self.dropout, self.double_bias)
        return Adapted(features, head, gated, Offsets(gated.widths, rows), self.freezes)

    def open_server(self, net: FlatModel, ctx: Context) -> State:
        if self.pretrain >= ctx.rounds:
            raise UserError(f"method.pretrain: {self.pretrain} is not allowed: the run has {ctx.rounds} rounds")
        return {"adapted_rounds": 0, "holders": []}  # devices that keep the frozen features

    def down(self, w: Tensor, device: int, srv: State, ctx: Context) -> Message:
        assert ctx.net is not None
        message = Message(w=self._shared("w", w, self._travels(ctx), ctx))
        if self._adapts(ctx) and self.freezes and device not in srv["holders"]:
            message["features"] = self._shared("features", w, ("features",), ctx)
        return message

    def _shared(self, name: str, w: Tensor, parts: tuple[str, ...], ctx: Context) -> Tensor:
        """One and the same tensor in all messages of a round."""
        assert ctx.net is not None
        if name not in ctx.scratch:
            ctx.scratch[name] = gathered(w, ctx.net.places(*parts))
        sent: Tensor = ctx.scratch[name]
        return sent

    def _adapts(self, ctx: Context) -> bool:
        return ctx.round > self.pretrain

    def _travels(self, ctx: Context) -> tuple[str, ...]:
        """What is trained."""
        if not self._adapts(ctx):
            return ("features", "head")
        gated = ("gated", "offsets") if self.v_avg == "fedavg" else ("gated",)
        return gated if self.freezes else ("features", *gated)

    def begin(self, net: FlatModel, message: Message, data: Samples, dev: State, ctx: Context) -> None:  # type: ignore[override]
        assert ctx.start is not None
        w = placed(ctx.start.clone(), net.places(*self._travels(ctx)), message["w"])
        if self._adapts(ctx):
            w[net.slices["adapted"]] = 1
            if self.freezes:
                kept = message["features"] if "features" in message else dev.pop("features")
                placed(w, net.places("features"), kept)
            if self.v_avg == "own":
                w[net.part("offsets")] = dev.get("offset", 0)
        net.load(w)
        net.narrow(self._trained(net, ctx))
        if self._adapts(ctx) and self.freezes:
            net.module.features.train(False)  # type: ignore[union-attr]  # its statistics stand still

    def _trained(self, net: FlatModel, ctx: Context) -> slice:
        if not self._adapts(ctx):
            return slice(net.part("head").stop)
        return slice(net.part("gated").start if self.freezes else 0, net.part("offsets").stop)

    def up(self, net: FlatModel, message: Message, data: Samples, dev: State, ctx: Context) -> Message:  # type: ignore[override]
        w = net.copy()
        upload = Message(w=gathered(w, net.places(*self._travels(ctx))), n=len(data))
        if not self._adapts(ctx):
            return upload
        if self.freezes and self.features == "kept":
            dev["features"] = gathered(w, net.places("features"))
        if self.v_avg == "own":
            own = w[net.part("offsets")].clone()
            upload["offset"] = own - dev["offset"] if "offset" in dev else own
            dev["offset"] = own
        return upload

    def arrive(self, upload: Message, w: Tensor, ctx: Context) -> Message:
        """The whole model: the device has changed nothing but what it sent."""
        assert ctx.net is not None
        whole = placed(w.clone(), ctx.net.places(*self._travels(ctx)), upload["w"])
        whole[ctx.net.slices["adapted"]] = float(self._adapts(ctx))
        return Message(w=whole)

    def step(self, w: Tensor, merged: Merged, srv: State, ctx: Context) -> Tensor:
        assert ctx.net is not None
        new: Tensor = merged["w"]
        if self._adapts(ctx):
            srv["adapted_rounds"] += 1
            if self.freezes and self.features == "kept":
                srv["holders"] = sorted({*srv["holders"], *merged["counted"]})
        if "offset" in merged:  # the server's row is the mean over all devices: + (1/K) sum of their changes
            new[ctx.net.part("offsets")] += merged["offset"] / ctx.devices
        return new

    def facts(self, srv: State) -> dict[str, float]:
        return {"adapted_rounds": srv["adapted_rounds"]}


def gathered(w: Tensor, places: list[slice]) -> Tensor:
    return torch.cat([w.new_empty(0), *(w[place] for place in places)])


def placed(w: Tensor, places: list[slice], pieces: Tensor) -> Tensor:
    """`w`, changed in place: the opposite of `gathered`."""
    for place, piece in zip(places, pieces.split([place.stop - place.start for place in places]), strict=True):
        w[place] = piece
    return w


class Adapted(Placed):
    """The plain model, and the head that replaces it once `adapted` is set."""

    def __init__(
        self, features: nn.Module, head: nn.Module, gated: "GatedHead", offsets: "Offsets", frozen: bool
    ) -> None:
        super().__init__()
        self.features, self.head, self.gated, self.offsets = features, head, gated, offsets
        self.frozen = frozen
        self.register_buffer("adapted", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        if not bool(self.adapted):
            return self.head(self.features(x))  # type: ignore[no-any-return]
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            x = self.features(x)
        return self.gated(x, self.offsets(self.device))  # type: ignore[no-any-return]


class Offsets(nn.Module):
    """V: a table for every pre-activation, with a row for each device, or one row alone."""

    def __init__(self, widths: list[int], rows: int) -> None:
        super().__init__()
        self.tables = nn.ParameterList(torch.zeros(rows, width) for width in widths)

    def forward(self, device: int) -> list[Tensor]:
        """V[k]; their mean where no device is meant."""
        return [table.mean(0) if device < 0 else table[min(device, len(table) - 1)] for table in self.tables]


class GatedHead(nn.Module):
    """x <- tanh(W1 x + b1 + V1[k]) * sigmoid(W2 x + b2 + V2[k]), layer by layer; then Wo x + bo + Vo[k]."""

    def __init__(self, head: nn.Linear, units: int, layers: int, dropout: float, double_bias: bool) -> None:
        super().__init__()
        inputs = [head.in_features] + [units] * (layers - 1)
        self.values = nn.ModuleList(Projection(width, units, double_bias) for width in inputs)
        self.gates = nn.ModuleList(Projection(width, units, double_bias) for width in inputs)
        self.output = Projection(units, head.out_features, double_bias)
        self.dropout = nn.Dropout(dropout)
        self.widths = [units] * (2 * layers) + [head.out_features]  # of the offsets, in their order

    def forward(self, x: Tensor, offsets: list[Tensor]) -> Tensor:
        *inner, last = offsets
        for layer, (value, gate) in enumerate(zip(self.values, self.gates, strict=True)):
            x = self.dropout(x)
            a, g = value(x, inner[2 * layer]), gate(x, inner[2 * layer + 1])
            x = torch.tanh(a) * torch.sigmoid(g)  # tanh(W1 x + b1 + V1[k]) * sigmoid(W2 x + b2 + V2[k])
        return self.output(x, last)  # type: ignore[no-any-return]  # Wo x + bo + Vo[k]


class Projection(nn.Linear):
    """W x + b + V[k]; W starts Glorot-uniform, as in the authors' code, and b at 0."""

    def __init__(self, inputs: int, outputs: int, double_bias: bool) -> None:
        super().__init__(inputs, outputs)
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)
        self.second = nn.Parameter(torch.zeros(outputs)) if double_bias else None

    def forward(self, x: Tensor, offset: Tensor) -> Tensor:  # type: ignore[override]
        answer = super().forward(x) + offset
        return answer if self.second is None else answer + self.second
