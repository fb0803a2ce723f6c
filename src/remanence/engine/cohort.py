"""The cohort path: a small dense model trains on many devices at once, one row of weights per device.

The batches of all devices lie behind one another in one batch; the stacked network sends every row through its own
device's weights. So a method's `loss` and `grad` run unchanged. Results agree with the one-by-one loop up to the
order of float32 sums (`TOLERANCE`), not bit for bit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from remanence.core.batches import plan
from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.method import Local, Method, kept, train_steps
from remanence.core.optimiser import LocalOptimiser
from remanence.core.state import State
from remanence.core.vector import FlatModel
from remanence.data.samples import Batch, Samples
from remanence.engine.worker import Job, Reply, Task, Worker
from remanence.measure.accuracy import count_correct

TOLERANCE = 1e-4  # largest difference of a weight after the few rounds of the test, relative to the largest weight
LARGEST_MODEL = 100_000  # parameters; measured: beyond this the one-by-one loop on all cores is as quick
_ACTIVATIONS = {nn.ReLU: "relu", nn.Tanh: "tanh", torch.relu: "relu", torch.tanh: "tanh",
                torch.nn.functional.relu: "relu", "relu": "relu", "tanh": "tanh"}
_FLATTEN = {nn.Flatten, torch.flatten, "flatten"}


def dense_chain(module: nn.Module) -> list[str] | None:
    """The steps of a network that is one chain of flatten, Linear, ReLU, tanh: names of Linear layers and activations."""
    try:
        graph = torch.fx.symbolic_trace(module).graph
    except Exception:  # whatever stops the tracer: the model is simply not a plain chain
        return None
    chain: list[str] = []
    previous: torch.fx.Node | None = None
    for node in graph.nodes:
        if node.op == "placeholder" and previous is None:
            previous = node
            continue
        if node.op == "output":
            return chain if node.args[0] is previous and any("." in s or s not in ("relu", "tanh") for s in chain) else None
        if not node.args or node.args[0] is not previous or len(node.all_input_nodes) != 1:
            return None
        step = _chain_step(module, node)
        if step is None:
            return None
        chain += step
        previous = node
    return None


def _chain_step(module: nn.Module, node: torch.fx.Node) -> list[str] | None:
    if node.op == "call_module":
        layer = module.get_submodule(str(node.target))
        if type(layer) is nn.Linear:
            return [str(node.target)]
        if isinstance(layer, nn.Flatten):
            return [] if layer.start_dim == 1 and layer.end_dim == -1 else None
        return [_ACTIVATIONS[type(layer)]] if type(layer) in _ACTIVATIONS else None
    if node.target in _FLATTEN:
        return [] if node.args[1:] == (1,) or node.kwargs.get("start_dim") == 1 else None
    return [_ACTIVATIONS[node.target]] if node.target in _ACTIVATIONS else None  # type: ignore[index]


@dataclass
class _Linear:
    weight: Tensor  # (devices, out, in), views of the stacked vectors
    bias: Tensor | None
    weight_grad: Tensor
    bias_grad: Tensor | None

    def first(self, active: int) -> "_Linear":
        return _Linear(*(None if t is None else t[:active] for t in  # type: ignore[arg-type]
                         (self.weight, self.bias, self.weight_grad, self.bias_grad)))


class Stack:
    """A row of weights per device; a Network like FlatModel, for the first `active` devices."""

    def __init__(self, net: FlatModel, chain: Sequence[str], devices: int) -> None:
        self.size = net.size
        self.all_w, self.all_g = torch.empty(devices, net.size), torch.zeros(devices, net.size)
        self.layers = [step if step in ("relu", "tanh") else self._linear(net, step) for step in chain]
        self.anchor = torch.zeros((), requires_grad=True)
        self.narrow(devices)

    def _linear(self, net: FlatModel, name: str) -> _Linear:
        layer = net.module.get_submodule(name)
        views = []
        for vectors in (self.all_w, self.all_g):
            for part in ("weight", "bias"):
                tensor = getattr(layer, part)
                views.append(None if tensor is None else
                             vectors[:, net.slices[f"{name}.{part}"]].unflatten(1, tensor.shape))
        weight, bias, weight_grad, bias_grad = views
        assert weight is not None and weight_grad is not None
        return _Linear(weight, bias, weight_grad, bias_grad)

    def narrow(self, active: int) -> None:
        """Go on with the first `active` devices."""
        self.active = active
        self.w, self.g = self.all_w[:active], self.all_g[:active]
        self.views = [s if isinstance(s, str) else s.first(active) for s in self.layers]

    def row(self, position: int) -> "Row":
        return Row(self.all_w[position], self.all_g[position], self.size)

    def load(self, vector: Tensor) -> None:
        self.w.copy_(vector)

    def copy(self) -> Tensor:
        return self.w.clone()

    def __call__(self, x: Tensor) -> Tensor:
        return _StackedChain.apply(x, self.anchor, self)  # type: ignore[no-any-return]


@dataclass
class Row:
    """One device of a stack, for `begin` and `up`."""

    w: Tensor
    g: Tensor
    size: int

    def load(self, vector: Tensor) -> None:
        self.w.copy_(vector)

    def copy(self) -> Tensor:
        return self.w.clone()

    def __call__(self, x: Tensor) -> Tensor:
        raise TypeError("a device of a stack has no network of its own: the method must not stack")


class _StackedChain(torch.autograd.Function):
    """Forward and backward of all devices' chains; gradients are added to the stack's own `g`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, stack: Stack) -> Tensor:
        h = x.view(stack.active, len(x) // stack.active, -1)
        values = [h]
        for step in stack.views:
            if isinstance(step, str):
                h = h.relu_() if step == "relu" else h.tanh_()
                values[-1] = h
            elif step.bias is None:
                h = torch.bmm(h, step.weight.transpose(1, 2))
            else:
                h = torch.baddbmm(step.bias.unsqueeze(1), h, step.weight.transpose(1, 2))
            if not isinstance(step, str):
                values.append(h)
        ctx.stack, ctx.values = stack, values
        return h.view(len(x), -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        stack, values = ctx.stack, ctx.values
        d = gradients[0].view(values[-1].shape)
        position = len(values) - 1
        for step in reversed(stack.views):
            if step == "relu":
                d = torch.ops.aten.threshold_backward(d, values[position], 0)
            elif step == "tanh":
                d = torch.ops.aten.tanh_backward(d, values[position])
            else:
                position -= 1
                step.weight_grad.baddbmm_(d.transpose(1, 2), values[position])
                if step.bias_grad is not None:
                    step.bias_grad.add_(d.sum(1))
                if position:
                    d = torch.bmm(d, step.weight)
        return None, None, None


class CohortEngine:
    """Trains all devices of a round in this process."""

    def __init__(self, task: Task, chain: Sequence[str]) -> None:
        self.task, self.chain = task, chain
        self.worker = Worker(task)
        self.stack: Stack | None = None

    def run(self, ctx: Context, jobs: Sequence[Job]) -> Iterator[Reply]:
        work = [self._prepare(job, ctx) for job in jobs]
        yield from (Reply(w.job.device, reason="no samples to train on") for w in work if not w.ctx.steps)
        work = sorted((w for w in work if w.ctx.steps), key=lambda w: -w.ctx.steps)
        if work:
            yield from self._train(work, ctx)

    def measure(self, w: Tensor) -> tuple[Tensor, float]:
        assert self.task.test is not None
        return self.worker.measure(w, 0, len(self.task.test))

    def close(self) -> None: ...

    def _prepare(self, job: Job, ctx: Context) -> "_Work":
        data = self.task.fleet.samples(job.device)
        steps = [ids for epoch in plan(self.task.batches, len(data), ctx.train.epochs, ctx.seed, ctx.round, job.device)
                 for ids in epoch]
        ctx = ctx.on(job.device, len(steps), self.worker.start)
        dev = self.worker.open(job, data, ctx) if steps else {}
        return _Work(job, data, steps, dev, ctx)

    def _train(self, work: list["_Work"], ctx: Context) -> Iterator[Reply]:
        method, stack = self.task.method, self._stack(len(work))
        for position, one in enumerate(work):
            method.begin(stack.row(position), one.job.message, one.data, one.dev, one.ctx)
        kept_messages = [kept(method, one.job.message) for one in work]
        local = Local(stack, Message(), {}, ctx, LocalOptimiser(ctx.train, ctx.lr))
        messages, devs = _Stacked(kept_messages), _Stacked([one.dev for one in work])
        losses = train_steps(method, local, _stacked_batches(work, local, stack, messages, devs))
        loss = float(losses) / sum(one.ctx.steps for one in work)
        for position, one in enumerate(work):
            upload = method.up(stack.row(position), kept_messages[position], one.data, one.dev, one.ctx)
            upload = self.task.privacy.protect(upload, one.ctx)
            yield Reply(one.job.device, upload, one.dev, loss, one.ctx.steps, self._own(one, upload))

    def _own(self, one: "_Work", upload: Message) -> Tensor | None:
        if not one.job.measure or self.task.test is None:
            return None
        self.worker.net.load(upload["w"])
        return count_correct(self.worker.net, self.task.test)[0]

    def _stack(self, devices: int) -> Stack:
        if self.stack is None or len(self.stack.all_w) != devices:
            self.stack = Stack(self.worker.net, self.chain, devices)
        self.stack.narrow(devices)
        return self.stack


@dataclass
class _Work:
    job: Job
    data: Samples
    steps: list[Tensor]
    dev: State
    ctx: Context


class _Stacked:
    """The same tree of every device: equal entries once, others with a leading device axis."""

    def __init__(self, trees: Sequence[Mapping[str, Any]]) -> None:
        self.shared: dict[str, Any] = {}
        self.rows: dict[str, Tensor] = {}
        for name, first in trees[0].items():
            values = [tree[name] for tree in trees]
            if all(value is first for value in values):
                self.shared[name] = first
            elif isinstance(first, Tensor):
                self.rows[name] = torch.stack(values)
            elif isinstance(first, (int, float)):
                self.rows[name] = torch.tensor(values, dtype=torch.float32).unsqueeze(1)

    def first(self, active: int) -> dict[str, Any]:
        return self.shared | {name: rows[:active] for name, rows in self.rows.items()}


def _stacked_batches(work: Sequence[_Work], local: Local, stack: Stack, messages: _Stacked,
                     devs: _Stacked) -> Iterator[Batch]:
    """Step by step the batches of all devices that still have one; `work` is ordered by falling number of steps."""
    x, y = torch.cat([one.data.flat for one in work]), torch.cat([one.data.y for one in work])
    index, weight = _step_table(work)
    counts = [len(one.steps) for one in work]
    active = 0
    for step in range(counts[0]):
        remaining = sum(count > step for count in counts)
        if remaining != active:
            active = remaining
            stack.narrow(active)
            local.message, local.dev = Message(messages.first(active)), devs.first(active)
        ids = index[step, :active].reshape(-1)
        yield Batch(x[ids], y[ids], ids, weight[step, :active].reshape(-1))


def _step_table(work: Sequence[_Work]) -> tuple[Tensor, Tensor]:
    """Sample numbers and weights, (steps, devices, largest batch); padding has weight 0."""
    steps = [ids for one in work for ids in one.steps]
    offsets = [sum(len(one.data) for one in work[:k]) for k in range(len(work))]
    slots = torch.tensor([step * len(work) + k for k, one in enumerate(work) for step in range(len(one.steps))])
    starts = torch.tensor([offset for offset, one in zip(offsets, work, strict=True) for _ in one.steps])
    sizes = torch.tensor([len(ids) for ids in steps]).unsqueeze(1)
    padded = pad_sequence(steps, batch_first=True)
    shares = (torch.arange(padded.shape[1]) < sizes) / sizes
    shape = (len(work[0].steps), len(work), padded.shape[1])
    index = torch.zeros(shape[0] * shape[1], shape[2], dtype=torch.int64)
    weight = torch.zeros(shape[0] * shape[1], shape[2])
    index[slots], weight[slots] = padded + starts.unsqueeze(1), shares
    return index.view(shape), weight.view(shape)
