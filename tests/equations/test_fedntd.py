"""FedNTD: the identities of its card, and its pitfalls."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from by_autograd import distillation, divergence, normalised_layers, played
from frozen import Watched, held, seen
from paired import TRAINING, WITH_MOMENTUM, distance, simulated
from torch import Tensor
from worlds import (
    ONE_BY_ONE,
    STACKED,
    Recorded,
    Upload,
    classification,
    near,
    normalised_model,
    same_bits,
    softmax_model,
)

import remanence
from remanence.core.vector import FlatModel
from remanence.methods.fedntd import FedNTD, not_true

Z, RECEIVED = (2.0, 1.0, 0.0, -1.0), (0.0, 1.0, 2.0, 0.0)


class RecordedFedNTD(Recorded, FedNTD):
    pass


class WatchedFedNTD(Watched, FedNTD):
    pass


# The term


def others(z: Any, y: int) -> Tensor:
    """Softmax over the classes that the method keeps."""
    return F.softmax(torch.tensor([z]).gather(1, not_true(torch.tensor([y]), len(z))), 1)


def test_student_and_teacher_of_the_example() -> None:
    assert near(others(Z, 0), 0.665241, 0.244728, 0.090031)
    assert near(others(RECEIVED, 0), 0.244728, 0.665241, 0.090031)


@pytest.mark.parametrize("y", range(4))
def test_the_true_class_is_left_out_and_the_others_keep_their_order(y: int) -> None:
    assert not_true(torch.tensor([y]), 4).tolist() == [[c for c in range(4) if c != y]]


def test_worked_example() -> None:
    example = seen(FedNTD(), Z, RECEIVED, 0)
    assert near(example.loss, 0.860702)
    assert near(example.term, 0.420512)
    assert near(example.loss - example.term, 0.440190)


def test_worked_example_at_a_temperature_of_three() -> None:
    """Without tau^2 the term would be a ninth of it."""
    example = seen(FedNTD(tau=3.0), Z, RECEIVED, 0)
    assert near(example.loss, 0.821547)
    assert near(example.term, 0.381357)
    assert near(example.term_gradient, 0.0, 0.381357, -0.381357, 0.0)


@pytest.mark.parametrize("beta", [0.1, 1.0, 10.0])
def test_the_term_is_multiplied_by_beta(beta: float) -> None:
    assert near(seen(FedNTD(beta=beta), Z, RECEIVED, 0).term, beta * 0.420512, within=1e-6 * max(1.0, beta))


def random_logits(seed: int, classes: int = 5) -> tuple[list[float], list[float]]:
    z, received = 2 * torch.randn(2, classes, generator=torch.Generator().manual_seed(seed))
    return z.tolist(), received.tolist()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("beta", "tau"), [(1.0, 1.0), (0.3, 2.0), (2.0, 0.7)])
def test_definition(seed: int, beta: float, tau: float) -> None:
    """The teacher stands first in the divergence, which the card's symmetric example cannot tell."""
    z, received = random_logits(seed)
    student, teacher = torch.tensor(z).double().requires_grad_(), torch.tensor(received).double()
    expected = beta * tau**2 * divergence(student, teacher, seed % 5, tau=tau)
    (gradient,) = torch.autograd.grad(expected, student)
    actual = seen(FedNTD(beta=beta, tau=tau), z, received, seed % 5)
    assert near(actual.term, float(expected.detach()), within=2e-6)
    assert near(actual.term_gradient, *gradient.tolist(), within=2e-6)
    turned = beta * tau**2 * divergence(teacher, student.detach(), seed % 5, tau=tau)
    assert abs(float(expected.detach()) - float(turned)) > 1e-3


@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("y", range(5))
def test_the_true_class_has_no_gradient_from_the_term(y: int, tau: float) -> None:
    gradient = seen(FedNTD(tau=tau), *random_logits(7), y).term_gradient
    assert float(gradient[y]) == 0.0
    assert float(gradient.abs().max()) > 0.01
    assert near(gradient.sum(), 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_added_where_the_round_starts(seed: int) -> None:
    z, _ = random_logits(seed)
    first = seen(FedNTD(beta=3.0, tau=2.0), z, z, 1)
    assert near(first.term, 0.0)
    assert near(first.term_gradient, *[0.0] * 5)


@pytest.mark.parametrize("y", [0, 1])
def test_with_two_classes_one_is_left(y: int) -> None:
    pair = seen(FedNTD(beta=5.0), (3.0, -1.0), (-2.0, 4.0), y)
    assert pair.term == 0.0
    assert near(pair.term_gradient, 0.0, 0.0, within=0.0)


@pytest.mark.parametrize("y", [0, 1])
def test_far_logits_stay_numbers(y: int) -> None:
    """Masked with -inf, 0 * inf would be NaN."""
    far = seen(FedNTD(), (1e4, -1e4, 0.0, 500.0), (-1e4, 1e4, 300.0, 0.0), y)
    assert bool(torch.tensor([far.loss, far.term]).isfinite().all())
    assert bool(far.gradient.isfinite().all())


# Rounds


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
@pytest.mark.parametrize(("beta", "tau"), [(1.0, 1.0), (3.0, 2.0)])
def test_rounds_equal_the_equations(settings: dict[str, Any], beta: float, tau: float) -> None:
    """The mean over the batch: neither its sum nor a mean over classes as well."""
    result = simulated("fedntd", {"beta": beta, "tau": tau}, engine=ONE_BY_ONE, **settings)
    expected = played(softmax_model(), distillation(beta, tau), **settings)
    assert distance(result.weights, expected.numpy()) < 1e-6
    assert distance(result.weights, played(softmax_model(), distillation(0.0), **settings).numpy()) > 1e-3


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
def test_beta_zero_is_fedavg_bit_for_bit(settings: dict[str, Any], engine: dict[str, Any]) -> None:
    """A stack has FedAvg's loss in closed form, which may round differently."""
    result = simulated("fedntd", {"beta": 0.0}, engine=engine, **settings)
    plain = simulated("fedavg", engine=engine, **settings)
    assert near(result.weights, *plain.weights.tolist())
    assert engine == STACKED or same_bits(result.weights, plain.weights)


@pytest.mark.parametrize("model", [normalised_model, normalised_layers])
def test_beta_zero_is_fedavg_for_networks_with_buffers(model: Any) -> None:
    settings: dict[str, Any] = {
        "model": model(), "devices": classification(), "batches": 3, "rounds": 3, "engine": ONE_BY_ONE
    }  # fmt: skip
    result = remanence.simulate("fedntd", {"beta": 0.0}, **settings)
    assert same_bits(result.weights, remanence.simulate("fedavg", **settings).weights)


def test_the_first_step_is_that_of_fedavg() -> None:
    settings: dict[str, Any] = {"model": softmax_model(), "devices": classification(), "engine": ONE_BY_ONE}
    result = remanence.simulate("fedntd", {"beta": 5.0}, **settings)
    assert near(result.weights, *remanence.simulate("fedavg", **settings).weights.tolist())


def test_two_classes_are_fedavg() -> None:
    settings: dict[str, Any] = {
        "model": softmax_model(classes=2), "devices": classification(classes=2), "rounds": 3, "epochs": 4,
        "lr": 0.3, "batches": 3, "engine": ONE_BY_ONE,
    }  # fmt: skip
    result = remanence.simulate("fedntd", {"beta": 5.0, "tau": 2.0}, **settings)
    assert near(result.weights, *remanence.simulate("fedavg", **settings).weights.tolist())


def test_traffic_and_state_are_those_of_fedavg(uploads: list[Upload]) -> None:
    result, plain = simulated(RecordedFedNTD(), engine=ONE_BY_ONE), simulated("fedavg", engine=ONE_BY_ONE)
    assert {tuple(upload.content) for upload in uploads} == {("w", "n")}
    for name in ("bytes_down", "bytes_up"):
        assert [event[name] for event in result.history] == [event[name] for event in plain.history]
    assert not any(result.device_state[device] for device in result.device_state)
    assert not result.server_state


def test_the_teacher_is_the_model_received_in_this_round() -> None:
    """In evaluation mode; steps, gradients and statistics leave it alone."""
    watched = held(WatchedFedNTD(), [[0, 1], [1, 3], [0, 1, 2]])
    assert len(watched) == 7
    for each in watched:
        (teacher,) = each.frozen
        assert same_bits(teacher, each.received)
        assert not same_bits(teacher, each.sent)
    assert same_bits(watched[0].received, FlatModel(normalised_layers()).copy())
    assert len({each.received.sum().item() for each in watched}) == 3


def test_defaults() -> None:
    assert FedNTD() == FedNTD(beta=1.0, tau=1.0)
