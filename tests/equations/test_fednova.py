"""FedNova: the identities of its card, and its pitfalls."""

from typing import Any

import by_hand
import pytest
from paired import TRAINING, WITH_MOMENTUM, distance, simulated, world
from torch import Tensor
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
from remanence.core.context import Context
from remanence.core.method import Merged
from remanence.core.optimiser import effective_steps
from remanence.core.state import State
from remanence.errors import UserError
from remanence.methods.fedavg import FedAvg
from remanence.methods.fednova import proximal_steps
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


@pytest.mark.parametrize("momentum", [0.0, 0.9, 0.999, 1 - 1e-5, 1 - 1e-7, 1 - 1e-12])
@pytest.mark.parametrize("steps", [1, 3, 5, 11, 50, 1000])
def test_counts_under_momentum_equal_their_recursion(steps: int, momentum: float) -> None:
    assert effective_steps(steps, momentum) == pytest.approx(by_hand.coefficient_sum(steps, momentum), rel=1e-12, abs=0)


def proximal_recursion(steps: int, pull: float) -> float:
    a = 0.0
    for _ in range(steps):
        a = a * (1 - pull) + 1
    return a


@pytest.mark.parametrize("pull", [1.0, 0.5, 1e-3, 1e-8, 1e-14, 1e-17])
@pytest.mark.parametrize("steps", [1, 5, 50])
def test_counts_under_a_proximal_term_equal_their_recursion(steps: int, pull: float) -> None:
    assert proximal_steps(steps, pull) == pytest.approx(proximal_recursion(steps, pull), rel=1e-12, abs=0)


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


def test_the_worked_numbers_under_momentum(engine: dict[str, Any], uploads: list[Upload]) -> None:
    """d_k = (w_g - w_k) / a_k and tau_eff = sum p_k a_k, of which the server makes its step."""
    reduced: list[Merged] = []

    class Watched(SlopeFedNova):
        def step(self, w: Tensor, merged: Merged, srv: State, ctx: Context) -> Tensor:
            reduced.append(merged)
            return super().step(w, merged, srv, ctx)

    scalars(Watched(), 0.9, engine=engine)
    sent = [upload.content for upload in sorted(uploads, key=lambda upload: upload.device)]
    assert near([-float(content["w"]) / content["a"] for content in sent], 0.689655, 0.504776)
    assert near(reduced[0]["a"], 14.097268)
    assert near(-14.097268 * (0.25 * 0.689655 + 0.75 * 0.504776), -7.767535, within=1e-5)


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


def test_the_strongest_pull_leaves_one_effective_step(uploads: list[Upload]) -> None:
    """lr * mu = 1: every step goes back to w_g and on by one gradient."""
    result = alone(mu=10.0)
    assert uploads[0].content["a"] == 1.0
    assert near(uploads[0].content["w"], -0.1)
    assert near(result.weights, -0.1 * 3)


def test_a_stronger_pull_is_refused() -> None:
    with pytest.raises(UserError, match=r"method\.mu: 10\.01 with train\.lr = 0\.1 .* lr \* mu must be at most 1"):
        alone(mu=10.01)


def test_a_pull_that_fades_away(engine: dict[str, Any], uploads: list[Upload]) -> None:
    """lr * mu falls from 1e-4 to 2e-22, far below what 1 - lr * mu can show."""
    result = remanence.simulate(
        RecordedFedNova(mu=0.01), model=softmax_model(), devices=classification(), batches=3, rounds=60, lr=0.01,
        lr_decay=0.5, engine=engine,
    )  # fmt: skip
    assert not any(event["refused"] for event in result.history)
    assert bool(result.weights.isfinite().all())
    for upload in uploads:
        a, pull = upload.content["a"], 1e-4 * 0.5 ** (upload.round - 1)
        assert a == pytest.approx(proximal_recursion(upload.steps, pull), rel=1e-12, abs=0)


def test_a_pull_that_fades_away_by_its_name() -> None:
    result = remanence.simulate(
        "fednova", {"mu": 0.01}, model=softmax_model(), devices=classification(), rounds=60, lr=0.01, lr_decay=0.5
    )
    assert [event["counted"] for event in result.history] == [[0, 1, 2, 3]] * 60


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
