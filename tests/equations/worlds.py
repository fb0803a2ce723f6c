"""Small worlds in which the numbers of a method card can be worked out by hand."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

import remanence
from remanence.core.context import Context
from remanence.core.federation import Federation
from remanence.core.message import Message
from remanence.core.method import Method, Network
from remanence.core.plan import Plan
from remanence.core.state import State
from remanence.data.samples import Batch, Samples
from remanence.engine.memory import one_thread
from remanence.methods.fedavg import FedAvg
from remanence.methods.fednova import FedNova
from remanence.methods.fedprox import FedProx
from remanence.methods.scaffold import Scaffold
from remanence.registry import methods
from remanence.simulation import Simulation

ONE_BY_ONE: dict[str, Any] = {"cohort": "off", "workers": 1}
STACKED: dict[str, Any] = {"cohort": "on"}

Device = tuple[Tensor, Tensor]
Batches = Callable[[int, int, int], Sequence[Tensor]]


@dataclasses.dataclass(frozen=True)
class Upload:
    round: int
    device: int
    steps: int
    content: Message


UPLOADS: list[Upload] = []


class Recorded:
    """Mixin: notes every upload in `UPLOADS`. Only for engines in this process."""

    def up(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> Message:
        content: Message = super().up(net, message, data, dev, ctx)  # type: ignore[misc]
        if ctx.device >= 0:  # not the server's rehearsal of what an upload looks like
            UPLOADS.append(Upload(ctx.round, ctx.device, ctx.steps, Message(content)))
        return content


class RecordedFedAvg(Recorded, FedAvg):
    pass


class RecordedFedNova(Recorded, FedNova):
    pass


class RecordedScaffold(Recorded, Scaffold):
    pass


class Slope:
    """Mixin: the loss is the model's first answer, so its gradient is x, constant in w."""

    def loss(self, net: Network, batch: Batch, dev: State, ctx: Context) -> Tensor:
        return net(batch.x)[:, 0]


class SlopeFedAvg(Slope, Recorded, FedAvg):
    pass


class SlopeFedProx(Slope, Recorded, FedProx):
    pass


class SlopeFedNova(Slope, Recorded, FedNova):
    pass


class SlopeScaffold(Slope, Recorded, Scaffold):
    pass


class Quadratic:
    """Mixin: f_1 = 1/2 (w-1)^2 for label 0, f_2 = (w+2)^2 for label 1; w is the model's first answer."""

    def loss(self, net: Network, batch: Batch, dev: State, ctx: Context) -> Tensor:
        curvature, centre = 1.0 + batch.y, 1.0 - 3.0 * batch.y
        return curvature / 2 * (net(batch.x)[:, 0] - centre).square()


class QuadraticFedAvg(Quadratic, Recorded, FedAvg):
    pass


class QuadraticFedNova(Quadratic, Recorded, FedNova):
    pass


class QuadraticScaffold(Quadratic, Recorded, Scaffold):
    pass


QUADRATICS: list[Device] = [(torch.ones(1, 1), torch.tensor([label])) for label in (0, 1)]


def vector_model(*start: float, answers: int = 1) -> nn.Module:
    """Parameters w = `start`, answer w.x. Further answers are never used and stay at 0."""
    layer = nn.Linear(len(start), answers, bias=False)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[0] = torch.tensor(start)
    return nn.Sequential(layer)


def scalar_model(start: float = 0.0) -> nn.Module:
    """One number w; its second answer only makes room for the second label of `QUADRATICS`."""
    return vector_model(start, answers=2)


def slope_device(*gradient: float, samples: int = 1) -> Device:
    """A device whose loss has this gradient everywhere."""
    return torch.tensor([gradient] * samples), torch.zeros(samples, dtype=torch.int64)


def steps_of(counts: Sequence[int]) -> Batches:
    """Device k makes counts[k] steps per epoch, each with its first sample."""
    return lambda device, round, epoch: [torch.zeros(1, dtype=torch.int64)] * counts[device]


SIZES = (5, 8, 3, 6)


def classification(sizes: Sequence[int] = SIZES, features: int = 4, classes: int = 3) -> list[Device]:
    """Devices with a skewed mix of classes."""
    generator = torch.Generator().manual_seed(7)
    devices = []
    for number, samples in enumerate(sizes):
        x = torch.randn(samples, features, generator=generator) + number
        devices.append((x, torch.randint(0, classes - number % 2, (samples,), generator=generator)))
    return devices


def softmax_model(features: int = 4, classes: int = 3) -> nn.Module:
    layer = nn.Linear(features, classes)
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(classes, features, generator=generator) / 4)
        layer.bias.copy_(torch.randn(classes, generator=generator) / 4)
    return nn.Sequential(layer)


def normalised_model(features: int = 4, classes: int = 3) -> nn.Module:
    """With batch normalisation: floating and integer buffers."""
    return nn.Sequential(softmax_model(features, 3)[0], nn.BatchNorm1d(3), softmax_model(3, classes)[0])


def shuffled_batches(sizes: Sequence[int], size: int) -> Batches:
    """The same batches for the simulation and for the calculation by hand."""

    def rule(device: int, round: int, epoch: int) -> list[Tensor]:
        order = np.random.default_rng([device, round, epoch]).permutation(sizes[device])
        return [torch.from_numpy(ids) for ids in np.split(order, range(size, sizes[device], size))]

    return rule


def planned(*arguments: Any, **settings: Any) -> Plan:
    """The plan that `simulate` would play."""
    with mock.patch("remanence.simulation._play", lambda plan: plan):
        plan: Any = remanence.simulate(*arguments, **settings)
    assert isinstance(plan, Plan)
    return plan


def played(plan: Plan) -> Federation:
    """A federation after its last round."""
    with one_thread(), Federation(plan) as federation:
        list(federation.play())
    return federation


def rebuilt(plan: Plan) -> Plan:
    """The same plan with a new method object made from the old one's options."""
    old = plan.task.method
    values = {field.name: getattr(old, field.name) for field in dataclasses.fields(old)}
    fresh: Method = methods.create(old.name, values)
    assert fresh is not old
    return dataclasses.replace(plan, task=dataclasses.replace(plan.task, method=fresh))


def played_in_pieces(plan: Plan) -> Federation:
    """One federation per round, each with a new method object, handed on by its tree alone."""
    before: Federation | None = None
    for _ in range(plan.rounds):
        with one_thread(), Federation(rebuilt(plan)) as federation:
            if before is not None:
                federation.restore(before.tree())
            federation.play_round()
        before = federation
    assert before is not None
    return before


def same_bits(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.numpy().tobytes() == other.numpy().tobytes()


def near(value: Any, *expected: float, within: float = 1e-6) -> bool:
    """Every number within `within` of the expected ones."""
    actual = np.asarray(value, dtype=np.float64).reshape(-1)
    return actual.shape == (len(expected),) and bool(np.abs(actual - np.asarray(expected)).max() <= within)


def scalar(result: Simulation) -> float:
    """w of a `scalar_model`; its idle second answer is checked on the way."""
    assert float(result.weights[1]) == 0.0
    return float(result.weights[0])
