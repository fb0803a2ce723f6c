"""FedCM: the identities of its card, and its pitfalls."""

from typing import Any

import by_hand
import pytest
from paired import TRAINING, distance, simulated, world
from worlds import (
    ONE_BY_ONE,
    QUADRATICS,
    SIZES,
    Quadratic,
    Recorded,
    Slope,
    Upload,
    classification,
    near,
    normalised_model,
    same_bits,
    scalar,
    scalar_model,
    shuffled_batches,
    slope_device,
    softmax_model,
    steps_of,
    vector_model,
)

import remanence
from remanence.core.state import equal
from remanence.errors import UserError
from remanence.methods.fedcm import FedCM
from remanence.simulation import Simulation

DECAY: dict[str, Any] = TRAINING | {"weight_decay": 0.05}
GAPS: dict[str, Any] = DECAY | {"participation": [[], [0, 2], [], [1, 2], [0, 3]]}


class QuadraticFedCM(Quadratic, Recorded, FedCM):
    pass


class SlopeFedCM(Slope, Recorded, FedCM):
    pass


class RecordedFedCM(Recorded, FedCM):
    pass


def quadratics(rounds: int, method: FedCM | None = None, **settings: Any) -> Simulation:
    """The card's f_1 and f_2: rate 0.1, two steps, both devices in every round, from w = 0."""
    return remanence.simulate(
        method or QuadraticFedCM(), model=scalar_model(), devices=QUADRATICS, rounds=rounds, epochs=2, lr=0.1,
        **settings,
    )  # fmt: skip


def slopes(*gradients: float, start: float = 0.0, **settings: Any) -> Simulation:
    """A device per constant gradient."""
    devices = [slope_device(gradient) for gradient in gradients]
    return remanence.simulate(SlopeFedCM(), model=vector_model(start), devices=devices, **settings)


@pytest.mark.parametrize("settings", [TRAINING, DECAY, GAPS], ids=["plain", "decay", "gaps"])
@pytest.mark.parametrize("options", [{}, {"alpha": 0.6}, {"alpha": 0.3, "eta_g": 0.5}, {"alpha": 1.0}], ids=str)
def test_rounds_equal_the_equations(options: dict[str, Any], settings: dict[str, Any], engine: dict[str, Any]) -> None:
    """Rates that fall from round to round, unequal steps, weights by samples, part of the fleet."""
    result = simulated("fedcm", options, engine=engine, **settings)
    expected = by_hand.fedcm(world(**settings), **options)
    assert distance(result.weights, expected.w) < 1e-6
    assert distance(result.server_state["delta"], expected.delta) < 1e-5


def test_uniform_weights_equal_the_equations(engine: dict[str, Any]) -> None:
    """The weights of the model's mean and of Delta are the same."""
    result = simulated("fedcm", merge="uniform", engine=engine)
    expected = by_hand.fedcm(world(uniform=True))
    assert distance(result.weights, expected.w) < 1e-6
    assert distance(result.server_state["delta"], expected.delta) < 1e-5
    assert distance(result.server_state["delta"], by_hand.fedcm(world()).delta) > 1e-3


def test_first_round_of_the_quadratics(engine: dict[str, Any], uploads: list[Upload]) -> None:
    result = quadratics(1, engine=engine)
    local = {upload.device: float(upload.content["w"][0]) for upload in uploads}
    assert near([local[0], local[1]], 0.0199, -0.0792)
    assert near(scalar(result), -0.02965)
    assert near(result.server_state["delta"], 0.14825, 0.0)


@pytest.mark.parametrize(("rounds", "w", "delta"), [(2, -0.084902775, 0.276263875), (3, -0.161381459, 0.382393419)])
def test_later_rounds_of_the_quadratics(rounds: int, w: float, delta: float, engine: dict[str, Any]) -> None:
    result = quadratics(rounds, engine=engine)
    assert near(scalar(result), w)
    assert near(result.server_state["delta"][0], delta)


@pytest.mark.parametrize("rounds", [1, 2, 3, 10])
def test_delta_is_the_change_of_the_model_per_rate_and_step(rounds: int, engine: dict[str, Any]) -> None:
    before = scalar(quadratics(rounds - 1, engine=engine)) if rounds > 1 else 0.0
    after = quadratics(rounds, engine=engine)
    assert near(after.server_state["delta"][0], (before - scalar(after)) / (0.1 * 2))


def test_the_server_rate_scales_the_model_alone(engine: dict[str, Any]) -> None:
    result = quadratics(1, QuadraticFedCM(eta_g=0.5), engine=engine)
    assert near(scalar(result), -0.02965 / 2)
    assert near(result.server_state["delta"][0], 0.14825)


@pytest.mark.parametrize("settings", [TRAINING, DECAY], ids=["plain", "decay"])
def test_alpha_one_is_fedavg_bit_for_bit(settings: dict[str, Any], engine: dict[str, Any]) -> None:
    result = simulated("fedcm", {"alpha": 1.0}, engine=engine, **settings)
    assert same_bits(result.weights, simulated("fedavg", engine=engine, **settings).weights)
    assert float(result.server_state["delta"].abs().max()) > 0.01


@pytest.mark.parametrize("settings", [TRAINING, DECAY], ids=["plain", "decay"])
@pytest.mark.parametrize("alpha", [0.1, 0.7])
def test_round_one_is_fedavg_at_a_smaller_rate(alpha: float, settings: dict[str, Any], engine: dict[str, Any]) -> None:
    first = settings | {"participation": [[0, 1, 2, 3]], "engine": engine}
    result = simulated("fedcm", {"alpha": alpha}, **first)
    plain = simulated("fedavg", **first | {"lr": alpha * first["lr"]})
    assert float((result.weights - plain.weights).abs().max()) < 1e-6


@pytest.mark.parametrize("rounds", [1, 2, 3, 8])
def test_delta_goes_geometrically_to_a_constant_gradient(rounds: int, engine: dict[str, Any]) -> None:
    """Delta_2 = 0.1 g, Delta_3 = 0.19 g, ..., whatever the rates and the numbers of steps."""
    result = slopes(2.0, 2.0, 2.0, rounds=rounds, lr=0.5, lr_decay=0.9, batches=steps_of([1, 4, 2]), engine=engine)
    assert near(result.server_state["delta"], 2 * (1 - 0.9**rounds))


def test_each_change_is_divided_by_its_own_steps(engine: dict[str, Any], uploads: list[Upload]) -> None:
    """Gradients 1 and 3 with 1 and 4 steps: Delta is 0.1 times their mean; the model is that of FedAvg."""
    result = slopes(1.0, 3.0, lr=0.5, batches=steps_of([1, 4]), engine=engine)
    assert {upload.device: upload.content["steps"] for upload in uploads} == {0: 1, 1: 4}
    assert near(result.server_state["delta"], 0.2)
    assert near(result.weights, -0.5 * (0.1 * 1 + 4 * 0.1 * 3) / 2)


def test_every_step_is_mixed_with_the_received_delta(engine: dict[str, Any], uploads: list[Upload]) -> None:
    """Gradients 1 and 3 at rate 1: Delta = 0.2, so the second round's steps are 0.1 + 0.18 and 0.3 + 0.18."""
    slopes(1.0, 3.0, rounds=2, epochs=3, lr=1.0, engine=engine)
    first = {u.device: float(u.content["w"]) for u in uploads if u.round == 1}
    second = {u.device: float(u.content["w"]) for u in uploads if u.round == 2}
    assert near([first[0], first[1]], -0.3, -0.9)
    assert near([second[0], second[1]], -0.6 - 3 * 0.28, -0.6 - 3 * 0.48)


def test_delta_has_the_rate_of_its_own_round(engine: dict[str, Any]) -> None:
    """At a rate that falls by half, next round's rate would make Delta twice as long."""
    result = slopes(1.0, 1.0, rounds=2, lr=1.0, lr_decay=0.5, engine=engine)
    assert near(result.server_state["delta"], 0.19)
    assert near(result.weights, -0.1 - 0.5 * 0.19)


def test_weight_decay_is_inside_the_gradient(engine: dict[str, Any]) -> None:
    """From w = 2, gradient 1, decay 0.5: v = 0.1 (1 + 1) = 0.2, then 0.1 (1 + 0.99) + 0.9 * 0.2 = 0.379."""
    settings: dict[str, Any] = {"start": 2.0, "lr": 0.1, "weight_decay": 0.5, "engine": engine}
    assert near(slopes(1.0, 1.0, **settings).weights, 1.98)
    assert near(slopes(1.0, 1.0, rounds=2, **settings).weights, 1.98 - 0.0379)


@pytest.mark.parametrize("wrong", [{"momentum": 0.9}, {"optimiser": "adam"}], ids=str)
def test_only_plain_steps_are_allowed(wrong: dict[str, Any]) -> None:
    """Momentum would amplify the global part by 1 / (1 - momentum)."""
    ((key, value),) = wrong.items()
    with pytest.raises(UserError, match=rf"train\.{key}: '?{value}'? is not allowed: fedcm"):
        simulated("fedcm", **wrong)


def test_a_round_without_survivors_keeps_delta(engine: dict[str, Any]) -> None:
    """The old Delta then acts in the next round, at that round's rate."""
    before = simulated("fedcm", participation=[[0, 1, 2]], engine=engine)
    after = simulated("fedcm", participation=[[0, 1, 2], [], []], engine=engine)
    assert equal(before.server_state, after.server_state)
    assert same_bits(before.weights, after.weights)
    assert float(after.server_state["delta"].abs().max()) > 0.01


@pytest.mark.parametrize("losses", [{"lost": 0.5}, {"quorum": 0.5}], ids=str)
def test_an_upload_that_was_not_counted_does_not_enter_delta(losses: dict[str, Any], engine: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"model": softmax_model(), "devices": classification(), "rounds": 6, "epochs": 2}
    settings |= {"lr": 0.05, "batches": shuffled_batches(SIZES, 3)}
    lossy = remanence.simulate("fedcm", seed=1, engine=engine | losses, **settings)
    counted = [event["counted"] for event in lossy.history]
    assert 0 < sum(map(len, counted)) < 24
    told = remanence.simulate("fedcm", participation=counted, engine=engine, **settings)
    assert equal(lossy.server_state, told.server_state)
    assert same_bits(lossy.weights, told.weights)


def normalised(method: FedCM | str, **settings: Any) -> Simulation:
    return remanence.simulate(
        method, model=normalised_model(), devices=classification(), batches=3, engine=ONE_BY_ONE, **settings
    )


def test_delta_covers_trainable_parameters_only() -> None:
    result = normalised(FedCM(), rounds=2)
    parameters = sum(p.numel() for p in result.model.parameters())
    assert len(result.weights) == parameters + 7
    assert len(result.server_state["delta"]) == parameters


@pytest.mark.parametrize("eta_g", [0.5, 1.0])
def test_buffers_are_averaged_as_in_fedavg(eta_g: float) -> None:
    """The server rate is for parameters; at alpha 1 devices send in round 1 what they send in FedAvg."""
    result, plain = normalised(FedCM(alpha=1.0, eta_g=eta_g)), normalised("fedavg")
    assert same_bits(result.weights[-7:], plain.weights[-7:])
    assert same_bits(result.weights, plain.weights) is (eta_g == 1)


def test_devices_send_a_model_and_keep_nothing(engine: dict[str, Any], uploads: list[Upload]) -> None:
    result = simulated(RecordedFedCM(), engine=engine)
    assert {tuple(upload.content) for upload in uploads} == {("w", "n", "steps")}
    assert all(result.device_state[device] == {} for device in result.device_state)
    assert set(result.server_state) == {"delta"}


@pytest.mark.parametrize(("way", "times"), [("bytes_down", 2.0), ("bytes_up", 1.0)])
def test_traffic(way: str, times: float) -> None:
    settings: dict[str, Any] = {"model": softmax_model(60, 50), "devices": classification(features=60)}
    one, other = (remanence.simulate(name, **settings).history[0][way] for name in ("fedcm", "fedavg"))
    assert near(one / other, times, within=0.02)


def test_defaults() -> None:
    assert (FedCM().alpha, FedCM().eta_g) == (0.1, 1.0)
