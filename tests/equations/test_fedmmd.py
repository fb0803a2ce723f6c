"""FedMMD: the identities of its card, and its pitfalls."""

import math
from typing import Any

import pytest
import torch
from by_autograd import Step, Term, normalised_layers, played, two_layers
from frozen import Watched, answering, context, held, seen
from paired import BATCH, TRAINING, WITH_MOMENTUM, distance
from torch import Tensor
from worlds import (
    ONE_BY_ONE,
    SIZES,
    STACKED,
    Recorded,
    Upload,
    classification,
    near,
    normalised_model,
    planned,
    same_bits,
    shuffled_batches,
)
from worlds import played as run_of

import remanence
from remanence.core.vector import FlatModel
from remanence.data.samples import Batch
from remanence.errors import UserError
from remanence.measure.storage import state_bytes
from remanence.methods.fedmmd import VARIANCES, FedMMD, discrepancy
from remanence.simulation import Simulation

U, V = torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]])


class RecordedFedMMD(Recorded, FedMMD):
    pass


class WatchedFedMMD(Watched, FedMMD):
    pass


def simulated(method: Any, options: dict[str, Any] | None = None, **settings: Any) -> Simulation:
    training = {"model": two_layers(), "devices": classification(), "engine": ONE_BY_ONE} | TRAINING | settings
    return remanence.simulate(
        method, options, rounds=len(training["participation"]), batches=shuffled_batches(SIZES, BATCH), **training
    )


# The discrepancy


def test_worked_example_of_one_kernel() -> None:
    assert near(discrepancy(U, V, (1.0,)), 1 - math.exp(-1))
    assert near(discrepancy(U, V, (1.0,)), 0.632121)


def test_worked_example_of_nineteen_kernels() -> None:
    """The widths are variances: divided by twice their square, or without the pairs a = b, it would be another."""
    assert len(VARIANCES) == 19
    assert near(discrepancy(U, V), 7.132993)


def rows(seed: int, count: int = 7, width: int = 5, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def definition(u: Tensor, v: Tensor, variances: tuple[float, ...] = VARIANCES) -> Tensor:
    """The card's formula, pair by pair, in float64."""

    def mean(one: Tensor, other: Tensor) -> Tensor:
        pairs = [(((a - b) ** 2).sum(), s) for a in one for b in other for s in variances]
        return torch.stack([(-square / (2 * s)).exp() for square, s in pairs]).sum() / (len(one) * len(other))

    u, v = u.double(), v.double()
    return mean(u, u) + mean(v, v) - 2 * mean(u, v)


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_definition(scale: float, count: int) -> None:
    u, v = rows(1, count, scale=scale), rows(2, count, scale=scale)
    assert near(discrepancy(u, v), float(definition(u, v)), within=1e-5)
    assert near(discrepancy(u.double(), v.double()), float(definition(u, v)), within=1e-12)


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_of_a_sample_with_itself(scale: float) -> None:
    u = rows(3, 32, 62, scale)
    v = u.clone().requires_grad_()
    value = discrepancy(u, v)
    assert float(value.detach()) == 0.0
    assert float(torch.autograd.grad(value, v)[0].abs().max()) < 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_symmetric_not_negative_and_without_an_order(seed: int) -> None:
    u, v = rows(seed, scale=0.3), rows(seed + 10, scale=0.3)
    value = float(discrepancy(u, v))
    order = torch.randperm(len(u), generator=torch.Generator().manual_seed(seed))
    assert near(discrepancy(v, u), value, within=2e-6)
    assert near(discrepancy(u[order], v), value, within=2e-6)
    assert near(discrepancy(u, v[order]), value, within=2e-6)
    assert value > -1e-6


@pytest.mark.parametrize("apart", [0.0, 1e-7, 1e-5, 1e-3])
def test_near_samples_far_from_zero(apart: float) -> None:
    """With norms and products instead of differences, the narrow kernels would see rounding as distance."""
    u = rows(4, 20, 10) + 300
    assert float(discrepancy(u, u + apart)) > -1e-6
    assert near(discrepancy(u, u + apart), float(definition(u, u + apart)), within=1e-5)


# The loss


def test_the_first_batch_counts_the_floor_without_a_gradient() -> None:
    z = (2.0, 1.0, -1.0)
    first = seen(FedMMD(strength=10.0), z, z, 0)
    assert near(first.term, 10 * 1e-4)
    assert near(first.term_gradient, 0.0, 0.0, 0.0, within=0.0)


def test_one_sample() -> None:
    """k(u,u) + k(v,v) - 2 k(u,v); the floor apart, and the gradient reaches the trained model alone."""
    z, received = (1.0, 0.0), (0.0, 0.0)
    example = seen(FedMMD(strength=0.5, variances=(1.0, 4.0)), z, received, 0)
    kernel = math.exp(-0.5) + math.exp(-0.125)
    assert near(example.term, 0.5 * (4 - 2 * kernel))
    assert near(example.term_gradient, 0.5 * 2 * (math.exp(-0.5) + math.exp(-0.125) / 4), 0.0)


@pytest.mark.parametrize(("floor", "slope"), [(0.0, True), (0.5, True), (1.0, False)])
def test_floor(floor: float, slope: bool) -> None:
    """The discrepancy is 2 (1 - e^{-1/2}) = 0.786939."""
    example = seen(FedMMD(strength=1.0, floor=floor, variances=(1.0,)), (1.0, 0.0), (0.0, 0.0), 0)
    assert near(example.term, max(floor, 0.786939))
    assert bool(example.term_gradient.any()) is slope


def test_the_term_is_one_number_for_the_batch() -> None:
    """The mean over the batch is CE + lambda MMD2, with all pairs of the batch."""
    net, teacher = FlatModel(two_layers()), FlatModel(two_layers())
    teacher.w.add_(rows(5, 1, len(teacher.w), 0.2)[0])
    x, y = classification()[1]
    batch = Batch(x, y, torch.arange(len(y)))
    both = [FedMMD(strength=s).loss(net, batch, {}, context(teacher, classes=3)).mean() for s in (0.3, 0.0)]
    expected = 0.3 * float(definition(teacher(x).detach(), net(x).detach()))
    assert near((both[0] - both[1]).detach(), expected, within=2e-6)
    both[0].backward()
    assert bool(net.g.any())
    assert not teacher.g.any()


def test_far_logits_stay_numbers() -> None:
    far = seen(FedMMD(), (1e6, -1e6, 0.0), (-1e6, 1e6, 300.0), 0)
    assert math.isfinite(far.loss)
    assert bool(far.gradient.isfinite().all())


# Rounds


def term(strength: float, floor: float = 1e-4, features: bool = False) -> Term:
    def value(step: Step) -> Tensor:
        def shown(model: Any) -> Tensor:
            return model.features(step.x) if features else model(step.x)

        return strength * definition(shown(step.received).detach(), shown(step.model)).clamp(min=floor)

    return value


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
@pytest.mark.parametrize("compare", ["logits", "features"])
def test_rounds_equal_the_equations(settings: dict[str, Any], compare: str) -> None:
    result = simulated("fedmmd", {"compare": compare}, **settings)
    expected = played(two_layers(), term(0.1, features=compare == "features"), **settings)
    assert distance(result.weights, expected.numpy()) < 1e-5
    other = played(two_layers(), term(0.1, features=compare != "features"), **settings)
    for wrong in (played(two_layers(), term(0.0), **settings), other):
        assert distance(result.weights, wrong.numpy()) > 1e-3


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
def test_strength_zero_is_fedavg_bit_for_bit(settings: dict[str, Any], engine: dict[str, Any]) -> None:
    """A stack has FedAvg's loss in closed form, which may round differently."""
    result = simulated("fedmmd", {"strength": 0.0}, **settings | {"engine": engine})
    plain = simulated("fedavg", **settings | {"engine": engine})
    assert near(result.weights, *plain.weights.tolist())
    assert engine == STACKED or same_bits(result.weights, plain.weights)


@pytest.mark.parametrize("model", [normalised_model, normalised_layers])
def test_strength_zero_is_fedavg_for_networks_with_buffers(model: Any) -> None:
    settings: dict[str, Any] = {"model": model(), "devices": classification(), "batches": 3, "rounds": 3}
    result = remanence.simulate("fedmmd", {"strength": 0.0}, engine=ONE_BY_ONE, **settings)
    assert same_bits(result.weights, remanence.simulate(engine=ONE_BY_ONE, **settings).weights)


def test_the_first_step_is_that_of_fedavg() -> None:
    """But for the floor, which is in the loss."""
    settings: dict[str, Any] = {"model": two_layers(), "devices": classification(), "engine": ONE_BY_ONE}
    result, plain = remanence.simulate("fedmmd", {"strength": 10.0}, **settings), remanence.simulate(**settings)
    assert same_bits(result.weights, plain.weights)
    assert near(result.history[0]["loss"] - plain.history[0]["loss"], 1e-3)


def test_a_last_batch_of_one_sample() -> None:
    result = remanence.simulate(
        "fedmmd", model=two_layers(), devices=classification((5, 1)), batches=2, rounds=3, engine=ONE_BY_ONE
    )
    assert bool(result.weights.isfinite().all())


def test_the_frozen_model_is_the_one_received_in_this_round() -> None:
    """In evaluation mode; steps, gradients and statistics leave it alone."""
    watched = held(WatchedFedMMD(), [[0, 1], [1, 3], [0, 1, 2]])
    assert len(watched) == 7
    for each in watched:
        (teacher,) = each.frozen
        assert same_bits(teacher, each.received)
        assert not same_bits(teacher, each.sent)


def test_traffic_and_state_are_those_of_fedavg(uploads: list[Upload]) -> None:
    result, plain = simulated(RecordedFedMMD()), simulated("fedavg")
    assert {tuple(upload.content) for upload in uploads} == {("w", "n")}
    for name in ("bytes_down", "bytes_up"):
        assert [event[name] for event in result.history] == [event[name] for event in plain.history]
    assert not any(result.device_state[device] for device in result.device_state)
    assert not result.server_state


def test_one_more_model_in_training() -> None:
    settings: dict[str, Any] = {"model": two_layers(), "devices": classification(), "engine": ONE_BY_ONE}
    kept = [state_bytes(run_of(planned(name, **settings))) for name in ("fedmmd", "fedavg")]
    model = 4 * sum(parameter.numel() for parameter in two_layers().parameters())
    assert kept[0]["device_transient"] - kept[1]["device_transient"] == model


def test_a_model_without_features() -> None:
    model, devices = answering(0.0, 0.0, 0.0).module, [(U[:, :1], [0, 2])]
    with pytest.raises(UserError, match="does not define 'features'"):
        remanence.simulate("fedmmd", {"compare": "features"}, model=model, devices=devices, engine=ONE_BY_ONE)


def test_defaults() -> None:
    assert FedMMD() == FedMMD(strength=0.1, floor=1e-4, compare="logits", variances=VARIANCES)
    assert VARIANCES == (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 5, 10, 15, 20, 25, 30, 35, 100, 1e3, 1e4, 1e5, 1e6)


@pytest.mark.parametrize("options", [{"strength": -1.0}, {"floor": -1.0}, {"variances": []}, {"variances": [0.0]}])
def test_options_have_ranges(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        planned("fedmmd", options, model=two_layers(), devices=classification())
