"""Rounds whose loss has a further term, in plain float64 PyTorch: no equation here comes from the package."""

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from paired import BATCH, TRAINING
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from worlds import SIZES, classification, shuffled_batches


class TwoHalves(nn.Module):
    """`features`, the penultimate activation, and a linear `head`."""

    def __init__(self, features: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.features, self.head = features, nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.features(x))
        return answer


def two_layers(features: int = 4, hidden: int = 6, classes: int = 3) -> TwoHalves:
    return started(TwoHalves(nn.Sequential(nn.Linear(features, hidden), nn.ReLU()), hidden, classes))


def normalised_layers() -> TwoHalves:
    """With what behaves differently in training: batch normalisation and dropout."""
    layers = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2)
    return started(TwoHalves(nn.Sequential(*layers), 6, 3))


def started(model: TwoHalves) -> TwoHalves:
    generator = torch.Generator().manual_seed(13)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return model


@dataclass(frozen=True)
class Step:
    """What a term may look at."""

    model: nn.Module
    received: nn.Module
    previous: nn.Module  # what the device sent when it last took part; before that, the model the run began with
    seen: bool  # whether it has taken part before
    x: Tensor
    y: Tensor
    counts: Tensor  # labels of the whole device


Term = Callable[[Step], Tensor]


@dataclass(frozen=True)
class Moment:
    round: int
    received: nn.Module
    previous: nn.Module
    seen: bool


def played(model: nn.Module, term: Term, **settings: Any) -> Tensor:
    """The weights after the rounds that `paired` plays, on the same devices with the same batches."""
    training = TRAINING | settings
    server = start = copy.deepcopy(model).double()
    sent: dict[int, nn.Module] = {}
    for round, chosen in enumerate(training["participation"], start=1):
        moments = {k: Moment(round, server, sent.get(k, start), k in sent) for k in chosen}
        answers = {k: trained(k, moment, term, **training) for k, moment in moments.items()}
        server = average(answers)
        sent |= answers
    return parameters_to_vector(server.parameters()).detach()


def trained(
    device: int,
    moment: Moment,
    term: Term,
    *,
    epochs: int,
    lr: float,
    lr_decay: float = 1.0,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    participation: Any = None,
) -> nn.Module:
    model, (x, y) = copy.deepcopy(moment.received), classification()[device]
    rate = lr * lr_decay ** (moment.round - 1)
    optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum, weight_decay=weight_decay)
    counts, batches = torch.bincount(y, minlength=3), shuffled_batches(SIZES, BATCH)
    for epoch in range(1, epochs + 1):
        for ids in batches(device, moment.round, epoch):
            step = Step(model, moment.received, moment.previous, moment.seen, x[ids].double(), y[ids], counts)
            optimiser.zero_grad()
            (F.cross_entropy(model(step.x), step.y) + term(step)).backward()
            optimiser.step()
    return model


def average(models: Mapping[int, nn.Module]) -> nn.Module:
    sizes = [SIZES[device] for device in models]
    vectors = [parameters_to_vector(model.parameters()).detach() for model in models.values()]
    result = copy.deepcopy(next(iter(models.values())))
    mean = sum(n * vector for n, vector in zip(sizes, vectors, strict=True)) / sum(sizes)
    vector_to_parameters(mean, result.parameters())
    return result


def divergence(z: Tensor, received: Tensor, y: int, majority: Collection[int] = (), tau: float = 1.0) -> Tensor:
    """KL( q_g || q ) of one sample: the student leaves out y, the teacher the majority classes as well."""
    others = [c for c in range(len(z)) if c != y]
    allowed = [c for c in others if c not in majority]
    if not allowed:
        return z.new_zeros(())
    student = (z[allowed] / tau).exp() / (z[others] / tau).exp().sum()
    teacher = (received[allowed] / tau).softmax(0)
    return (teacher * (teacher / student).log()).sum()


def majority(counts: Tensor) -> set[int]:
    """Classes whose count is above the mean over all classes, in whole numbers."""
    return {c for c, count in enumerate(counts.tolist()) if count * len(counts) > int(counts.sum())}


def distillation(beta: float, tau: float = 1.0, masked: bool = False, teacher: bool = True) -> Term:
    """FedNTD; masked: FedLMD; without a teacher: uniform over the classes that are allowed."""

    def term(step: Step) -> Tensor:
        z, hidden = step.model(step.x), majority(step.counts) if masked else ()
        received = step.received(step.x).detach() if teacher else torch.zeros_like(z)
        rows = zip(z, received, step.y.tolist(), strict=True)
        return beta * tau**2 * torch.stack([divergence(*row, hidden, tau) for row in rows]).mean()

    return term
