"""FedProx: the identities of its card, and its pitfalls."""

from typing import Any

import by_hand
import pytest
import torch
from paired import TRAINING, WITH_MOMENTUM, distance, simulated, world
from torch import Tensor
from worlds import (
    ONE_BY_ONE,
    SlopeFedProx,
    Upload,
    classification,
    near,
    normalised_model,
    same_bits,
    slope_device,
    softmax_model,
    vector_model,
)

import remanence
from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.method import Network
from remanence.core.optimiser import Training
from remanence.core.state import State
from remanence.core.vector import FlatModel
from remanence.methods.fedprox import FedProx
from remanence.simulation import Simulation

CONTEXT = Context(round=1, rounds=1, lr=0.1, train=Training(), devices=1, classes=1)


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
@pytest.mark.parametrize("mu", [0.1, 1.0])
def test_rounds_equal_the_equations(settings: dict[str, Any], mu: float, engine: dict[str, Any]) -> None:
    """With momentum: the term enters before it; after it, as a decay, the trajectory would be another."""
    result = simulated("fedprox", {"mu": mu}, engine=engine, **settings)
    assert distance(result.weights, by_hand.fedprox(world(**settings), mu)) < 1e-6
    assert distance(result.weights, by_hand.fedavg(world(**settings))) > 1e-4


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
def test_mu_zero_is_fedavg_bit_for_bit(settings: dict[str, Any], engine: dict[str, Any]) -> None:
    prox = simulated("fedprox", {"mu": 0.0}, engine=engine, **settings)
    assert same_bits(prox.weights, simulated("fedavg", engine=engine, **settings).weights)


def pulled(steps: int, mu: float = 0.1, lr: float = 0.1, **settings: Any) -> Simulation:
    """Steps with the constant gradient (0.5, 0.5) from w_g = (1, -2)."""
    return remanence.simulate(
        SlopeFedProx(mu=mu), model=vector_model(1.0, -2.0), devices=[slope_device(0.5, 0.5)] * 2,
        epochs=steps, lr=lr, **settings,
    )  # fmt: skip


def test_two_steps(engine: dict[str, Any]) -> None:
    assert near(pulled(1, engine=engine).weights, 0.95, -2.05)
    assert near(pulled(2, engine=engine).weights, 0.9005, -2.0995)


def test_the_anchor_is_the_received_model(engine: dict[str, Any]) -> None:
    """Each round of two steps moves by (-0.0995, -0.0995), wherever it starts."""
    assert near(pulled(2, rounds=3, engine=engine).weights, 1 - 3 * 0.0995, -2 - 3 * 0.0995)


def penalty_gradient(mu: float, w: Tensor, received: Tensor) -> Tensor:
    net = FlatModel(vector_model(*w.tolist()))
    FedProx(mu=mu).grad(net, Message(w=received), {}, CONTEXT)
    return net.g.clone()


def test_penalty() -> None:
    """The gradient is linear in w, so half of gradient . (w - w_g) is the penalty: 0.25, not 0.111803."""
    w, received = torch.tensor([2.0, 0.0]), torch.tensor([1.0, -2.0])
    gradient = penalty_gradient(0.1, w, received)
    assert near(gradient, 0.1, 0.2)
    assert near(gradient.dot(w - received) / 2, 0.25)
    twice = penalty_gradient(0.1, 2 * w - received, received)
    assert near(twice, 0.2, 0.4)


def test_no_pull_where_every_round_starts() -> None:
    w = torch.tensor([1.0, -2.0])
    assert near(penalty_gradient(0.1, w, w), 0.0, 0.0, within=0.0)


def test_the_first_step_is_that_of_fedavg(engine: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"model": softmax_model(), "devices": classification(), "engine": engine}
    prox = remanence.simulate("fedprox", {"mu": 5.0}, momentum=0.9, **settings)
    plain = remanence.simulate("fedavg", momentum=0.9, **settings)
    assert same_bits(prox.weights, plain.weights)


def test_a_stronger_term_keeps_the_device_nearer(engine: dict[str, Any]) -> None:
    start = FlatModel(softmax_model()).w
    distances = []
    for mu in (0.0, 0.01, 0.1, 0.3, 1.0, 3.0):
        result = simulated("fedprox", {"mu": mu}, participation=[[0, 1, 2, 3]], epochs=20, engine=engine)
        distances.append(float((result.weights - start).norm()))
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < distances[0] / 2


@pytest.mark.parametrize(("mu", "stable"), [(19.0, True), (21.0, False)])
def test_stable_while_rate_times_mu_is_below_two(mu: float, stable: bool) -> None:
    """Without momentum w - w_g settles at -g / mu, or swings ever wider."""
    away = pulled(200, mu=mu).weights - torch.tensor([1.0, -2.0])
    assert near(away, -0.5 / mu, -0.5 / mu, within=1e-5) is stable
    assert bool((away.abs() > 1e3).all()) is not stable


def normalised(method: str | FedProx, **settings: Any) -> Tensor:
    return remanence.simulate(
        method, model=normalised_model(), devices=classification(), epochs=3, batches=2, rounds=2,
        engine=ONE_BY_ONE, **settings,
    ).weights  # fmt: skip


def test_buffers_are_not_pulled() -> None:
    """At a rate of almost 0 the running statistics move as in FedAvg, whatever mu."""
    assert same_bits(normalised(FedProx(mu=10.0), lr=1e-30), normalised("fedavg", lr=1e-30))


class ParametersOnly(FedProx):
    def grad(self, net: Network, message: Message, dev: State, ctx: Context) -> None:
        net.g[: net.size] += self.mu * (net.w - message["w"])[: net.size]


def test_buffers_do_not_enter_the_norm() -> None:
    """Neither that of the penalty nor that by which gradients are clipped."""
    for clip in (0.0, 0.05):
        with_buffers, without = FedProx(mu=0.5), ParametersOnly(mu=0.5)
        one, other = normalised(with_buffers, lr=0.1, clip=clip), normalised(without, lr=0.1, clip=clip)
        assert float((one - other).abs().max()) < 1e-6
        assert not same_bits(one, normalised("fedavg", lr=0.1, clip=clip))


def test_devices_send_what_they_send_in_fedavg(uploads: list[Upload]) -> None:
    pulled(2)
    assert {tuple(upload.content) for upload in uploads} == {("w", "n")}
