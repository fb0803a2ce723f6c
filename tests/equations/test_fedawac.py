"""FedAWAC: the identities of its card, and its pitfalls; its weights and its window beside other methods."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import by_hand
import numpy as np
import pytest
import torch
from by_hand import Vector, World
from paired import TRAINING, WITH_MOMENTUM, distance, flat, simulated, world
from torch import Tensor, nn
from worlds import (
    ONE_BY_ONE,
    Recorded,
    RecordedFedAvg,
    RecordedScaffold,
    Upload,
    classification,
    near,
    normalised_model,
    planned,
    played,
    same_bits,
    scalar_model,
    slope_device,
    softmax_model,
)

import remanence
from remanence.config import parse
from remanence.core.context import Context
from remanence.core.federation import Federation
from remanence.core.message import Message
from remanence.core.method import Method, Network
from remanence.core.parts import Merge
from remanence.core.plan import Plan
from remanence.core.state import State, equal
from remanence.core.vector import FlatModel
from remanence.data.datasets import load_dataset
from remanence.data.samples import Samples
from remanence.engine.memory import one_thread
from remanence.errors import UserError
from remanence.experiment import prepare
from remanence.measure.storage import state_bytes
from remanence.methods.fedavg import FedAvg
from remanence.methods.fedprox import FedProx
from remanence.methods.fedpsd import FedPSD
from remanence.parts.merge import consistency
from remanence.parts.merge.consistency import Consistency, capped, variances
from remanence.registry import parts
from remanence.runs.devices import DeviceStates
from remanence.simulation import Simulation

PROCESSES: dict[str, Any] = {"cohort": "off", "workers": 2}

# The card's three devices: logits of four classes on two samples.
LOGITS = torch.tensor(
    [
        [[4.0, 0.0, 0.0, 0.0], [2.0, 2.0, 0.0, 0.0]],
        [[1.0, 1.0, 1.0, 1.0], [3.0, 1.0, 0.0, 0.0]],
        [[2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0]],
    ]
)
SCALARS = (1.0, 2.0, 4.0)
ALPHA = (0.553846, 0.230769, 0.215385)
LAST = (0.571429, 0.214286, 0.214286)
TEN_TIMES = (0.987751, 0.007335, 0.004914)
EYE, EYE_AND_ZERO = torch.eye(2), torch.cat([torch.eye(2), torch.zeros(1, 2)])


class Shown(nn.Module):
    """Answers W x without a bias; idle numbers beside it show what every device counts for."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Parameter(torch.zeros(1 + len(LOGITS)))
        self.layer = nn.Linear(2, LOGITS.shape[2], bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def sending(vector: Callable[[Context], Tensor], received: list[Tensor] | None = None) -> Method:
    """Devices send what they are told, whatever they trained."""

    class Sending(FedAvg):
        def begin(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> None:
            super().begin(net, message, data, dev, ctx)
            if received is not None and ctx.device >= 0:  # not the server's rehearsal
                received.append(message["w"].clone())

        def up(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> Message:
            if ctx.device >= 0:
                net.load(vector(ctx))
            return super().up(net, message, data, dev, ctx)

    return Sending()


def shown(logits: Tensor, device: int) -> Tensor:
    """The vector of a `Shown` model with these logits on the rows of `EYE`; its idle numbers: scalar, one-hot."""
    one_hot = torch.eye(len(logits))[device]
    return torch.cat([torch.tensor([SCALARS[device]]), one_hot, logits[device].T.reshape(-1)])


def card(logits: Tensor = LOGITS, public: Tensor = EYE, **merge: Any) -> Simulation:
    """One round with devices of different sizes, which must not matter."""
    devices = [slope_device(0.5, -0.5, samples=samples) for samples in (5, 1, 3)]
    return remanence.simulate(
        sending(lambda ctx: shown(logits, ctx.device)), model=Shown(), devices=devices, public=public,
        merge={"name": "consistency", **merge}, engine=ONE_BY_ONE,
    )  # fmt: skip


def weights(result: Simulation) -> Tensor:
    return result.weights[1:4]


def scaled(device: int, factor: float) -> Tensor:
    logits = LOGITS.clone()
    logits[device] *= factor
    return logits


@pytest.mark.parametrize("score_on", ["server", "device"])
@pytest.mark.parametrize(("reduce", "expected"), [("mean_of_ratios", ALPHA), ("normalise_last", LAST)])
def test_the_example(reduce: str, expected: Sequence[float], score_on: str) -> None:
    result = card(reduce=reduce, score_on=score_on)
    assert near(weights(result), *expected)
    assert near(weights(result).sum(), 1.0)
    assert near(result.history[0]["largest_weight"], max(expected))


def test_variances_of_the_example() -> None:
    net = FlatModel(Shown())
    for device, expected in enumerate([(3.0, 1.0), (0.0, 1.5), (0.75, 0.75)]):
        net.load(shown(LOGITS, device))
        assert near(variances(net, EYE), *expected)


@pytest.mark.parametrize(("sample", "expected"), [(0, (0.8, 0.0, 0.2)), (1, (0.307692, 0.461538, 0.230769))])
def test_shares_of_one_sample(sample: int, expected: Sequence[float]) -> None:
    assert near(weights(card(public=EYE[sample : sample + 1])), *expected)


def test_the_mean_is_not_divided_by_the_devices_again() -> None:
    merged = float(card().weights[0])
    assert near(merged, 1.876923)
    assert near(merged / 3, 0.625641)  # as Eq. 8 is printed
    assert near(sum(SCALARS) / 3, 2.333333)  # were all alike


SAME: dict[str, Tensor] = {
    "a constant for one device": LOGITS + torch.tensor([0.0, 5.0, 0.0]).view(3, 1, 1),
    "a constant for each": LOGITS + torch.tensor([1.0, -2.0, 3.0]).view(3, 1, 1),
    "a factor for all": 7 * LOGITS,
}


@pytest.mark.parametrize("change", SAME)
@pytest.mark.parametrize(("reduce", "expected"), [("mean_of_ratios", ALPHA), ("normalise_last", LAST)])
def test_what_changes_no_weight(change: str, reduce: str, expected: Sequence[float]) -> None:
    assert near(weights(card(SAME[change], reduce=reduce)), *expected)


def test_a_factor_for_one_device_changes_its_weight() -> None:
    assert near(weights(card(scaled(0, 10))), *TEN_TIMES)


@pytest.mark.parametrize("device", range(3))
def test_an_over_confident_device_gains_weight_up_to_the_cap(device: int) -> None:
    usual, loud = weights(card()), scaled(device, 100)
    free, bounded = card(loud), card(loud, cap=0.4)
    assert float(weights(free)[device]) > float(usual[device]) + 0.2
    assert near(free.history[0]["largest_weight"], float(weights(free)[device]))
    assert near(bounded.history[0]["largest_weight"], 0.4, within=1e-12)
    assert near(weights(bounded)[device], 0.4)
    assert near(weights(bounded).sum(), 1.0)


@pytest.mark.parametrize("cap", [1.0, 0.8, 0.5, 0.4, 0.35])
@pytest.mark.parametrize("given", [ALPHA, TEN_TIMES, (0.2, 0.5, 0.3), (1.0, 0.0, 0.0)])
def test_the_cap_moves_only_what_is_above_it(given: Sequence[float], cap: float) -> None:
    shares = torch.tensor(given, dtype=torch.float64)
    shares /= shares.sum()
    after = capped(shares, cap)
    assert near(after.sum(), 1.0, within=1e-12)
    assert float(after.max()) <= cap + 1e-12
    free = after < cap - 1e-12
    assert near(after[free] * shares[free].sum(), *(shares[free] * after[free].sum()).tolist(), within=1e-12)
    assert float(shares.max()) > cap or same_bits(after, shares)


@pytest.mark.parametrize("cap", [1 / 3, 0.2])
def test_a_cap_that_leaves_no_choice_makes_all_alike(cap: float) -> None:
    assert near(weights(card(cap=cap)), 1 / 3, 1 / 3, 1 / 3)


def test_a_cap_for_those_without_any_share() -> None:
    assert near(capped(torch.tensor([1.0, 0.0, 0.0]).double(), 0.5), 0.5, 0.25, 0.25, within=0.0)


def test_models_that_agree_stay_as_they_are() -> None:
    same = torch.randn(4 + 8, generator=torch.Generator().manual_seed(3))
    devices = [slope_device(0.5, -0.5, samples=samples) for samples in (5, 1, 3)]
    result = remanence.simulate(
        sending(lambda ctx: same), model=Shown(), devices=devices, public=EYE, merge="consistency", engine=ONE_BY_ONE
    )
    assert same_bits(result.weights, same)


@pytest.mark.parametrize("reduce", ["mean_of_ratios", "normalise_last"])
@pytest.mark.parametrize("constant", [0.0, 2.5])
def test_constant_logits_make_all_alike(constant: float, reduce: str) -> None:
    assert near(weights(card(torch.full_like(LOGITS, constant), reduce=reduce)), 1 / 3, 1 / 3, 1 / 3)


@pytest.mark.parametrize(
    ("reduce", "expected"), [("mean_of_ratios", (0.480342, 0.264957, 0.254701)), ("normalise_last", LAST)]
)
def test_one_sample_on_which_nobody_varies(reduce: str, expected: Sequence[float]) -> None:
    """Every model answers 0 on the sample 0."""
    assert near(weights(card(public=EYE_AND_ZERO, reduce=reduce)), *expected)


@pytest.mark.parametrize("score_on", ["server", "device"])
@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [(float("nan"), "'w' is not finite"), (float("inf"), "'w' is not finite"), (1e30, "'scores' is not finite")],
)
def test_what_is_not_finite_is_refused_and_the_others_share(spoilt: float, reason: str, score_on: str) -> None:
    """Also a finite model whose logits are too large for their variance. The others: (3/3.75 + 1/1.75)/2."""
    logits = LOGITS.clone()
    logits[1, :, 0] = spoilt
    result = card(logits, score_on=score_on)
    assert result.history[0]["refused"] == {"1": reason}
    assert near(weights(result), 0.685714, 0.0, 0.314286)


def test_a_refused_upload_is_not_scored() -> None:
    logits = scaled(1, float("nan"))
    with mock.patch.object(consistency, "variances", side_effect=variances) as scoring:
        card(logits)
    assert scoring.call_count == 2


def stochastic_model() -> nn.Module:
    return nn.Sequential(*normalised_model(), nn.Dropout(0.5))


def test_scoring_is_in_evaluation_mode_and_changes_nothing() -> None:
    net, x = FlatModel(stochastic_model()), torch.randn(9, 4, generator=torch.Generator().manual_seed(2))
    net.train()
    before, one, other = net.copy(), variances(net, x), variances(net, x)
    assert same_bits(one, other)
    assert same_bits(net.copy(), before)
    with torch.no_grad():
        assert near(one, *net.module.eval()(x).var(1, correction=0).tolist(), within=0.0)


def test_more_samples_than_one_batch() -> None:
    net, x = FlatModel(softmax_model()), torch.randn(1203, 4, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        assert near(variances(net, x), *net(x).var(1, correction=0).tolist())


# ---- the equations, in NumPy

PUBLIC = torch.randn(7, 4, generator=torch.Generator().manual_seed(5)) * 2
WITH_GAP: dict[str, Any] = {"participation": [[0, 1, 2, 3], [1, 3], [], [0, 2, 3], [], [1, 2], [0, 1, 3]]}


def answers(w: Vector) -> Vector:
    return PUBLIC.double().numpy() @ w[:12].reshape(3, 4).T + w[12:]


def shares(logits: Vector, reduce: str = "mean_of_ratios") -> Vector:
    """alpha_k from the logits of devices x samples x classes."""
    s = logits.var(2)
    if reduce == "normalise_last":
        return s.mean(1) / s.mean(1).sum()
    return (s / s.sum(0)).mean(1)


def integrated(window: Sequence[Vector], models: int) -> Vector:
    return np.mean(window[-models:], axis=0) if len(window) >= models else window[-1]


def fedawac(world: World, mu: float, models: int, reduce: str) -> Vector:
    sent, window = world.start, []
    for round, chosen in enumerate(world.participation, start=1):
        if not chosen:
            continue
        local = [by_hand.train(world, k, round, sent, lambda w, a=sent: mu * (w - a))[0] for k in chosen]
        alpha = shares(np.stack([answers(w) for w in local]), reduce)
        window.append(alpha @ np.stack(local))
        sent = integrated(window, models)
    return sent


@pytest.mark.parametrize("reduce", ["mean_of_ratios", "normalise_last"])
@pytest.mark.parametrize("models", [1, 2, 3])
@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM, WITH_GAP], ids=["plain", "momentum-and-decay", "gaps"])
def test_rounds_equal_the_equations(settings: dict[str, Any], models: int, reduce: str, engine: dict[str, Any]) -> None:
    """The anchor is what was received: the mean of the window, not the newest aggregate."""
    options = {"mu": 0.5, "models": models, "reduce": reduce}
    result = simulated("fedawac", options, public=PUBLIC, engine=engine, **settings)
    assert distance(result.weights, fedawac(world(**settings), **options)) < 1e-6


def test_the_proximal_term_and_the_weights_matter() -> None:
    """Otherwise the test above would show little."""
    base = fedawac(world(), 0.5, 2, "mean_of_ratios")
    for other in (fedawac(world(), 0.0, 2, "mean_of_ratios"), fedawac(world(), 0.5, 2, "normalise_last")):
        assert float(np.abs(base - other).max()) > 1e-4


def test_defaults() -> None:
    plan = planned("fedawac", model=softmax_model(), devices=classification(), public=PUBLIC, rounds=5)
    assert plan.task.method == FedProx(mu=0.01)
    assert plan.merge == Consistency(reduce="mean_of_ratios", score_on="server", cap=1.0)
    assert plan.optimise == parts["optimise"].create("window", {"models": 5, "include_init": False})


class Offset(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tensor([0.0, 1.0, 3.0])


def offset_model() -> nn.Module:
    """On samples of zeros every model gives the same three logits."""
    layer = nn.Linear(4, 3, bias=False)
    with torch.no_grad():
        layer.weight.copy_(softmax_model()[0].weight)
    return nn.Sequential(layer, Offset())


class Alike(Consistency):
    def weigh(self, messages: Any, ctx: Context) -> Tensor:
        return torch.full((len(messages),), 1 / len(messages), dtype=torch.float64)


@pytest.mark.parametrize("merge", ["consistency", Alike()], ids=["equal variances", "set to 1/K"])
@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
def test_equal_variances_are_fedavg_with_uniform_weights(settings: dict[str, Any], merge: str | Merge) -> None:
    chosen = settings | {
        "model": offset_model(), "devices": classification(), "rounds": 4, "batches": 3, "engine": ONE_BY_ONE
    }  # fmt: skip
    window = {"name": "window", "models": 1}
    result = remanence.simulate(
        "fedprox", {"mu": 0.0}, merge=merge, optimise=window, public=torch.zeros(2, 4), **chosen
    )
    assert same_bits(result.weights, remanence.simulate("fedavg", merge="uniform", **chosen).weights)
    assert not same_bits(result.weights, remanence.simulate("fedavg", **chosen).weights)


# ---- the window

AGGREGATES = (10.0, 12.0, 11.0, 14.0, 13.0, 16.0, 9.0, 1.0)
START = 5.0
SENT: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {
    "five": ({}, (START, 10.0, 12.0, 11.0, 14.0, 12.0, 13.2, 12.6)),
    "two": ({"models": 2}, (START, 10.0, 11.0, 11.5, 12.5, 13.5, 14.5, 12.5)),
    "one": ({"models": 1}, (START, *AGGREGATES[:7])),
    "with the start": ({"include_init": True}, (START, 10.0, 12.0, 11.0, 10.4, 12.0, 13.2, 12.6)),
    "two with the start": ({"models": 2, "include_init": True}, (START, 7.5, 11.0, 11.5, 12.5, 13.5, 14.5, 12.5)),
    "one with the start": ({"models": 1, "include_init": True}, (START, *AGGREGATES[:7])),
}


def windowed(received: list[Tensor], participation: Sequence[Sequence[int]] = ((0,),) * 8, **window: Any) -> Plan:
    """Device 0 sends the card's aggregates one after another."""

    def next_aggregate(ctx: Context) -> Tensor:
        return torch.tensor([AGGREGATES[len(received) - 1], 0.0])

    return planned(
        sending(next_aggregate, received), model=scalar_model(START), devices=[slope_device(1.0)],
        rounds=len(participation), participation=participation, engine=ONE_BY_ONE,
        optimise={"name": "window", **window},
    )  # fmt: skip


@pytest.mark.parametrize("case", SENT)
def test_the_window_of_the_example(case: str) -> None:
    """What is reported after a round is what is sent in the next."""
    window, expected = SENT[case]
    received: list[Tensor] = []
    reported: list[float] = []
    with one_thread(), Federation(windowed(received, **window)) as federation:
        for event in federation.play():
            reported.append(float(federation.w[0]))
            kept = [float(w[0]) for w in federation.optimiser["models"]]
            assert len(kept) == min(event["round"] + window.get("include_init", False), window.get("models", 5))
            assert kept[-1] == AGGREGATES[event["round"] - 1]
    assert near([float(w[0]) for w in received], *expected)
    assert near(reported[:-1], *expected[1:])


def test_rounds_without_survivors_do_not_count() -> None:
    """Aggregates 10, 12, 11, 14, 13 with gaps between them: 14 is sent until the fifth is there."""
    received: list[Tensor] = []
    table = [[], [0], [0], [], [0], [0], [], [0], []]
    with one_thread(), Federation(windowed(received, table)) as federation:
        reported = [float(federation.w[0]) for _ in federation.play()]
    assert near(reported, START, 10.0, 12.0, 12.0, 11.0, 14.0, 14.0, 12.0, 12.0)
    assert near([float(w[0]) for w in received], START, 10.0, 12.0, 11.0, 14.0)


def buffered(merge: Any, models: int) -> Simulation:
    method = RecordedFedAvg()
    return remanence.simulate(
        method, model=normalised_model(), devices=classification(), public=PUBLIC, rounds=3, lr=0.3, batches=3,
        merge=merge, optimise={"name": "window", "models": models}, engine=ONE_BY_ONE,
    )  # fmt: skip


def sent_in(uploads: Sequence[Upload], round: int) -> Vector:
    return np.stack([flat(upload.content["w"]) for upload in uploads if upload.round == round])


def test_statistics_are_weighted_like_weights(uploads: list[Upload]) -> None:
    result = buffered("consistency", 1)
    net, logits = FlatModel(normalised_model()), []
    net.train(False)
    for upload in uploads[-4:]:
        net.load(upload.content["w"])
        logits.append(net(PUBLIC).detach().double().numpy())
    expected = shares(np.stack(logits)) @ sent_in(uploads, 3)
    expected[-1] = sent_in(uploads, 3)[:, -1].max()  # the counter of batches
    assert distance(result.weights, expected) < 1e-6


def test_statistics_are_not_averaged_over_rounds(uploads: list[Upload]) -> None:
    result = buffered("uniform", 3)
    means = [sent_in(uploads, round).mean(0) for round in (1, 2, 3)]
    expected = np.concatenate([np.mean(means, axis=0)[:-7], means[2][-7:-1], [sent_in(uploads, 3)[:, -1].max()]])
    assert distance(result.weights, expected) < 1e-6
    assert {len(model) for model in result.server_state["optimise"]["models"]} == {len(expected) - 7}


SIGNS = (3.0, -1.0, 2.0, -1.0)


def signed(models: int) -> Simulation:
    """A positive model is right about class 0, which has two of three samples, a negative one about class 1."""
    return remanence.simulate(
        sending(lambda ctx: torch.tensor([SIGNS[ctx.round - 1], 0.0])), model=scalar_model(1.0),
        devices=[slope_device(1.0)], test=(torch.ones(3, 1), torch.tensor([0, 0, 1])), rounds=4,
        optimise={"name": "window", "models": models}, engine=ONE_BY_ONE,
    )  # fmt: skip


def test_both_models_are_measured_when_the_window_is_full() -> None:
    """Means 3, 1, 0.5, 0.5 forget nothing; the aggregates behind them forget class 0."""
    result = signed(2)
    assert ["raw" in event for event in result.history] == [False, True, True, True]
    assert near([event["accuracy"] for event in result.history], *[2 / 3] * 4)
    assert near([event["raw"]["accuracy"] for event in result.history[1:]], 1 / 3, 2 / 3, 1 / 3)
    assert [event["raw"]["per_class"] for event in result.history[1:]] == [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    summary = result.summary
    assert near([summary["accuracy"], summary["forgetting"]], 2 / 3, 0.0)
    assert near([summary["accuracy_raw"], summary["forgetting_raw"]], 1 / 3, 0.5)
    assert near(summary["forgetting_raw_clamped"], 0.5)


def test_a_window_of_one_has_no_second_model() -> None:
    result = signed(1)
    assert not any("raw" in event for event in result.history)
    assert not {"accuracy_raw", "forgetting_raw"} & set(result.summary)
    assert near([result.summary["accuracy"], result.summary["forgetting"]], 1 / 3, 0.5)


# ---- beside other methods


class RecordedFedPSD(Recorded, FedPSD):
    pass


OBJECTIVES: dict[str, Method] = {
    "fedavg": RecordedFedAvg(),
    "fedpsd": RecordedFedPSD(),
    "scaffold": RecordedScaffold(),
    "scaffold, option I": RecordedScaffold(option="I"),
}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("score_on", ["server", "device"])
def test_the_server_does_the_same_for_any_objective(objective: str, score_on: str, uploads: list[Upload]) -> None:
    merge, window = {"name": "consistency", "score_on": score_on}, {"name": "window", "models": 3}
    result = simulated(OBJECTIVES[objective], merge=merge, optimise=window, public=PUBLIC, engine=ONE_BY_ONE)
    aggregates = []
    for event in result.history:
        rows = sent_in(uploads, event["round"])
        alpha = shares(np.stack([answers(row) for row in rows]))
        aggregates.append(alpha @ rows)
        assert near(event["largest_weight"], float(alpha.max()))
    assert distance(result.weights, integrated(aggregates, 3)) < 1e-6


def test_control_variates_stay_consistent() -> None:
    result = simulated("scaffold", merge="consistency", optimise={"name": "window", "models": 2}, public=PUBLIC)
    own = torch.stack([result.device_state[device]["c"] for device in result.device_state])
    assert float((own.mean(0) - result.server_state["c"]).abs().max()) < 1e-5


@pytest.mark.parametrize("engine", [ONE_BY_ONE, PROCESSES], ids=["one-by-one", "processes"])
@pytest.mark.parametrize("method", ["fedprox", "fedpsd", "scaffold"])
@pytest.mark.parametrize("reduce", ["mean_of_ratios", "normalise_last"])
def test_devices_score_as_the_server_does(method: str, reduce: str, engine: dict[str, Any]) -> None:
    results = [
        simulated(
            method, merge={"name": "consistency", "score_on": score_on, "reduce": reduce}, public=PUBLIC,
            optimise={"name": "window", "models": 2}, engine=engine,
        )
        for score_on in ("server", "device")
    ]  # fmt: skip
    one, other = results
    assert same_bits(one.weights, other.weights)
    largest = [[event["largest_weight"] for event in result.history] for result in results]
    assert largest[0] == largest[1]


def test_the_largest_weight_is_in_every_event(engine: dict[str, Any]) -> None:
    options = {"models": 2}
    result = simulated("fedawac", options, public=PUBLIC, engine=engine | {"lost": 0.4}, seed=2, **WITH_GAP)
    for event in result.history:
        counted = len(event["counted"])
        assert (event["largest_weight"] is None) is (counted == 0)
        assert not counted or 1 / counted - 1e-9 <= event["largest_weight"] <= 1


@pytest.mark.parametrize("score_on", ["server", "device"])
def test_what_scoring_adds_to_the_traffic(score_on: str) -> None:
    """Samples go down until an upload of the device has counted, a number for each goes up every time."""
    options = {"models": 2, "score_on": score_on}
    settings = {"participation": [[0, 1, 2, 3]] * 5, "engine": ONE_BY_ONE | {"lost": 0.4}, "seed": 4}
    result = simulated("fedawac", options, public=PUBLIC, **settings)
    w, more = result.weights, score_on == "device"
    plain_up = Message(w=w, n=1)
    up = Message(plain_up, scores=torch.zeros(len(PUBLIC))).size() if more else plain_up.size()
    down, supplied = Message(w=w).size(), Message(w=w, public=PUBLIC).size()
    known: set[int] = set()
    for event in result.history:
        new = set(event["selected"]) - known if more else set()
        assert event["bytes_down"] == down * 4 + (supplied - down) * len(new)
        assert event["bytes_up"] == up * len(event["counted"])
        known |= set(event["counted"])
    assert 0 < sum(len(event["refused"]) for event in result.history) < 20


def test_what_is_kept_where() -> None:
    for score_on in ("server", "device"):
        options = {"models": 3, "merge": {"name": "consistency", "score_on": score_on}}
        federation = played(images(rounds=4, **options))
        model, public = federation.w.nbytes, 5 * 16 * 4
        kept = state_bytes(federation)
        assert kept["server"] == 4 * model + public
        assert kept["device_kept"] == (public if score_on == "device" else 0)


def images(rounds: int, models: int, merge: Any) -> Plan:
    generator = torch.Generator().manual_seed(8)
    devices = [(torch.randn(4, 1, 4, 4, generator=generator), torch.tensor([0, 1, 2, 1])) for _ in range(3)]
    layer = nn.Conv2d(1, 2, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(2, 1, 3, 3, generator=generator))
        layer.bias.zero_()
    model = nn.Sequential(layer, nn.Flatten(), softmax_model(8))
    return planned(
        "fedprox", model=model, devices=devices, public=torch.randn(5, 1, 4, 4, generator=generator), rounds=rounds,
        merge=merge, optimise={"name": "window", "models": models}, engine=ONE_BY_ONE,
    )  # fmt: skip


def test_devices_may_keep_their_samples_in_files(tmp_path: Path) -> None:
    plan = images(rounds=4, models=2, merge={"name": "consistency", "score_on": "device"})
    with one_thread(), Federation(plan, DeviceStates(tmp_path, limit=0)) as federation:
        events = list(federation.play())
    in_memory = played(plan)
    assert events[-1]["bytes_down"] < events[0]["bytes_down"]
    assert {path.suffix for path in tmp_path.iterdir()} == {".safetensors"}
    assert same_bits(federation.w, in_memory.w)
    assert equal(federation.states.get(0), in_memory.states.get(0))


# ---- what is refused, before the first round

REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "window": ("fedawac", {"public": PUBLIC, "rounds": 4}, r"optimise\.models: 5 .* 4 rounds"),
    "window alone": ("fedpsd", {"optimise": "window", "rounds": 4}, r"optimise\.models: 5 .* 4 rounds"),
    "samples": ("fedawac", {"rounds": 5}, "public: consistency needs unlabelled samples"),
    "samples of the part": ("fedpsd", {"merge": "consistency"}, "public: consistency needs unlabelled samples"),
    "two weightings": ("fednova", {"merge": "consistency", "public": PUBLIC}, r"merge\.name: 'consistency' .* fednova"),
    "another merge": ("fedawac", {"merge": "uniform", "public": PUBLIC, "rounds": 5}, "merge: 'uniform'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_the_first_round(case: str) -> None:
    method, settings, message = REFUSED[case]
    with pytest.raises(UserError, match=message):
        planned(method, model=softmax_model(), devices=classification(), **settings)


@pytest.mark.parametrize("options", [{"cap": 0.0}, {"cap": 1.5}, {"models": 0}, {"mu": -1.0}, {"reduce": "mean"}])
def test_options_have_ranges(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        planned("fedawac", options, model=softmax_model(), devices=classification(), public=PUBLIC, rounds=5)


def test_an_experiment_without_public_samples_is_refused() -> None:
    with pytest.raises(UserError, match=r"data\.public: 0 is not allowed with consistency"):
        parse({"method": "fedawac", "rounds": 5})


def rows(*parts: Samples) -> list[bytes]:
    return sorted(row.tobytes() for part in parts for row in part.flat.numpy())


def test_public_samples_come_from_the_training_set_without_labels() -> None:
    """As many of every class as its share, none of them left on a device, none from the test set."""
    tree = {"method": "fedawac", "rounds": 5, "data": {"name": "digits", "public": 60}, "devices": {"count": 10}}
    plan = prepare(parse(tree)).plan
    dataset, public = load_dataset("digits", None, {}), plan.task.context.public
    train = dataset.prepare(dataset.train)
    owner = dict(zip([row.tobytes() for row in train.flat.numpy()], train.y.tolist(), strict=True))
    taken = np.bincount([owner[row] for row in rows(public)], minlength=dataset.classes)
    assert set(public.y.tolist()) == {-1}
    assert taken.sum() == 60
    assert np.abs(taken - 60 * train.counts.numpy() / len(train)).max() <= 1
    assert rows(public, *map(plan.task.fleet.samples, range(10))) == rows(train)
    assert rows(plan.task.test) == rows(dataset.prepare(dataset.test))
