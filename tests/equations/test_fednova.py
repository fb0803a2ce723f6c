"""FedNova: the identities of its card, and its pitfalls."""

from typing import Any

import by_hand
import pytest
from paired import TRAINING, WITH_MOMENTUM, distance, simulated, world
from worlds import (
    ONE_BY_ONE,
    QUADRATICS,
    QuadraticFedAvg,
    QuadraticFedNova,
    RecordedFedNova,
    SlopeFedAvg,
    SlopeFedNova,
    Upload,
    classification,
    near,
    normalised_model,
    same_bits,
    scalar,
    scalar_model,
    slope_device,
    softmax_model,
    steps_of,
    vector_model,
)

import remanence
from remanence.core.optimiser import effective_steps
from remanence.errors import UserError
from remanence.methods.fedavg import FedAvg
from remanence.simulation import Simulation


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
def test_rounds_equal_the_equations(settings: dict[str, Any], engine: dict[str, Any]) -> None:
    result = simulated("fednova", engine=engine, **settings)
    assert distance(result.weights, by_hand.fednova(world(**settings))) < 2e-6
    assert distance(result.weights, by_hand.fedavg(world(**settings))) > 1e-3


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.05}], ids=["plain", "decay"])
def test_rounds_with_a_proximal_term_equal_the_equations(settings: dict[str, Any], engine: dict[str, Any]) -> None:
    """The rate falls from round to round: a_k uses that of the round."""
    result = simulated("fednova", {"mu": 1.5}, engine=engine, **settings)
    assert distance(result.weights, by_hand.fednova(world(**settings), 1.5)) < 2e-6
    assert distance(result.weights, by_hand.fednova(world(**settings))) > 1e-3


def test_uniform_weights_equal_the_equations(engine: dict[str, Any]) -> None:
    result = simulated("fednova", merge="uniform", engine=engine)
    assert distance(result.weights, by_hand.fednova(world(uniform=True))) < 2e-6


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_equal_steps_are_fedavg(momentum: float, engine: dict[str, Any]) -> None:
    """In every round, revisits included: no gradient of an earlier round is subtracted."""
    settings: dict[str, Any] = {
        "model": softmax_model(), "devices": classification(), "batches": steps_of((3, 3, 3, 3)), "rounds": 5,
        "lr": 0.05, "momentum": momentum, "weight_decay": 0.01, "engine": engine,
    }  # fmt: skip
    nova, plain = remanence.simulate("fednova", **settings), remanence.simulate("fedavg", **settings)
    assert float((nova.weights - plain.weights).abs().max()) < 1e-6


@pytest.mark.parametrize(("steps", "count"), [(1, 1.0), (3, 5.61), (5, 13.1441), (10, 41.381060), (50, 410.463840)])
def test_counts_under_momentum(steps: int, count: float) -> None:
    assert near(effective_steps(steps, 0.9), count)
    assert near(by_hand.coefficient_sum(steps, 0.9), count)


def test_counts_at_the_edges() -> None:
    assert effective_steps(7, 0.0) == 7
    assert near(effective_steps(100_000, 0.9), 999_910.0)  # 0.9^100000 underflows, without harm
    assert near(effective_steps(3, 0.999), by_hand.coefficient_sum(3, 0.999), within=1e-6)


STEPS, SAMPLES, MODELS = (2, 6), (100, 300), (-2.0, -9.0)


def scalars(method: FedAvg | SlopeFedNova, momentum: float, **settings: Any) -> Simulation:
    """Devices that reach w = -2 and -9 from w_g = 0, at rate 1, in 2 and 6 steps."""
    slopes = [-w / by_hand.coefficient_sum(t, momentum) for w, t in zip(MODELS, STEPS, strict=True)]
    devices = [slope_device(slope, samples=n) for slope, n in zip(slopes, SAMPLES, strict=True)]
    return remanence.simulate(
        method, model=vector_model(0.0), devices=devices, batches=steps_of(STEPS), lr=1.0, momentum=momentum,
        **settings,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("momentum", "counts", "expected"), [(0.0, (2.0, 6.0), -6.875), (0.9, (2.9, 17.82969), -7.767535)]
)
def test_scalars(
    momentum: float,
    counts: tuple[float, float],
    expected: float,
    engine: dict[str, Any],
    uploads: list[Upload],
) -> None:
    result = scalars(SlopeFedNova(), momentum, engine=engine)
    sent = {upload.device: upload.content for upload in uploads}
    assert near([float(sent[0]["w"]), float(sent[1]["w"])], *MODELS)
    assert near([sent[0]["a"], sent[1]["a"]], *counts)
    assert near(result.weights, expected)
    assert near(scalars(SlopeFedAvg(), momentum, engine=engine).weights, -7.25)


@pytest.mark.parametrize(
    ("lr", "rounds", "average", "nova", "within"),
    [(0.05, 60, -1.60939, -0.71578, 5e-6), (0.005, 200, -1.7166, -0.9716, 5e-5)],
)
def test_fixed_points(
    lr: float, rounds: int, average: float, nova: float, within: float, engine: dict[str, Any]
) -> None:
    """From the true optimum -1, which only FedNova comes back to as the rate falls."""
    settings: dict[str, Any] = {
        "model": scalar_model(-1.0), "devices": QUADRATICS, "batches": steps_of((2, 10)), "rounds": rounds,
        "lr": lr, "engine": engine,
    }  # fmt: skip
    assert near(scalar(remanence.simulate(QuadraticFedAvg(), **settings)), average, within=within)
    assert near(scalar(remanence.simulate(QuadraticFedNova(), **settings)), nova, within=within)


def alone(mu: float, steps: int = 3) -> Simulation:
    """One device with gradient 1, from w = 0 at rate 0.1."""
    return remanence.simulate(
        SlopeFedNova(mu=mu), model=vector_model(0.0), devices=[slope_device(1.0)], epochs=steps, lr=0.1
    )


def test_count_under_a_proximal_term(uploads: list[Upload]) -> None:
    alone(mu=1.0)
    assert near(uploads[0].content["a"], 2.71)
    assert near(uploads[0].content["w"], -0.271)


def test_one_device(uploads: list[Upload]) -> None:
    """Without the term its own model; with it, beyond: w_g + (3 / 2.71) (w_k - w_g)."""
    assert near(alone(mu=0.0).weights, float(uploads[0].content["w"]))
    assert near(alone(mu=1.0).weights, -0.271 * 3 / 2.71)


def test_server_momentum(engine: dict[str, Any]) -> None:
    """The same change D = -6.875 twice, with momentum 0.5: D, then 0.5 D + D."""
    optimise = {"name": "fedavgm", "beta": 0.5}
    result = scalars(SlopeFedNova(), 0.0, rounds=2, optimise=optimise, engine=engine)
    assert near(result.weights, -6.875 * 2.5, within=2e-6)


def test_a_proximal_term_with_momentum_is_refused() -> None:
    with pytest.raises(UserError, match=r"method\.mu: 0\.1 with train\.momentum = 0\.9"):
        simulated("fednova", {"mu": 0.1}, momentum=0.9)


def test_only_plain_steps_can_be_counted() -> None:
    with pytest.raises(UserError, match=r"train\.optimiser: 'adam'"):
        simulated("fednova", optimiser="adam")


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_buffers_are_averaged_by_samples_and_not_normalised(mu: float) -> None:
    """Steps 1, 3, 2, 2 and samples 2, 8, 3, 5: any other weights would show."""
    settings: dict[str, Any] = {
        "model": normalised_model(), "devices": classification((2, 8, 3, 5)), "batches": 3,
        "engine": ONE_BY_ONE,
    }  # fmt: skip
    nova = remanence.simulate(RecordedFedNova(mu=mu), **settings)
    plain = remanence.simulate("fedprox", {"mu": mu}, **settings)
    assert same_bits(nova.weights[-7:], plain.weights[-7:])
    assert float((nova.weights[:-7] - plain.weights[:-7]).abs().max()) > 1e-4
    assert int(nova.model.state_dict()["1.num_batches_tracked"]) == 3


def test_the_mean_is_over_those_who_answered(engine: dict[str, Any]) -> None:
    """Shares of the two survivors 1/4 and 3/4, as if the third had never been chosen."""
    devices = [slope_device(1.0, samples=100), slope_device(1.5, samples=300), slope_device(3e38)]
    result = remanence.simulate(
        SlopeFedNova(), model=vector_model(0.0), devices=devices, batches=steps_of((*STEPS, 4)), lr=1.0,
        engine=engine,
    )  # fmt: skip
    assert result.history[0]["refused"] == {"2": "'w' is not finite"}
    assert near(result.weights, -6.875)


def test_nothing_is_kept(engine: dict[str, Any]) -> None:
    result = simulated("fednova", engine=engine)
    assert result.server_state == {}
    assert all(result.device_state[device] == {} for device in range(4))
