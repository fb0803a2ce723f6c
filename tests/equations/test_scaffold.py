"""SCAFFOLD: the identities of its card, and its pitfalls."""

from typing import Any

import by_hand
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_autograd import normalised_layers
from paired import TRAINING, WITH_MOMENTUM, distance, flat, simulated, world
from torch import Tensor
from worlds import (
    ONE_BY_ONE,
    QUADRATICS,
    SIZES,
    STACKED,
    QuadraticFedAvg,
    QuadraticScaffold,
    RecordedScaffold,
    SlopeScaffold,
    Upload,
    classification,
    near,
    normalised_model,
    planned,
    same_bits,
    scalar,
    scalar_model,
    shuffled_batches,
    slope_device,
    softmax_model,
    vector_model,
)

import remanence
from remanence.core.federation import Federation
from remanence.core.optimiser import effective_steps
from remanence.engine.memory import one_thread
from remanence.errors import UserError
from remanence.methods.fedavg import FedAvg
from remanence.methods.scaffold import Scaffold
from remanence.simulation import Simulation


def quadratics(method: FedAvg | Scaffold, rounds: int, **settings: Any) -> Simulation:
    """The card's f_1 and f_2: rate 0.1, two steps, both devices in every round, from w = 0."""
    return remanence.simulate(
        method, model=scalar_model(), devices=QUADRATICS, rounds=rounds, epochs=2, lr=0.1, **settings
    )


def own(result: Simulation) -> list[float]:
    return [float(result.device_state[device]["c"][0]) for device in (0, 1)]


def test_first_round_of_the_quadratics(engine: dict[str, Any], uploads: list[Upload]) -> None:
    result = quadratics(QuadraticScaffold(), 1, engine=engine)
    local = {upload.device: float(upload.content["w"][0]) for upload in uploads}
    assert near([local[0], local[1]], 0.19, -0.72)
    assert near(scalar(result), -0.265)
    assert near(own(result), -0.95, 3.6)
    assert near(result.server_state["c"], 1.325, 0.0)


def test_later_rounds_of_the_quadratics(engine: dict[str, Any]) -> None:
    second = quadratics(QuadraticScaffold(), 2, engine=engine)
    assert near(scalar(second), -0.4685)
    assert near(own(second), -1.3155, 3.3505)
    assert near(second.server_state["c"][0], 1.0175)
    third = quadratics(QuadraticScaffold(), 3, engine=engine)
    assert near(scalar(third), -0.616328)
    assert near(third.server_state["c"][0], 0.739138)


def test_fixed_points_of_the_quadratics(engine: dict[str, Any]) -> None:
    assert near(scalar(quadratics(QuadraticScaffold(), 200, engine=engine)), -1.0)
    assert near(scalar(quadratics(QuadraticFedAvg(), 200, engine=engine)), -0.963636)


VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, TRAINING),
    "momentum-and-decay": ({}, WITH_MOMENTUM),
    "plain-count": ({"divisor": "steps"}, WITH_MOMENTUM),
    "server-rate": ({"eta_g": 0.5}, TRAINING),
    "full-gradient": ({"option": "I"}, TRAINING),
    "full-gradient-momentum": ({"option": "I", "eta_g": 1.5}, TRAINING | {"lr": 0.02, "momentum": 0.9}),
}


@pytest.mark.parametrize("engine", [ONE_BY_ONE, STACKED], ids=["one-by-one", "stacked"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_rounds_equal_the_equations(variant: str, engine: dict[str, Any]) -> None:
    """Rates that fall from round to round, weights by samples, half of the fleet: each equation with its own."""
    options, settings = VARIANTS[variant]
    if options.get("option") == "I" and engine == STACKED:
        with pytest.raises(UserError, match="cohort"):
            simulated("scaffold", options, engine=engine, **settings)
        return
    result = simulated("scaffold", options, engine=engine, **settings)
    expected = by_hand.scaffold(world(**settings), **options)
    assert distance(result.weights, expected.w) < 2e-6
    assert distance(result.server_state["c"], expected.c) < 1e-5
    for device, c in enumerate(expected.own):
        assert distance(result.device_state[device]["c"], c) < 1e-5


def test_uniform_model_means_leave_the_control_means_alone(engine: dict[str, Any]) -> None:
    result = simulated("scaffold", merge="uniform", engine=engine)
    expected = by_hand.scaffold(world(uniform=True))
    assert distance(result.weights, expected.w) < 1e-6
    assert distance(result.server_state["c"], expected.c) < 1e-5


def imbalance(result: Simulation) -> float:
    """How far the mean of all devices' c_k is from the server's c."""
    own = torch.stack([result.device_state[device]["c"] for device in result.device_state])
    return float((own.mean(0) - result.server_state["c"]).abs().max())


CHANCES: dict[str, dict[str, Any]] = {
    "all": {},
    "half": {"participation": 3},
    "lost": {"lost": 0.3},
    "half-and-lost": {"participation": 3, "lost": 0.3},
}


@pytest.mark.parametrize("rounds", range(1, 7))
@pytest.mark.parametrize("chance", CHANCES)
def test_c_is_the_mean_of_the_devices_after_every_round(chance: str, rounds: int, engine: dict[str, Any]) -> None:
    settings = dict(CHANCES[chance])
    lost = settings.pop("lost", 0.0)
    result = remanence.simulate(
        "scaffold", model=softmax_model(), devices=classification((*SIZES, 4, 7)), rounds=rounds, epochs=2,
        lr=0.05, batches=3, seed=3, engine=engine | {"lost": lost}, **settings,
    )  # fmt: skip
    assert imbalance(result) < 1e-5
    assert float(result.server_state["c"].abs().max()) > 0.01


def test_c_is_the_mean_when_trained_uploads_come_late(engine: dict[str, Any]) -> None:
    """The device has trained and replaced c_k; nobody counted it, so it must be back at the old one."""
    settings: dict[str, Any] = {"model": softmax_model(), "devices": classification(), "lr": 0.05}
    result = remanence.simulate("scaffold", rounds=6, engine=engine | {"quorum": 0.5}, **settings)
    assert {len(event["counted"]) for event in result.history} == {2}
    assert imbalance(result) < 1e-5


def test_c_is_the_mean_when_trained_uploads_are_refused(engine: dict[str, Any]) -> None:
    """Device 1 overflows in round 2, with its second sample."""
    devices = [slope_device(1.0), (torch.tensor([[3.0], [3e38]]), torch.tensor([0, 0]))]
    result = remanence.simulate(
        SlopeScaffold(), model=vector_model(0.0), devices=devices, rounds=3, epochs=2, lr=1.0, engine=engine,
        batches=lambda device, round, epoch: [torch.tensor([int(device == 1 and round == 2)])],
    )  # fmt: skip
    assert [event["counted"] for event in result.history] == [[0, 1], [0], [0, 1]]
    assert bool(result.device_state[1]["c"].isfinite().all())
    assert imbalance(result) < 1e-5


def test_one_device_is_fedavg() -> None:
    settings = TRAINING | {"participation": [[0]] * 4, "momentum": 0.9, "lr": 0.02}
    settings |= {"model": softmax_model(), "devices": classification()[:1], "rounds": 4}
    settings["batches"] = shuffled_batches(SIZES, 3)
    result = remanence.simulate("scaffold", **settings)
    plain = remanence.simulate("fedavg", **settings)
    assert float((result.weights - plain.weights).abs().max()) < 1e-6
    assert float((result.device_state[0]["c"] - result.server_state["c"]).abs().max()) < 1e-6
    assert float(result.server_state["c"].abs().max()) > 0.01


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
def test_round_one_is_that_of_fedavg_bit_for_bit(settings: dict[str, Any], engine: dict[str, Any]) -> None:
    first = settings | {"participation": [[0, 1, 2, 3]], "engine": engine}
    assert same_bits(simulated("scaffold", **first).weights, simulated("fedavg", **first).weights)


def test_a_device_without_data_changes_nothing(engine: dict[str, Any]) -> None:
    empty = (torch.empty(0, 1), torch.empty(0, dtype=torch.int64))
    result = remanence.simulate(
        QuadraticScaffold(), model=scalar_model(), devices=[*QUADRATICS, empty], rounds=3, epochs=2, lr=0.1,
        engine=engine,
    )  # fmt: skip
    assert [event["refused"] for event in result.history] == [{"2": "no samples to train on"}] * 3
    assert near(result.device_state[2]["c"], 0.0, 0.0, within=0.0)
    assert bool(result.server_state["c"].isfinite().all())
    assert imbalance(result) < 1e-6


def test_only_an_empty_device_leaves_everything(engine: dict[str, Any]) -> None:
    empty = (torch.empty(0, 1), torch.empty(0, dtype=torch.int64))
    result = remanence.simulate(
        QuadraticScaffold(), model=scalar_model(0.25), devices=[*QUADRATICS, empty], rounds=1,
        participation=[[2]], engine=engine if engine == ONE_BY_ONE else {},
    )  # fmt: skip
    assert scalar(result) == 0.25
    assert near(result.server_state["c"], 0.0, 0.0, within=0.0)


def test_the_correction_is_minus_own_plus_common(engine: dict[str, Any], uploads: list[Upload]) -> None:
    """Constant gradients 1 and 3: c_k = (1, 3), c = 2, and both move by 2 per step from then on."""
    devices = [slope_device(1.0), slope_device(3.0)]
    result = remanence.simulate(
        SlopeScaffold(), model=vector_model(0.0), devices=devices, rounds=2, lr=1.0, engine=engine
    )
    second = {upload.device: float(upload.content["w"]) for upload in uploads if upload.round == 2}
    assert second == {0: -4.0, 1: -4.0}
    assert [float(result.device_state[device]["c"]) for device in (0, 1)] == [1.0, 3.0]


def test_the_divisor_holds_the_rate_of_the_round(engine: dict[str, Any]) -> None:
    """Constant gradients: c_k is the gradient in every round, whatever the rate did."""
    devices = [slope_device(1.0), slope_device(3.0)]
    for rounds in (1, 2, 3):
        result = remanence.simulate(
            SlopeScaffold(), model=vector_model(0.0), devices=devices, rounds=rounds, lr=0.5, lr_decay=0.25,
            engine=engine,
        )  # fmt: skip
        assert near([float(result.device_state[device]["c"]) for device in (0, 1)], 1.0, 3.0)


@pytest.mark.parametrize("option", ["I", "II"])
def test_a_rate_that_falls_below_every_number(option: str) -> None:
    """0.1 * 0.5^139 is 0 in float32: no displacement over no rate is no reason to refuse."""
    for engine in (ONE_BY_ONE, STACKED) if option == "II" else (ONE_BY_ONE,):
        result = remanence.simulate(
            "scaffold", {"option": option}, model=softmax_model(), devices=classification(), rounds=140, lr=0.1,
            lr_decay=0.5, engine=engine,
        )  # fmt: skip
        assert [event["refused"] for event in result.history] == [{}] * 140
        assert bool(result.weights.isfinite().all())
        assert bool(result.server_state["c"].isfinite().all())
        assert imbalance(result) < 1e-5


def test_the_norm_of_c_is_told_in_every_round(engine: dict[str, Any]) -> None:
    """The card: reported, not clipped. A round without devices has one as well."""
    plan = planned(
        "scaffold", model=softmax_model(), devices=classification(), rounds=4, engine=engine,
        participation=[[0, 1], [], [1, 2, 3], [0, 2]],
    )  # fmt: skip
    norms = []
    with one_thread(), Federation(plan) as federation:
        for event in federation.play():
            norms.append(event["norm_c"])
            assert near(event["norm_c"], float(federation.srv["c"].double().square().sum().sqrt()))
    assert norms[0] == norms[1] > 0
    assert len(set(norms)) == 3


@pytest.mark.parametrize(("divisor", "size"), [("effective", 1.0), ("steps", 8.2092768)])
def test_momentum_and_the_size_of_c(divisor: str, size: float, engine: dict[str, Any]) -> None:
    """50 steps at momentum 0.9 move by 410.46 gradients: over 50 steps, c_k is eight times a gradient."""
    devices = [slope_device(1.0)] * 2
    result = remanence.simulate(
        SlopeScaffold(divisor=divisor), model=vector_model(0.0), devices=devices, epochs=50, lr=0.01,
        momentum=0.9, engine=engine,
    )  # fmt: skip
    assert near(result.device_state[0]["c"], size, within=1e-5)
    assert near(effective_steps(50, 0.9) / 50, 8.2092768)


def test_weight_decay_is_absorbed(engine: dict[str, Any]) -> None:
    """One step from w = 2 with gradient 1 and decay 0.5: c_k = 1 + 0.5 * 2."""
    result = remanence.simulate(
        SlopeScaffold(), model=vector_model(2.0), devices=[slope_device(1.0)] * 2, lr=0.1, weight_decay=0.5,
        engine=engine,
    )  # fmt: skip
    assert near(result.device_state[0]["c"], 2.0)


def test_full_gradient_of_the_quadratics() -> None:
    """Option I: c_k = f_k'(w_g), so -1 and 4 after round 1."""
    result = quadratics(QuadraticScaffold(option="I"), 1, engine=ONE_BY_ONE)
    assert near(own(result), -1.0, 4.0)
    assert near(scalar(result), -0.265)
    assert near(scalar(quadratics(QuadraticScaffold(option="I"), 100, engine=ONE_BY_ONE)), -1.0, within=1e-5)


def test_full_gradient_is_taken_in_evaluation_mode(uploads: list[Upload]) -> None:
    """Batch statistics and dropout would make it noisy; the upload is that of training, statistics and all."""
    result = remanence.simulate(
        RecordedScaffold(option="I"), model=normalised_layers(), devices=classification(), batches=3, lr=0.05,
        engine=ONE_BY_ONE,
    )  # fmt: skip
    for device, (x, y) in enumerate(classification()):
        module = normalised_layers().eval()
        gradients = torch.autograd.grad(F.cross_entropy(module(x), y), [*module.parameters()])
        expected = torch.cat([gradient.reshape(-1) for gradient in gradients])
        assert near(result.device_state[device]["c"], *expected.tolist())
    plain = remanence.simulate(
        "fedavg", model=normalised_layers(), devices=classification(), batches=3, lr=0.05, engine=ONE_BY_ONE
    )
    assert same_bits(result.weights, plain.weights)
    assert len(uploads) == 4


def test_full_gradient_leaves_the_own_model_to_be_measured(uploads: list[Upload]) -> None:
    """The devices' own accuracy is that of w_k, not of the received model."""
    devices = classification((40, 40))
    test = (torch.cat([x for x, _ in devices]), torch.cat([y for _, y in devices]))
    result = remanence.simulate(
        RecordedScaffold(option="I"), model=softmax_model(), devices=devices, test=test, epochs=20, lr=0.5
    )
    x, y = test[0].double().numpy(), test[1].numpy()
    expected = [class_mean(upload.content["w"], x, y) for upload in uploads]
    assert near(result.history[0]["client_acc_global"], float(np.mean(expected)))


def class_mean(w: Tensor, x: np.ndarray, y: np.ndarray) -> float:
    rows = flat(w)
    answers = (x @ rows[:12].reshape(3, 4).T + rows[12:]).argmax(1)
    return float(np.mean([(answers[y == c] == c).mean() for c in range(3)]))


def normalised(method: Scaffold | str, **settings: Any) -> Simulation:
    return remanence.simulate(
        method, model=normalised_model(), devices=classification(), batches=3, engine=ONE_BY_ONE, **settings
    )


def test_variates_cover_trainable_parameters_only(uploads: list[Upload]) -> None:
    result = normalised(RecordedScaffold(), rounds=2)
    parameters = sum(p.numel() for p in result.model.parameters())
    assert len(result.weights) == parameters + 7
    sizes = {len(result.server_state["c"]), *(len(upload.content["delta_c"]) for upload in uploads)}
    assert sizes == {parameters}


@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("eta_g", [0.5, 1.0])
def test_buffers_are_averaged_as_in_fedavg(eta_g: float, option: str) -> None:
    """The server rate is for parameters; devices send in round 1 what they send in FedAvg."""
    result, plain = normalised(Scaffold(eta_g=eta_g, option=option)), normalised("fedavg")
    assert same_bits(result.weights[-7:], plain.weights[-7:])
    assert same_bits(result.weights, plain.weights) is (eta_g == 1)


def test_only_plain_steps_can_be_counted() -> None:
    with pytest.raises(UserError, match=r"train\.optimiser: 'adam'"):
        simulated("scaffold", optimiser="adam")
