"""Method: the stages a paper may change, whose defaults are FedAvg; and the one training loop.

A method holds hyper-parameters only. What must survive a round lives in two trees owned by the engine, `dev` on
the device and `srv` at the server, so resume, storage accounts and deployment need no line of code in a method.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remanence.core.batches import Plan
from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.optimiser import LocalOptimiser, Training
from remanence.core.state import State, size
from remanence.core.vector import FlatModel
from remanence.data.augment import Augmentation
from remanence.data.fleet import Counts
from remanence.data.samples import Batch, Samples
from remanence.errors import UserError

Merged = Mapping[str, Any]  # uploads, reduced: the entries of `ups`; total_weight, samples, devices; `counted`: whose
Watch = Callable[[Tensor, Batch, int, Context], None]  # logits, batch, epoch from 1


class Network(Protocol):
    """What a stage sees of a model: one FlatModel, or many devices stacked with a leading axis."""

    w: Tensor
    g: Tensor
    size: int

    @property
    def trainable(self) -> tuple[Tensor, Tensor]:
        """What a step changes, and its gradient."""
        ...

    def __call__(self, x: Tensor) -> Tensor: ...
    def load(self, vector: Tensor) -> None: ...
    def copy(self) -> Tensor: ...


class Method:
    """FedAvg. Stages are named after what a paper changes; override those alone."""

    name: ClassVar[str]
    ups: ClassVar[Mapping[str, str]] = {"w": "weighted"}  # entry of the upload -> how it is reduced
    needs_all: ClassVar[bool] = False  # `weigh` compares uploads: the server holds them all
    teachers: int = 0  # frozen copies of the received model to train beside: `ctx.teachers`
    remembers_samples: ClassVar[bool] = False  # keeps something for every sample of a device: not for streams
    sgd_only: ClassVar[bool] = False  # its equations count steps of SGD
    public_data: ClassVar[bool] = False  # needs unlabelled samples at the server: `ctx.public`

    @property
    def freezes(self) -> bool:
        """Whether a part of the model stands still from some round on, at the server too."""
        return False

    @property
    def has_weights(self) -> bool:
        """Whether its equations need the weights to be its own."""
        return type(self).weigh is not Method.weigh

    @property
    def keeps(self) -> tuple[str, ...]:
        """Entries of the received message that `grad` and `up` still need."""
        return ()

    def stacks(self) -> bool:
        """Whether devices can train stacked.

        True promises: `loss` treats samples one by one and takes nothing from `dev`, `ctx.device`, `ctx.scratch` or
        `batch.ids`; `grad` reads only plain tensors and numbers of `dev` and `ctx.scratch` and changes none; a network
        of the method's own is absent.
        """
        return True

    def check(self, train: Training) -> None:
        """Refuse impossible combinations with a UserError."""
        if self.sgd_only and train.optimiser != "sgd":
            raise UserError(f"train.optimiser: '{train.optimiser}' is not allowed: {self.name} counts steps of SGD")

    def examine(self, fleet: Counts) -> list[str]:
        """Notes about who holds what; a UserError for a fleet that it cannot train on."""
        return []

    @property
    def once(self) -> tuple[str, ...]:
        """Entries of the message that a device gets but once and keeps."""
        return ()

    # server, once
    def open_server(self, net: FlatModel, ctx: Context) -> State:
        return {}

    # device, before its first round; `net` holds the model the run began with
    def open_device(self, net: FlatModel, data: Samples, ctx: Context) -> State:
        return {}

    def network(self, module: nn.Module, ctx: Context) -> nn.Module:
        """The network that is trained, from the plain model; a `Placed` one is told where it stands."""
        return module

    # server, before a round
    def down(self, w: Tensor, device: int, srv: State, ctx: Context) -> Message:
        return Message(w=w)

    # device, in a round
    def begin(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> None:
        net.load(message["w"])

    def loss(self, net: Network, batch: Batch, dev: State, ctx: Context) -> Tensor:
        """One number per sample; the loop takes the mean. The logits are what it asks `net` for last."""
        return F.cross_entropy(net(batch.x), batch.y, reduction="none")

    def grad(self, net: Network, message: Message, dev: State, ctx: Context) -> None:
        """Edit `net.g` in place; a leading device axis must broadcast."""

    def end_epoch(self, net: FlatModel, data: Samples, dev: State, ctx: Context) -> None: ...

    def up(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> Message:
        return Message(w=net.copy(), n=len(data))

    # server, when an upload arrives
    def arrive(self, upload: Message, w: Tensor, ctx: Context) -> Mapping[str, Any]:
        """Further entries that the server derives from an upload, reduced as `ups` says like those that were sent."""
        return {}

    # server, after a round
    def weigh(self, messages: Mapping[int, Message], srv: State, ctx: Context) -> Tensor:
        """A weight per message, in their order; only the ratios matter."""
        return torch.tensor([message["n"] for message in messages.values()], dtype=torch.float64)

    def step(self, w: Tensor, merged: Merged, srv: State, ctx: Context) -> Tensor:
        return merged["w"]  # type: ignore[no-any-return]

    def facts(self, srv: State) -> dict[str, float]:
        """Numbers about the server's state for the event log."""
        return {}


@dataclass
class Local:
    """What one device (or a stack of them) trains with in one round."""

    net: Network
    message: Message  # what it still needs of the received message
    dev: State
    ctx: Context
    optimiser: LocalOptimiser
    devices: int = 1

    def held(self) -> int:
        """Bytes that one device holds while it trains, besides its networks and the optimiser's moments."""
        return size([self.message, self.dev, self.ctx.scratch])


def kept(method: Method, message: Message) -> Message:
    return Message({name: message[name] for name in method.keeps})


def train_steps(
    method: Method, local: Local, batches: Iterable[Batch], watch: Callable[[Tensor, Batch], None] | None = None
) -> Tensor:
    """The training loop. Returns the summed loss of the steps, of every device."""
    net, total = local.net, torch.zeros(local.devices)
    # A stack knows the plain loss in closed form, which is sooner done, and tells its values at the end.
    closed: Any = net if type(method).loss is Method.loss and hasattr(net, "cross_entropy") else None
    with torch.inference_mode(closed is not None):  # less bookkeeping where autograd is not needed
        for batch in batches:
            if closed is not None:
                closed.cross_entropy(batch)
            else:
                total[: batch.devices].add_(_by_autograd(method, local, batch))
            if watch is not None:
                watch(net.logits, batch)  # type: ignore[attr-defined]
            method.grad(net, local.message, local.dev, local.ctx)
            local.optimiser.step(*net.trainable)
        return total if closed is None else closed.losses(local.devices)


def _by_autograd(method: Method, local: Local, batch: Batch) -> Tensor:
    local.net.g.zero_()
    losses = method.loss(local.net, batch, local.dev, local.ctx)
    per_device = (
        losses.mean().view(1) if batch.weight is None else (losses * batch.weight).view(batch.devices, -1).sum(1)
    )
    per_device.sum().backward()
    return per_device.detach()


class Trained(NamedTuple):
    upload: Message
    loss: float  # mean of the steps
    held: int  # bytes, see `Local.held`


def train_device(
    method: Method,
    net: FlatModel,
    plan: Plan,
    message: Message,
    data: Samples,
    dev: State,
    ctx: Context,
    augment: Augmentation | None = None,
    watch: Watch | None = None,
) -> Trained:
    """One device's round: begin, epochs of steps, up. `watch` is shown every step's logits."""
    net.train()
    method.begin(net, message, data, dev, ctx)
    local = Local(net, kept(method, message), dev, ctx, LocalOptimiser(ctx.train, ctx.lr))
    held = local.held()
    generator = ctx.generator("augment") if augment else None
    total = torch.zeros(1)
    for epoch, steps in enumerate(plan, start=1):
        shown = None if watch is None else partial(_shown, watch, epoch, ctx)
        total += train_steps(method, local, _batches(data, steps, augment, generator), shown)
        method.end_epoch(net, data, dev, ctx)
    return Trained(method.up(net, local.message, data, dev, ctx), float(total) / max(1, ctx.steps), held)


def _shown(watch: Watch, epoch: int, ctx: Context, logits: Tensor, batch: Batch) -> None:
    watch(logits, batch, epoch, ctx)


def _batches(
    data: Samples, steps: Iterable[Tensor], augment: Augmentation | None, generator: torch.Generator | None
) -> Iterator[Batch]:
    for ids in steps:
        batch = data.batch(ids)
        if augment is not None and generator is not None:
            batch = Batch(augment(batch.x, generator), batch.y, ids)
        yield batch


def full_gradient(method: Method, net: FlatModel, w: Tensor, data: Samples, dev: State, ctx: Context) -> Tensor:
    """The mean gradient over all samples at `w`, in evaluation mode; leaves `net` at `w`."""
    net.load(w)
    net.train(False)
    net.g.zero_()
    for ids in torch.arange(len(data)).tensor_split(-(-len(data) // 500)):
        (method.loss(net, data.batch(ids), dev, ctx).sum() / len(data)).backward()
    return net.g.clone()
