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

from remanence.core.batches import plan
from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.method import Local, kept, train_steps
from remanence.core.optimiser import LocalOptimiser
from remanence.core.state import State, size
from remanence.core.vector import FlatModel
from remanence.data.samples import Batch, Samples
from remanence.engine.table import StepTable, step_table
from remanence.engine.worker import Job, Reply, Task, Worker
from remanence.measure.accuracy import count_correct
from remanence.measure.record import NO_SAMPLES

TOLERANCE = 1e-4  # largest difference of a weight after the few rounds of the test, relative to the largest weight
LARGEST_STACK = 2**24  # weights that are trained together
LARGEST_MODEL = 100_000  # parameters; measured: beyond this the one-by-one loop on all cores is as quick
_ACTIVATIONS = {
    nn.ReLU: "relu",
    nn.Tanh: "tanh",
    torch.relu: "relu",
    torch.tanh: "tanh",
    torch.nn.functional.relu: "relu",
    "relu": "relu",
    "tanh": "tanh",
}
_FLATTEN = {nn.Flatten, torch.flatten, "flatten"}


def dense_chain(module: nn.Module) -> list[str] | None:
    """A network that is one chain of flatten, Linear, ReLU, tanh: its Linear layers' names and its activations."""
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
            return chain if node.args[0] is previous and _covers(chain, module) else None
        if not node.args or node.args[0] is not previous or len(node.all_input_nodes) != 1:
            return None
        step = _chain_step(module, node)
        if step is None:
            return None
        chain += step
        previous = node
    return None


def _covers(chain: Sequence[str], module: nn.Module) -> bool:
    """Whether every parameter belongs to exactly one Linear layer of the chain, the first step being one of them."""
    layers = [step for step in chain if step not in ("relu", "tanh")]
    inside = sum(p.numel() for name in layers for p in module.get_submodule(name).parameters())
    return bool(chain) and chain[0] in layers and inside == sum(p.numel() for p in module.parameters())


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
    return [_ACTIVATIONS[node.target]] if node.target in _ACTIVATIONS else None


@dataclass
class _Linear:
    """Views of the stacked vectors; (devices, out, in) and (devices, out)."""

    weight: Tensor
    bias: Tensor | None
    weight_grad: Tensor
    bias_grad: Tensor | None

    def __post_init__(self) -> None:
        self.turned = self.weight.transpose(1, 2)
        self.bias_row = None if self.bias is None else self.bias.unsqueeze(1)

    def put(self, d: Tensor, inputs: Tensor, fresh: bool) -> None:
        """The gradients of weight and bias: in place of what is there, or added to it."""
        if fresh:
            self.weight_grad.copy_(torch.bmm(d.transpose(1, 2), inputs))  # sooner than `out=`, which has strides here
            if self.bias_grad is not None:
                torch.sum(d, 1, out=self.bias_grad)
            return
        self.weight_grad.baddbmm_(d.transpose(1, 2), inputs)
        if self.bias_grad is not None:
            self.bias_grad.add_(d.sum(1))

    def first(self, active: int) -> "_Linear":
        return _Linear(
            *(
                None if t is None else t[:active]
                for t in (self.weight, self.bias, self.weight_grad, self.bias_grad)  # type: ignore[arg-type]
            )
        )


class Stack:
    """A row of weights per device; a Network like FlatModel, for the first `active` devices."""

    def __init__(self, net: FlatModel, chain: Sequence[str], devices: int) -> None:
        self.size = net.size
        self.all_w, self.all_g = torch.empty(devices, net.size), torch.zeros(devices, net.size)
        self.layers = [step if step in ("relu", "tanh") else self._linear(net, step) for step in chain]
        self.anchor = torch.zeros((), requires_grad=True)
        self.answers: list[tuple[Batch, Tensor, Tensor]] = []  # of the plain loss, for `losses`
        self.narrow(devices)

    def _linear(self, net: FlatModel, name: str) -> _Linear:
        layer = net.module.get_submodule(name)
        views = []
        for vectors in (self.all_w, self.all_g):
            for part in ("weight", "bias"):
                tensor = getattr(layer, part)
                views.append(
                    None if tensor is None else vectors[:, net.slices[f"{name}.{part}"]].unflatten(1, tensor.shape)
                )
        weight, bias, weight_grad, bias_grad = views
        assert weight is not None
        assert weight_grad is not None
        return _Linear(weight, bias, weight_grad, bias_grad)

    def narrow(self, active: int) -> None:
        """Go on with the first `active` devices."""
        self.active = active
        self.w, self.g = self.all_w[:active], self.all_g[:active]
        self.trainable = self.w, self.g
        self.views = [s if isinstance(s, str) else s.first(active) for s in self.layers]

    def row(self, position: int) -> "Row":
        return Row(self.all_w[position], self.all_g[position], self.size)

    def load(self, vector: Tensor) -> None:
        self.w.copy_(vector)

    def copy(self) -> Tensor:
        return self.w.clone()

    def __call__(self, x: Tensor) -> Tensor:
        return _StackedChain.apply(x, self.anchor, self)  # type: ignore[no-any-return]

    def cross_entropy(self, batch: Batch) -> None:
        """Gradients of the plain loss in closed form, without autograd's bookkeeping; `losses` tells its values.

        Softmax spelled out: over a few classes torch's own takes half as long again.
        """
        values = self.forward(batch.x)
        answer = values[-1].view(len(batch.x), -1)
        assert batch.pull is not None
        assert batch.weight is not None
        shifted = answer - answer.amax(1, keepdim=True)
        odds, weight = shifted.exp(), batch.weight.view(-1, 1)
        total = odds.sum(1, keepdim=True)
        slope = torch.addcmul(batch.pull, odds, weight / total)  # weight * (p - [label])
        self.backward(values, slope.view(values[-1].shape), fresh=True)
        self.answers.append((batch, shifted, total))

    def losses(self, devices: int) -> Tensor:
        """Summed over the steps since they were last asked for; a number per device."""
        summed = torch.zeros(devices)
        for group in _alike(self.answers):
            first = group[0][0]
            pull = torch.cat([batch.pull for batch, _, _ in group])  # type: ignore[misc]
            weight = torch.cat([batch.weight for batch, _, _ in group])  # type: ignore[misc]
            shifted = torch.cat([shifted for _, shifted, _ in group])
            total = torch.cat([total for _, _, total in group])
            # weight * (log total - shifted[label])
            values = (shifted * pull).sum(1).addcmul_(weight, total.log_().view(-1))
            summed[: first.devices] += values.view(len(group), first.devices, -1).sum((0, 2))
        self.answers.clear()
        return summed

    def forward(self, x: Tensor) -> list[Tensor]:
        """The input and the output of every Linear layer, after its activation; (devices, samples, features)."""
        h = x.view(self.active, len(x) // self.active, -1)
        values = [h]
        for step in self.views:
            if isinstance(step, str):
                h = h.relu_() if step == "relu" else h.tanh_()
                values[-1] = h
                continue
            h = torch.bmm(h, step.turned) if step.bias_row is None else torch.baddbmm(step.bias_row, h, step.turned)
            values.append(h)
        return values

    def backward(self, values: list[Tensor], d: Tensor, fresh: bool = False) -> None:
        """Add the gradients to `g`, or replace it; `d` is the gradient of the last output."""
        position = len(values) - 1
        for step in reversed(self.views):
            if step == "relu":
                d = torch.ops.aten.threshold_backward(d, values[position], 0)
            elif step == "tanh":
                d = torch.ops.aten.tanh_backward(d, values[position])
            else:
                position -= 1
                assert isinstance(step, _Linear)
                step.put(d, values[position], fresh)
                if position:
                    d = torch.bmm(d, step.weight)


def _alike(answers: Sequence[tuple[Batch, Tensor, Tensor]]) -> list[list[tuple[Batch, Tensor, Tensor]]]:
    """Steps of the same devices and widths together."""
    groups: dict[tuple[int, int], list[tuple[Batch, Tensor, Tensor]]] = {}
    for answer in answers:
        groups.setdefault((answer[0].devices, len(answer[1])), []).append(answer)
    return list(groups.values())


@dataclass
class Row:
    """One device of a stack, for `begin` and `up`."""

    w: Tensor
    g: Tensor
    size: int

    @property
    def trainable(self) -> tuple[Tensor, Tensor]:
        return self.w, self.g

    def load(self, vector: Tensor) -> None:
        self.w.copy_(vector)

    def copy(self) -> Tensor:
        return self.w.clone()

    def __call__(self, x: Tensor) -> Tensor:
        raise TypeError("a device of a stack has no network of its own: the method must not stack")


class _StackedChain(torch.autograd.Function):
    """A stack's forward and backward for losses that autograd differentiates; gradients go to the stack's own `g`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, stack: Stack) -> Tensor:
        ctx.stack, ctx.values = stack, stack.forward(x)
        return ctx.values[-1].flatten(0, 1)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        ctx.stack.backward(ctx.values, gradients[0].view(ctx.values[-1].shape))
        return None, None, None


class CohortEngine:
    """Trains all devices of a round in this process."""

    workers: list[int] = []

    def __init__(self, task: Task, chain: Sequence[str]) -> None:
        self.task, self.chain = task, chain
        self.worker = Worker(task)
        self.stack: Stack | None = None

    def run(self, ctx: Context, jobs: Sequence[Job]) -> Iterator[Reply]:
        idle = {job.device for job in jobs if not self._has_steps(job.device, ctx)}
        yield from (Reply(job.device, reason=NO_SAMPLES) for job in jobs if job.device in idle)
        busy = [job for job in jobs if job.device not in idle]
        together = max(1, LARGEST_STACK // self.worker.net.size)
        for start in range(0, len(busy), together):
            yield from self._train(busy[start : start + together], ctx)

    def _has_steps(self, device: int, ctx: Context) -> bool:
        rule, size = self.task.batches, self.task.fleet.sizes[device]
        if callable(rule):
            return any(plan(rule, size, ctx.train.epochs, ctx.seed, ctx.tick, device))
        return size > 0

    def measure(self, w: Tensor) -> tuple[Tensor, float]:
        assert self.task.test is not None
        return self.worker.measure(w, 0, len(self.task.test))

    def close(self) -> None: ...

    def _train(self, jobs: Sequence[Job], ctx: Context) -> Iterator[Reply]:
        method = self.task.method
        table = step_table(
            self.task.batches,
            [self.task.fleet.whole(job.device) for job in jobs],
            [job.device for job in jobs],
            ctx,
        )
        stack = self._stack(len(jobs))
        work = [
            self._begin(stack.row(position), jobs[k], table.data[position], table.counts[position], ctx)
            for position, k in enumerate(table.order)
        ]
        shared = ctx.on(-1, 0, self.worker.start)
        local = Local(stack, Message(), {}, shared, LocalOptimiser(ctx.train, ctx.lr), len(jobs))
        trees = [_Stacked([getattr(one, name) for one in work]) for name in ("message", "dev", "scratch")]
        losses = train_steps(method, local, _stacked_batches(table, local, stack, *trees))
        held = size([work[0].message, work[0].dev, work[0].scratch])
        for one, loss in zip(work, losses.tolist(), strict=True):
            upload = method.up(one.row, one.message, one.data, one.dev, one.ctx)
            upload = self.task.privacy.protect(upload, one.ctx)
            samples = len(one.data) * ctx.train.epochs
            yield Reply(
                one.job.device, upload, one.dev, loss / one.ctx.steps, one.ctx.steps, samples, self._own(one), held
            )

    def _begin(self, row: "Row", job: Job, data: Samples, steps: int, ctx: Context) -> "_Work":
        ctx = ctx.on(job.device, steps, self.worker.start)
        dev = self.worker.open(job.recall(), data, ctx)
        self.task.method.begin(row, job.message, data, dev, ctx)
        return _Work(job, row, data, kept(self.task.method, job.message), dev, ctx)

    def _own(self, one: "_Work") -> Tensor | None:
        if not one.job.measure or self.task.test is None:
            return None
        self.worker.net.load(one.row.w)
        return count_correct(self.worker.net, self.task.test)[0]

    def _stack(self, devices: int) -> Stack:
        if self.stack is None or len(self.stack.all_w) != devices:
            self.stack = Stack(self.worker.net, self.chain, devices)
        self.stack.narrow(devices)
        return self.stack


@dataclass
class _Work:
    job: Job
    row: Row
    data: Samples
    message: Message  # what is kept of it
    dev: State
    ctx: Context

    @property
    def scratch(self) -> State:
        return self.ctx.scratch


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


def _stacked_batches(
    table: StepTable, local: Local, stack: Stack, messages: _Stacked, devs: _Stacked, scratches: _Stacked
) -> Iterator[Batch]:
    """Step by step the batches of all devices that still have one."""
    active = 0
    for step, remaining in enumerate(table.active):
        if remaining != active:
            active = remaining
            stack.narrow(active)
            local.message, local.dev = Message(messages.first(active)), devs.first(active)
            local.ctx.scratch.update(scratches.first(active))
        yield table.batch(step)
