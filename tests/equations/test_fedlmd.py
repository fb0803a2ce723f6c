"""FedLMD: the identities of its card, and its pitfalls."""

from typing import Any

import pytest
import torch
from by_autograd import distillation, divergence, majority, normalised_layers, played
from frozen import Watched, answering, context, held, seen
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
from remanence.core.message import Message
from remanence.data.samples import Samples
from remanence.methods.fedlmd import FedLMD
from remanence.methods.fedntd import FedNTD

Z, RECEIVED = (2.0, 1.0, 0.0, -1.0), (0.0, 1.0, 2.0, 0.0)


class RecordedFedLMD(Recorded, FedLMD):
    pass


class WatchedFedLMD(Watched, FedLMD):
    pass


# The majority set


def chosen(*counts: int) -> set[int]:
    """M_k of a device with so many samples of each class."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    net, ctx = answering(*[0.0] * len(counts)), context(classes=len(counts))
    FedLMD().begin(net, Message(w=net.copy()), Samples(torch.ones(len(labels), 1), labels, len(counts)), {}, ctx)
    return set(ctx.scratch["majority"].nonzero().flatten().tolist())


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((250, 250, *[0] * 8), {0, 1}),
        ((7, 7, 7), set()),
        ((5, 3, 0, 0), {0, 1}),  # the mean of the classes that are present, 4, would leave class 1 out
        ((3, 1, 0, 0), {0}),  # exactly the mean is not above it
        ((3, 3, 3, 0), {0, 1, 2}),
        ((0, 0, 4), {2}),
        ((2, 1, 0), {0}),
        ((8,), set()),
    ],
)
def test_majority_set(counts: tuple[int, ...], expected: set[int]) -> None:
    assert chosen(*counts) == expected


@pytest.mark.parametrize("seed", range(20))
def test_majority_set_in_whole_numbers(seed: int) -> None:
    """Where a count is the mean, rounding must not decide."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 5, (int(torch.randint(2, 12, (1,), generator=generator)),), generator=generator)
    counts[0] += 1
    assert chosen(*counts.tolist()) == majority(counts)


@pytest.mark.parametrize("classes", [3, 7, 10, 49, 100])
def test_balanced_devices_have_no_majority(classes: int) -> None:
    assert chosen(*[3] * classes) == set()


# The term


def term(counts: Any, y: int, **options: Any) -> float:
    return seen(FedLMD(**options), Z, RECEIVED, y, counts).term


@pytest.mark.parametrize(
    ("counts", "y", "expected"),
    [
        ((3, 3, 0, 1), 0, 1.161475),
        ((3, 3, 0, 1), 3, 2.407606),
        ((5, 1, 1, 1), 0, 0.420512),
        ((2, 2, 2, 2), 0, 0.420512),
        ((4, 4, 4, 1), 3, 0.0),
    ],
    ids=["two-majorities", "one-class-left", "own-class-alone", "balanced", "no-class-left"],
)
def test_worked_examples(counts: tuple[int, ...], y: int, expected: float) -> None:
    """The last is where the published code comes to 83.6."""
    assert near(term(counts, y), expected)


@pytest.mark.parametrize(
    ("counts", "y", "student", "teacher"),
    [
        ((3, 3, 0, 1), 0, (0.0, 0.665241, 0.244728, 0.090031), (0.0, 0.0, 0.880797, 0.119203)),
        ((3, 3, 0, 1), 3, (0.665241, 0.244728, 0.090031, 0.0), (0.0, 0.0, 1.0, 0.0)),
    ],
)
def test_student_and_teacher_of_the_examples(counts: Any, y: int, student: Any, teacher: Any) -> None:
    """The gradient by the logits is their difference: majority classes are pushed down, y is left alone."""
    gradient = seen(FedLMD(), Z, RECEIVED, y, counts).term_gradient
    assert near(gradient, *[q - q_g for q, q_g in zip(student, teacher, strict=True)])
    assert float(gradient[y]) == 0.0


@pytest.mark.parametrize("teacher", ["received", "none"])
def test_without_a_class_left_the_sample_has_its_cross_entropy_alone(teacher: Any) -> None:
    alone = seen(FedLMD(beta=7.0, tau=2.0, teacher=teacher), Z, RECEIVED, 3, (4, 4, 4, 1))
    assert alone.term == 0.0
    assert near(alone.term_gradient, *[0.0] * 4, within=0.0)
    assert near(alone.loss, 3.440190)


def random_logits(seed: int) -> tuple[list[float], list[float]]:
    z, received = 2 * torch.randn(2, 5, generator=torch.Generator().manual_seed(seed))
    return z.tolist(), received.tolist()


COUNTS = [(9, 0, 0, 0, 1), (4, 4, 0, 1, 1), (3, 3, 3, 3, 1), (0, 5, 0, 5, 0), (2, 2, 2, 2, 2)]


@pytest.mark.parametrize("y", range(5))
@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize(("beta", "tau"), [(1.0, 1.0), (0.3, 2.0), (2.0, 0.7)])
@pytest.mark.parametrize("teacher", ["received", "none"])
def test_definition(counts: Any, y: int, beta: float, tau: float, teacher: Any) -> None:
    """Without a teacher: 1 / |A| for every class of A."""
    z, received = random_logits(y)
    told = torch.tensor(received).double() if teacher == "received" else torch.zeros(5).double()
    student = torch.tensor(z).double().requires_grad_()
    expected = beta * tau**2 * divergence(student, told, y, majority(torch.tensor(counts)), tau) + 0 * student.sum()
    (gradient,) = torch.autograd.grad(expected, student)
    actual = seen(FedLMD(beta=beta, tau=tau, teacher=teacher), z, received, y, counts)
    assert near(actual.term, float(expected.detach()), within=2e-6)
    assert near(actual.term_gradient, *gradient.tolist(), within=2e-6)


@pytest.mark.parametrize("y", range(5))
@pytest.mark.parametrize("counts", [None, (2, 2, 2, 2, 2)], ids=["own-class-alone", "balanced"])
def test_no_other_majority_is_fedntd(counts: Any, y: int) -> None:
    z, received = random_logits(y)
    options = {"beta": 2.0, "tau": 1.5}
    masked, plain = (seen(method(**options), z, received, y, counts) for method in (FedLMD, FedNTD))
    assert near(masked.term, plain.term)
    assert near(masked.term_gradient, *plain.term_gradient.tolist())


def share_of_minority(z: Tensor, y: int, hidden: set[int]) -> float:
    weights = z.double().exp()
    rest = [c for c in range(len(z)) if c != y]
    return float(sum(weights[c] for c in rest if c not in hidden) / weights[rest].sum())


@pytest.mark.parametrize(("counts", "y"), [((4, 4, 0, 1, 1), 0), ((4, 4, 0, 1, 1), 3), ((9, 0, 0, 0, 1), 3)])
def test_the_term_acts_from_the_first_step(counts: Any, y: int) -> None:
    """Where z = z_g it is -log of what the student gives to A; FedNTD's is 0 there."""
    z, _ = random_logits(y)
    expected = -torch.tensor(share_of_minority(torch.tensor(z), y, majority(torch.tensor(counts)))).log()
    first = seen(FedLMD(), z, z, y, counts)
    assert near(first.term, float(expected))
    assert float(expected) > 0.05
    assert near(seen(FedNTD(), z, z, y, counts).term, 0.0)


def test_uniform_over_the_minority_without_a_teacher() -> None:
    """M = {0, 1}, y = 0: 1/2 for classes 2 and 3, whatever was received and however large the batch."""
    expected = 0.5 * sum(torch.tensor([0.5 / 0.244728, 0.5 / 0.090031]).double().log().tolist())
    assert near(term((3, 3, 0, 1), 0, teacher="none"), expected, within=5e-6)
    assert FedLMD(teacher="none").teachers == 0


@pytest.mark.parametrize("y", [0, 3])
@pytest.mark.parametrize("counts", [(3, 3, 0, 1), (4, 4, 4, 1), (9, 1, 1, 1)])
def test_far_logits_stay_numbers(counts: Any, y: int) -> None:
    far = seen(FedLMD(), (1e4, -1e4, 0.0, 500.0), (-1e4, 1e4, 300.0, 0.0), y, counts)
    assert bool(torch.tensor([far.loss, far.term]).isfinite().all())
    assert bool(far.gradient.isfinite().all())


# Rounds


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
@pytest.mark.parametrize(("beta", "tau"), [(1.0, 1.0), (3.0, 2.0)])
@pytest.mark.parametrize("teacher", ["received", "none"])
def test_rounds_equal_the_equations(settings: dict[str, Any], beta: float, tau: float, teacher: str) -> None:
    """Three classes on skewed devices: also samples for which no class is left."""
    options = {"beta": beta, "tau": tau, "teacher": teacher}
    result = simulated("fedlmd", options, engine=ONE_BY_ONE, **settings)
    expected = distillation(beta, tau, masked=True, teacher=teacher == "received")
    assert distance(result.weights, played(softmax_model(), expected, **settings).numpy()) < 1e-6
    for other in (distillation(0.0), distillation(beta, tau)):
        assert distance(result.weights, played(softmax_model(), other, **settings).numpy()) > 1e-3


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
def test_beta_zero_is_fedavg_bit_for_bit(settings: dict[str, Any], engine: dict[str, Any]) -> None:
    """A stack has FedAvg's loss in closed form, which may round differently."""
    result = simulated("fedlmd", {"beta": 0.0}, engine=engine, **settings)
    plain = simulated("fedavg", engine=engine, **settings)
    assert near(result.weights, *plain.weights.tolist())
    assert engine == STACKED or same_bits(result.weights, plain.weights)


@pytest.mark.parametrize("model", [normalised_model, normalised_layers])
def test_beta_zero_is_fedavg_for_networks_with_buffers(model: Any) -> None:
    settings: dict[str, Any] = {
        "model": model(), "devices": classification(), "batches": 3, "rounds": 3, "engine": ONE_BY_ONE
    }  # fmt: skip
    result = remanence.simulate("fedlmd", {"beta": 0.0}, **settings)
    assert same_bits(result.weights, remanence.simulate("fedavg", **settings).weights)


LABELS = {"one-class-each": [[0] * 4, [1] * 6, [2] * 5], "balanced": [[0, 1, 2] * 2, [2, 1, 0], [0, 0, 1, 1, 2, 2]]}


@pytest.mark.parametrize("labels", LABELS)
def test_devices_without_another_majority_are_those_of_fedntd(labels: str) -> None:
    devices = [(classification((len(y),))[0][0], torch.tensor(y)) for y in LABELS[labels]]
    settings: dict[str, Any] = {
        "model": softmax_model(), "devices": devices, "rounds": 3, "epochs": 4, "lr": 0.3, "engine": ONE_BY_ONE
    }  # fmt: skip
    result = remanence.simulate("fedlmd", {"beta": 2.0}, **settings).weights
    assert near(result, *remanence.simulate("fedntd", {"beta": 2.0}, **settings).weights.tolist())
    assert not near(result, *remanence.simulate("fedavg", **settings).weights.tolist(), within=1e-3)


def test_half_precision_stays_finite() -> None:
    """Masks exclude: no constant that the type cannot hold, and no sample without a class left explodes."""
    result = simulated("fedlmd", {"beta": 2.0}, engine=ONE_BY_ONE | {"precision": "bfloat16"})
    expected = simulated("fedlmd", {"beta": 2.0}, engine=ONE_BY_ONE)
    assert float((result.weights - expected.weights).abs().max()) < 0.05
    assert all(event["loss"] < 10 for event in result.history)


def test_traffic_and_state_are_those_of_fedavg(uploads: list[Upload]) -> None:
    """The counts of its labels stay on the device."""
    result, plain = simulated(RecordedFedLMD(), engine=ONE_BY_ONE), simulated("fedavg", engine=ONE_BY_ONE)
    assert {tuple(upload.content) for upload in uploads} == {("w", "n")}
    for name in ("bytes_down", "bytes_up"):
        assert [event[name] for event in result.history] == [event[name] for event in plain.history]
    assert not any(result.device_state[device] for device in result.device_state)
    assert not result.server_state


@pytest.mark.parametrize(("teacher", "frozen"), [("received", 1), ("none", 0)])
def test_the_teacher_is_the_model_received_in_this_round(teacher: Any, frozen: int) -> None:
    watched = held(WatchedFedLMD(teacher=teacher), [[0, 1], [1, 3], [0, 1, 2]])
    assert len(watched) == 7
    for each in watched:
        assert len(each.frozen) == frozen
        assert all(same_bits(model, each.received) for model in each.frozen)


def test_defaults() -> None:
    assert FedLMD() == FedLMD(beta=1.0, tau=1.0, teacher="received")
