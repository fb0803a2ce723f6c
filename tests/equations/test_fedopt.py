"""FedAvgM, FedAdagrad, FedAdam, FedYogi: the identities of their card, and its pitfalls."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import by_hand
import numpy as np
import pytest
import torch
from paired import simulated
from torch import Tensor
from worlds import (
    ONE_BY_ONE,
    SIZES,
    SlopeFedAvg,
    classification,
    near,
    normalised_model,
    planned,
    played,
    same_bits,
    shuffled_batches,
    slope_device,
    softmax_model,
    vector_model,
)

import remanence
from remanence.core.context import Context
from remanence.core.federation import Federation
from remanence.core.parts import Optimise
from remanence.core.state import State, equal, load, save
from remanence.engine.memory import one_thread
from remanence.errors import UserError
from remanence.methods.fedavg import FedAvg
from remanence.registry import option_fields, parts
from remanence.simulation import Simulation

START, DELTAS = (1.0, -1.0), ((0.1, -0.02), (0.05, 0.03))
RULES = ("fedavgm", "fedadagrad", "fedadam", "fedyogi")
ADAPTIVE = RULES[1:]
EXAMPLE: dict[str, dict[str, float]] = {"fedavgm": {"eta": 1.0}, **{rule: {"eta": 0.1} for rule in ADAPTIVE}}
# After rounds 1 and 2: v (none for FedAvgM) and x.
V = {
    "fedadagrad": ((0.010001, 0.000401), (0.012501, 0.001301)),
    "fedadam": ((1.0099e-4, 4.99e-6), (1.249801e-4, 1.39401e-5)),
    "fedyogi": ((1.01e-4, 5.0e-6), (1.26e-4, 1.4e-5)),
}
X = {
    "fedadagrad": ((1.099005, -1.095125), (1.143328, -1.014196)),
    "fedadam": ((1.090503, -1.061846), (1.205451, -1.036496)),
    "fedyogi": ((1.090499, -1.061803), (1.205018, -1.036496)),
    "fedavgm": ((1.1, -1.02), (1.24, -1.008)),
}
M = {"fedadam": (0.014, 0.0012), "fedyogi": (0.014, 0.0012), "fedavgm": (0.14, 0.012)}  # after round 2


def part(rule: str, **options: Any) -> Optimise:
    chosen: Optimise = parts["optimise"].create(rule, options)
    return chosen


def opened(optimiser: Optimise, *start: float) -> tuple[Tensor, State]:
    x = torch.tensor(start)
    return x, optimiser.open(x)


def moved(optimiser: Optimise, x: Tensor, delta: Sequence[float] | Tensor, state: State) -> Tensor:
    return optimiser.step(x, x + torch.as_tensor(delta), state)


@pytest.mark.parametrize("rule", RULES)
def test_worked_example_by_the_part(rule: str) -> None:
    optimiser = part(rule, **EXAMPLE[rule])
    x, state = opened(optimiser, *START)
    for number, delta in enumerate(DELTAS):
        x = moved(optimiser, x, delta, state)
        assert near(x, *X[rule][number])
        if rule in V:
            assert near(state["v"], *V[rule][number], within=1e-8)
    if rule in M:
        assert near(state["m"], *M[rule])


def example(rule: str, rounds: int, engine: dict[str, Any]) -> Simulation:
    """Two devices whose average moves by the example's change of the round."""
    rows = -torch.tensor(DELTAS)
    apart = torch.tensor([0.3, 0.7])
    labels = torch.zeros(2, dtype=torch.int64)
    return remanence.simulate(
        SlopeFedAvg(), model=vector_model(*START), devices=[(rows + apart, labels), (rows - apart, labels)],
        rounds=rounds, lr=1.0, optimise={"name": rule, **EXAMPLE[rule]}, engine=engine,
        batches=lambda device, round, epoch: [torch.tensor([round - 1])],
    )  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_worked_example_by_training(rule: str, engine: dict[str, Any]) -> None:
    for rounds in (1, 2):
        result = example(rule, rounds, engine)
        assert near(result.weights, *X[rule][rounds - 1])
        if rule in V:
            assert near(result.server_state["optimise"]["v"], *V[rule][rounds - 1], within=5e-8)


class Prescribed(FedAvg):
    """The new model is what the example says, whatever devices send."""

    def step(self, w: Tensor, merged: Any, srv: State, ctx: Context) -> Tensor:
        return w + torch.tensor(DELTAS[ctx.round - 1])


@pytest.mark.parametrize("rule", RULES)
def test_worked_example_by_a_prescribed_model(rule: str) -> None:
    for rounds in (1, 2):
        result = remanence.simulate(
            Prescribed(), model=vector_model(*START), devices=[slope_device(1.0, 1.0)] * 2, rounds=rounds,
            optimise={"name": rule, **EXAMPLE[rule]},
        )  # fmt: skip
        assert near(result.weights, *X[rule][rounds - 1])


@pytest.mark.parametrize("rule", RULES)
def test_many_rounds_equal_the_equations(rule: str) -> None:
    """Changes of very different sizes, beta1 = 0.5 for all."""
    rng = np.random.default_rng(3)
    name = "beta" if rule == "fedavgm" else "beta1"
    optimiser = part(rule, **{"eta": 0.05, name: 0.5})
    x, state = opened(optimiser, *[0.5] * 6)
    expected, m, v = np.full(6, 0.5), np.zeros(6), np.full(6, 1e-6)
    for _ in range(20):
        target = x + torch.from_numpy(rng.normal(size=6) * 10.0 ** rng.uniform(-3, 0, 6)).float()
        delta = (target - x).double().numpy()
        expected, m, v = by_hand.server_step(rule, expected, delta, m, v, eta=0.05, beta1=0.5, beta2=0.99, tau=1e-3)
        x = optimiser.step(x, target, state)
    assert float(np.abs(x.double().numpy() - expected).max()) < 2e-6


@pytest.mark.parametrize("rule", RULES)
def test_only_adam_and_yogi_have_a_second_decay(rule: str) -> None:
    """Adagrad sums the squares, and FedAvgM has none."""
    has = rule in ("fedadam", "fedyogi")
    assert ("beta2" in option_fields(parts["optimise"].get(rule))) is has
    for choose in (lambda: part(rule, beta2=0.5), lambda: simulated(rule, {"beta2": 0.5})):
        with nullcontext() if has else pytest.raises(UserError, match="beta2"):
            choose()


def test_defaults() -> None:
    names = ("eta", "beta", "beta1", "beta2", "tau")
    defaults = {rule: [getattr(part(rule), name, None) for name in names] for rule in RULES}
    assert defaults["fedavgm"] == [1.0, 0.9, None, None, None]
    assert defaults["fedadagrad"][::2] == [0.1, 0.0, 0.001]
    assert defaults["fedadam"] == [0.01, None, 0.9, 0.99, 0.001]
    assert defaults["fedyogi"] == [0.01, None, 0.9, 0.99, 0.001]


@pytest.mark.parametrize("rule", RULES)
def test_a_published_name_is_fedavg_with_the_part(rule: str, engine: dict[str, Any]) -> None:
    named = simulated(rule, EXAMPLE[rule], engine=engine)
    made = simulated("fedavg", optimise={"name": rule, **EXAMPLE[rule]}, engine=engine)
    assert same_bits(named.weights, made.weights)


def test_without_momentum_at_rate_one_it_is_fedavg_bit_for_bit(engine: dict[str, Any]) -> None:
    plain = simulated("fedavg", engine=engine)
    assert same_bits(simulated("fedavgm", {"beta": 0.0, "eta": 1.0}, engine=engine).weights, plain.weights)
    almost = simulated("fedavgm", {"beta": 1e-12, "eta": 1.0}, engine=engine)
    assert float((almost.weights - plain.weights).abs().max()) < 1e-6


def test_momentum_is_not_damped() -> None:
    """A constant change d adds up to d / (1 - beta) per round, not to d."""
    optimiser = part("fedavgm", beta=0.5)
    x, state = opened(optimiser, 0.0)
    for _ in range(40):
        x = moved(optimiser, x, [1.0], state)
    assert near(state["m"], 2.0)


def test_yogi_stays_where_v_equals_the_square() -> None:
    optimiser = part("fedyogi", tau=0.5)
    x, state = opened(optimiser, 0.0)
    for _ in range(3):
        x = optimiser.step(x * 0, torch.tensor([0.5]), state)
        assert near(state["v"], 0.25, within=0.0)


@pytest.mark.parametrize("rule", RULES)
def test_no_change_from_the_start_moves_nothing(rule: str) -> None:
    optimiser = part(rule)
    x, state = opened(optimiser, *START)
    for _ in range(3):
        assert same_bits(moved(optimiser, x, [0.0, 0.0], state), x)


@pytest.mark.parametrize("rule", ["fedavgm", "fedadam", "fedyogi"])
def test_no_change_later_still_moves_along_the_momentum(rule: str) -> None:
    optimiser = part(rule, eta=0.1)
    x, state = opened(optimiser, *START)
    first = moved(optimiser, x, [0.1, -0.02], state)
    m = state["m"].clone()
    second = moved(optimiser, first, [0.0, 0.0], state)
    assert near(state["m"], *(0.9 * m).tolist(), within=1e-8)
    assert bool(((second - first) * m > 0).all())


def random_changes(seed: int, rounds: int, size: int = 50) -> list[Tensor]:
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.normal(size=size) * 10.0 ** rng.uniform(-6, 3)).float() for _ in range(rounds)]


def second_moments(rule: str, changes: Sequence[Tensor]) -> list[Tensor]:
    """v from the start and after every change."""
    optimiser = part(rule)
    zero = torch.zeros(len(changes[0]))
    state = optimiser.open(zero)
    moments = [state["v"].clone()]
    for change in changes:
        optimiser.step(zero, change, state)
        moments.append(state["v"].clone())
    return moments


@pytest.mark.parametrize("rule", ADAPTIVE)
def test_second_moments_are_never_negative(rule: str) -> None:
    assert all(bool((v >= 0).all()) for v in second_moments(rule, random_changes(1, 300)))


def test_yogi_changes_slowly_and_keeps_a_floor() -> None:
    changes = random_changes(2, 300)
    moments = second_moments("fedyogi", changes)
    for old, new, change in zip(moments, moments[1:], changes, strict=False):
        square = change.square()
        assert bool(((new - old).abs() <= 0.01 * square + 1e-6 * old).all())
        assert bool((new >= torch.minimum(old, 0.99 * square) * (1 - 1e-5)).all())


def test_adam_and_yogi_differ_by_the_factor_on_the_old_v() -> None:
    """While v is below the square of the change: (1 - beta2) v."""
    change = torch.linspace(0.1, 1.0, 10)
    old = torch.full((10,), 1e-6)
    adam, yogi = (second_moments(rule, [change])[1] for rule in ("fedadam", "fedyogi"))
    assert float((yogi - adam - 0.01 * old).abs().max()) < 1e-9
    assert float(((yogi - adam) / yogi).max()) < 1e-4


@pytest.mark.parametrize(("rule", "bound"), [("fedadagrad", 0.1), ("fedadam", 0.1), ("fedyogi", 0.1)])
def test_the_first_step_is_bounded(rule: str, bound: float) -> None:
    """eta (1 - beta1) / sqrt(1 - beta2) = 0.1 * 0.1 / 0.1; eta for Adagrad, whose beta1 is 0."""
    for change in random_changes(4, 30):
        optimiser = part(rule, eta=0.1)
        step = optimiser.step(torch.zeros(50), change, optimiser.open(torch.zeros(50)))
        assert float(step.abs().max()) <= bound * (1 + 1e-6)


@pytest.mark.parametrize(("v0", "rate"), [(0.0, 0.5), (None, 0.25)])
def test_without_adaptation_it_is_fedavg_at_a_server_rate(v0: float | None, rate: float) -> None:
    """tau to infinity, eta = 0.5 tau: the whole change times 0.5, or half of that when v starts at tau^2."""
    optimiser = part("fedadagrad", eta=0.5e5, tau=1e5, v0=v0)
    x, state = opened(optimiser, 0.0, 0.0)
    assert near(moved(optimiser, x, [0.1, -2.0], state), 0.1 * rate, -2.0 * rate, within=5e-5)


@pytest.mark.parametrize("rule", ADAPTIVE)
def test_start_of_v(rule: str) -> None:
    assert near(opened(part(rule), 0.0)[1]["v"], 1e-6, within=1e-12)
    assert near(opened(part(rule, v0=0.0), 0.0)[1]["v"], 0.0, within=0.0)


@pytest.mark.parametrize(("correction", "factors"), [("adam", (1, 2)), ("flower", (2, 3))])
def test_bias_correction(correction: str, factors: tuple[int, int]) -> None:
    """sqrt(1 - beta2^t) / (1 - beta1^t); Flower's first round counts as t = 2."""
    plain, corrected = part("fedadam"), part("fedadam", bias_correction=correction)
    (x, state), (_, other) = opened(plain, *START), opened(corrected, *START)
    for t, delta in zip(factors, DELTAS, strict=True):
        target = x + torch.tensor(delta)
        step, larger = plain.step(x, target, state) - x, corrected.step(x, target, other) - x
        factor = (1 - 0.99**t) ** 0.5 / (1 - 0.9**t)
        assert near(larger, *(factor * step).tolist())


@pytest.mark.parametrize("rule", RULES)
def test_buffers_bypass_the_optimiser(rule: str) -> None:
    settings: dict[str, Any] = {
        "model": normalised_model(), "devices": classification(), "batches": 3, "engine": ONE_BY_ONE
    }  # fmt: skip
    result, plain = remanence.simulate(rule, **settings), remanence.simulate("fedavg", **settings)
    parameters = len(result.weights) - 7
    assert same_bits(result.weights[parameters:], plain.weights[parameters:])
    tensors = [t for t in result.server_state["optimise"].values() if isinstance(t, Tensor)]
    assert {len(t) for t in tensors} == {parameters}
    assert len(tensors) == (1 if rule == "fedavgm" else 2)


@pytest.mark.parametrize("rule", RULES)
def test_saved_and_restored_it_goes_on_bit_for_bit(rule: str, tmp_path: Path) -> None:
    plan = planned(rule, model=softmax_model(), devices=classification(), rounds=6, batches=shuffled_batches(SIZES, 3))
    with one_thread(), Federation(plan) as begun:
        for _ in range(3):
            begun.play_round()
        save(tmp_path / "tree", begun.tree())
    with one_thread(), Federation(plan) as resumed:
        resumed.restore(load(tmp_path / "tree"))
        list(resumed.play())
    assert equal(resumed.tree(), played(plan).tree())


@pytest.mark.parametrize("rule", RULES)
def test_the_change_is_over_those_who_answered(rule: str, engine: dict[str, Any]) -> None:
    """One of three does not answer: never a third of the sum of two."""
    silent = (torch.empty(0, 4), torch.empty(0, dtype=torch.int64))
    settings: dict[str, Any] = {"model": softmax_model(), "rounds": 3, "engine": engine}
    two = classification()[:2]
    with_silent = remanence.simulate(rule, devices=[*two, silent], **settings)
    assert [event["counted"] for event in with_silent.history] == [[0, 1]] * 3
    assert same_bits(with_silent.weights, remanence.simulate(rule, devices=two, **settings).weights)


@pytest.mark.parametrize(("merge", "change"), [("mean", 2.75), ("uniform", 7 / 3)])
def test_changes_are_weighted_by_samples_or_uniformly(merge: str, change: float, engine: dict[str, Any]) -> None:
    devices = [slope_device(-1.0), slope_device(-2.0), slope_device(-4.0, samples=2)]
    result = remanence.simulate(
        SlopeFedAvg(), model=vector_model(0.0), devices=devices, lr=1.0, merge=merge, engine=engine,
        optimise={"name": "fedavgm", "eta": 0.5},
    )  # fmt: skip
    assert near(result.server_state["optimise"]["m"], change)
    assert near(result.weights, change / 2)
