"""IDA: the identities of its card, and its pitfalls; its weights beside other methods."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import by_hand
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_autograd import two_layers
from by_hand import Vector, World
from frozen import context
from paired import BATCH, TRAINING, WITH_MOMENTUM, distance, flat, simulated, world
from torch import Tensor, nn
from worlds import (
    ONE_BY_ONE,
    SIZES,
    RecordedFedAvg,
    Upload,
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
from remanence.core.message import Message
from remanence.core.method import Method, Network
from remanence.core.state import State
from remanence.core.vector import FlatModel
from remanence.data.samples import Samples
from remanence.errors import UserError
from remanence.measure.storage import state_bytes
from remanence.methods.fedavg import FedAvg
from remanence.parts.merge.inverse_distance import InverseDistance, inverses
from remanence.simulation import Simulation

# The card's three devices.
MODELS = ((0.0, 0.0), (2.0, 0.0), (0.0, 4.0))
SAMPLES, ACCURACIES, CLASSES = (100, 300, 600), (0.9, 0.5, 0.01), 62
CARD: dict[str, tuple[dict[str, Any], tuple[float, ...], tuple[float, ...]]] = {
    "l2": ({}, (0.428652, 0.338879, 0.232469), (0.677758, 0.929876)),
    "l1": ({"norm": "l1"}, (0.425532, 0.319149, 0.255319), (0.638298, 1.021277)),
    "intrac": ({"times": "intrac"}, (0.030595, 0.043538, 0.925867), (0.087076, 3.703468)),
    "fedavg": ({"times": "samples"}, (0.150928, 0.357958, 0.491114), (0.715916, 1.964456)),
}


class Told(InverseDistance):
    """Devices tell the card's accuracies, whatever they reach."""

    def report(self, net: FlatModel, data: Samples, dev: State, ctx: Context) -> Mapping[str, Any]:
        return {"accuracy": ACCURACIES[ctx.device]} if self.times == "intrac" else {}


def sending(models: Sequence[Sequence[float]]) -> Method:
    """Devices send these vectors, whatever they trained; what is missing at their end is 0."""

    class Sending(FedAvg):
        def up(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> Message:
            net.w.zero_()
            net.w[: len(models[ctx.device])] = torch.tensor(models[ctx.device])
            return super().up(net, message, data, dev, ctx)

    return Sending()


def sent(models: Sequence[Sequence[float]], merge: Any, sizes: Sequence[int] = SAMPLES, answers: int = CLASSES) -> Any:
    width = len(models[0])
    devices = [slope_device(*[0.0] * width, samples=samples) for samples in sizes]
    model = vector_model(*[0.0] * width, answers=answers)
    return remanence.simulate(sending(models), model=model, devices=devices, merge=merge, engine=ONE_BY_ONE)


@pytest.mark.parametrize("case", CARD)
def test_the_example(case: str) -> None:
    options, alpha, model = CARD[case]
    result = sent(MODELS, Told(**options))
    assert near(result.weights[:2], *model)
    assert near(result.history[0]["largest_weight"], max(alpha))
    assert near(shares(MODELS, SAMPLES, ACCURACIES, **options), *alpha)


def shares(
    models: Any, n: Sequence[int] = (), accuracies: Sequence[float] = (), idle: int = 0, **options: Any
) -> Tensor:
    """alpha_k as the server works them out; `idle`: numbers of a model that are no trainable parameters."""
    rows = torch.as_tensor(models)
    net = FlatModel(vector_model(*[0.0] * (rows.shape[1] - idle)))
    messages = {
        k: Message(w=row, n=n[k] if n else 1, accuracy=accuracies[k] if accuracies else 1.0)
        for k, row in enumerate(rows)
    }
    ctx = Context(**{**vars(context(classes=CLASSES)), "net": net})
    weights = InverseDistance(**options).weigh(messages, ctx)
    assert weights.dtype == torch.float64
    return weights / weights.sum()


def test_accuracies_alone() -> None:
    """Of models that are all alike, whose distances count for 1 each: v normalised."""
    assert near(shares([(1.0, 2.0)] * 3, SAMPLES, ACCURACIES, times="intrac"), 0.017065, 0.030717, 0.952218)


def test_below_chance_counts_as_chance() -> None:
    same, none = ([(1.0, 2.0)] * 2, (1, 1))
    assert near(shares(same, none, (0.0, 1.0), times="intrac"), 62 / 63, 1 / 63)
    assert near(shares(same, none, (0.0, 1 / 62), times="intrac"), 0.5, 0.5)


def test_distances_of_the_example() -> None:
    mean = np.mean(MODELS, axis=0)
    assert near(mean, 0.666667, 1.333333)
    away = [np.subtract(model, mean) for model in MODELS]
    assert near([np.linalg.norm(a) for a in away], 1.490712, 1.885618, 2.748737)
    assert near([np.abs(a).sum() for a in away], 2.0, 2.666667, 3.333333)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_mean_weighted_by_samples(norm: str) -> None:
    mean = np.average(MODELS, axis=0, weights=SAMPLES)
    u = 1 / np.linalg.norm(np.subtract(MODELS, mean), ord=int(norm[1]), axis=1)
    assert near(shares(MODELS, SAMPLES, center="weighted", norm=norm), *(u / u.sum()).tolist())


def random_models(seed: int, count: int = 6, width: int = 40) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("times", ["one", "intrac", "samples"])
def test_weights_are_positive_and_their_sum_is_one(times: str, norm: str) -> None:
    alpha = shares(random_models(1), range(1, 7), [k / 6 for k in range(6)], times=times, norm=norm)
    assert float(alpha.min()) > 0
    assert near(alpha.sum(), 1.0, within=1e-12)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_what_changes_no_weight(norm: str) -> None:
    """One vector added to all, or a common scale."""
    models, plain = random_models(2), shares(random_models(2), norm=norm, eps=1e-300)
    moved = shares(models + random_models(3, 1), norm=norm, eps=1e-300)
    scaled = shares(1000 * models, norm=norm, eps=1e-300)
    assert near(moved, *plain.tolist(), within=1e-12)
    assert near(scaled, *plain.tolist(), within=1e-12)
    assert near(shares(models, norm=norm), *plain.tolist(), within=1e-8)


# Equal distances


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize(("times", "same"), [("one", "uniform"), ("samples", "mean")])
@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
def test_two_devices_bit_for_bit(settings: dict[str, Any], times: str, same: str, norm: str) -> None:
    """IDA is then the plain mean, IDA+FedAvg is FedAvg."""
    pairs: dict[str, Any] = {"participation": [[0, 1], [1, 3], [2], [0, 2]], "engine": ONE_BY_ONE}
    result = simulated("ida", {"times": times, "norm": norm}, **settings | pairs)
    assert same_bits(result.weights, simulated("fedavg", merge=same, **settings | pairs).weights)


@pytest.mark.parametrize("options", [options for options, _, _ in CARD.values()], ids=CARD)
@pytest.mark.parametrize("count", [1, 3])
def test_models_that_are_all_alike(options: dict[str, Any], count: int) -> None:
    result = sent([(0.3, -1.7)] * count, Told(**options), SAMPLES[:count])
    assert near(result.weights[:2], 0.3, -1.7, within=1e-7)


def test_all_alike_with_factors() -> None:
    assert near(shares([(1.0, 2.0)] * 3, SAMPLES, times="samples"), 0.1, 0.3, 0.6)
    assert near(shares([(1.0, 2.0)] * 3), *[1 / 3] * 3)


def test_a_model_that_is_the_mean_takes_almost_all() -> None:
    alpha = shares([(1.0, 0.0), (0.0, 0.0), (-1.0, 0.0)])
    assert near(alpha, 1e-8, 1.0, 1e-8)
    assert float(alpha[0]) > 0


def test_the_small_constant() -> None:
    """eps (1 + ||w_avg||_2), the l2 norm for l1 distances as well."""
    models = ((3.0, 4.0), (5.0, 4.0), (1.0, 4.0))  # mean (3, 4) of norm 5
    expected = np.array([1 / 0.6, 1 / 2.6, 1 / 2.6])
    for norm in ("l1", "l2"):
        assert near(shares(models, eps=0.1, norm=norm), *(expected / expected.sum()).tolist())


@pytest.mark.parametrize("distances", [(0.0, 0.0, 0.0), (5.0, 5.0), (1.0, 1.0 + 1e-13)])
def test_equal_distances_count_for_one(distances: Sequence[float]) -> None:
    assert inverses(torch.tensor(distances, dtype=torch.float64), 1e-8).tolist() == [1.0] * len(distances)


# No defence


@pytest.mark.parametrize("count", [3, 10])
def test_a_model_far_away_keeps_a_weight(count: int) -> None:
    """1 / (1 + (N - 1)^2), 0.0122 of ten: the mean moves with it. What it adds grows with the distance."""
    added = []
    for far in (1e6, 1e8):
        models = random_models(4, count)
        models[0] += far
        alpha = shares(models)
        assert near(alpha[0], 1 / (1 + (count - 1) ** 2), within=1e-5)
        added.append(float(alpha[0]) * far)
    assert count != 10 or near(alpha[0], 0.0122, within=1e-4)
    assert added[1] > 99 * added[0]


# Sums


def test_distances_are_summed_in_float64() -> None:
    """Of 6.6 million parameters, as in FEMNIST's network: l1 would be wrong in the fourth digit."""
    models = torch.full((3, 6_603_710), 0.1)
    models[1] += 1e-4
    models[2] -= 3e-4
    exact = models[:, 0].double()
    away = (exact - exact.mean()).abs()
    expected = (1 / away) / (1 / away).sum()
    for norm in ("l1", "l2"):
        assert near(shares(models, norm=norm, eps=1e-30), *expected.tolist(), within=1e-9)


def test_statistics_are_weighted_like_weights_and_add_no_distance(uploads: list[Upload]) -> None:
    result = remanence.simulate(
        RecordedFedAvg(), model=normalised_model(), devices=classification(), rounds=2, lr=0.3, batches=3,
        merge="inverse-distance", engine=ONE_BY_ONE,
    )  # fmt: skip
    rows = np.stack([flat(upload.content["w"]) for upload in uploads if upload.round == 2])
    expected = alpha_of(rows[:, :-7]) @ rows
    expected[-1] = rows[:, -1].max()  # the counter of batches
    assert distance(result.weights, expected) < 1e-6
    assert distance(result.weights[:-7], (alpha_of(rows) @ rows)[:-7]) > 1e-5


# Rounds, in NumPy


def alpha_of(rows: Vector, norm: str = "l2", factor: Sequence[float] | None = None) -> Vector:
    """u_k times the factor, of a row for each device."""
    away = np.linalg.norm(rows - rows.mean(0), ord=int(norm[1]), axis=1)
    u = np.ones(len(rows)) if np.ptp(away) <= 1e-9 * away.max() else 1 / away
    u = u * np.asarray(1.0 if factor is None else factor)
    return u / u.sum()


def ida(world: World, times: str, norm: str) -> Vector:
    w = world.start
    for round, chosen in enumerate(world.participation, start=1):
        rows = np.stack([by_hand.train(world, k, round, w, by_hand.nothing)[0] for k in chosen])
        factor = [float(len(world.devices[k][1])) for k in chosen] if times == "samples" else None
        w = alpha_of(rows, norm, factor) @ rows
    return w


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("times", ["one", "samples"])
@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
def test_rounds_equal_the_equations(settings: dict[str, Any], times: str, norm: str, engine: dict[str, Any]) -> None:
    result = simulated("ida", {"times": times, "norm": norm}, engine=engine, **settings)
    expected = ida(world(**settings), times, norm)
    assert distance(result.weights, expected) < 1e-5
    assert distance(result.weights, by_hand.fedavg(world(**settings))) > 1e-3


# The training accuracy


class Noting(InverseDistance):
    """Notes what devices tell."""

    def arrive(self, upload: Message, ctx: Context) -> Mapping[str, Any]:
        NOTED.append(upload["accuracy"])
        return super().arrive(upload, ctx)


NOTED: list[float] = []


def noted(method: Any = "fedavg", intrac_eval: str = "running", **settings: Any) -> list[float]:
    NOTED.clear()
    training: dict[str, Any] = {"model": softmax_model(), "participation": [[0, 1, 2, 3]], "epochs": 3, "lr": 0.3}
    training |= {"devices": classification(), "batches": shuffled_batches(SIZES, BATCH), "engine": ONE_BY_ONE}
    remanence.simulate(method, merge=Noting(times="intrac", intrac_eval=intrac_eval), **training | settings)
    return list(NOTED)


def by_counting(epochs: int, lr: float) -> tuple[list[float], list[float]]:
    """Running accuracy of the last epoch, before each step, and the accuracy after training."""
    batches, running, full = shuffled_batches(SIZES, BATCH), [], []
    for device, (x, y) in enumerate(classification()):
        model = softmax_model()
        for epoch in range(1, epochs + 1):
            right = 0
            for ids in batches(device, 1, epoch):
                logits = model(x[ids])
                right += int((logits.argmax(1) == y[ids]).sum())
                model.zero_grad()
                F.cross_entropy(logits, y[ids]).backward()
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter -= lr * parameter.grad
        running.append(right / len(y))
        full.append(float((model(x).argmax(1) == y).double().mean()))
    return running, full


def test_training_accuracy() -> None:
    running, full = by_counting(3, 0.3)
    assert noted() == running
    assert noted(intrac_eval="full") == full
    assert running != full
    assert running != by_counting(1, 0.3)[0]


STANDING: dict[str, Any] = {
    "fedavg": {},
    "fedprox": {"mu": 0.1},
    "fedmmd": {"compare": "features"},
    "fedmmd, logits": {},
    "moon": {"mu": 1.0},
    "fedntd": {},
    "fedpsd": {},
    "fedga": {},
}


@pytest.mark.parametrize("name", STANDING)
def test_training_accuracy_with_any_method(name: str) -> None:
    """Where steps are too small to change anything, it is that of the model received."""
    model = two_layers()
    expected = [float((model(x).argmax(1) == y).double().mean()) for x, y in classification()]
    method, _, _ = name.partition(",")
    for intrac_eval in ("running", "full"):
        assert near(noted(method, intrac_eval, options=STANDING[name], model=two_layers(), lr=1e-30), *expected)


def test_training_accuracy_where_the_last_epoch_is_empty() -> None:
    """Then the last one that had a step."""

    def first_only(device: int, round: int, epoch: int) -> list[Tensor]:
        return [torch.arange(3)] if epoch == 1 else []

    expected = [float((softmax_model()(x[:3]).argmax(1) == y[:3]).double().mean()) for x, y in classification()]
    assert noted(batches=first_only) == expected


@pytest.mark.parametrize("intrac_eval", ["running", "full"])
def test_rounds_with_accuracies(intrac_eval: str, uploads: list[Upload]) -> None:
    accuracies = by_counting(2, 0.3)[intrac_eval == "full"]
    result = simulated(
        RecordedFedAvg(), merge={"name": "inverse-distance", "times": "intrac", "intrac_eval": intrac_eval},
        engine=ONE_BY_ONE, participation=[[0, 1, 2, 3]], lr=0.3,
    )  # fmt: skip
    rows = np.stack([flat(upload.content["w"]) for upload in uploads])
    expected = alpha_of(rows, factor=[1 / max(1 / 3, accuracy) for accuracy in accuracies]) @ rows
    assert distance(result.weights, expected) < 1e-6


@pytest.mark.parametrize("accuracy", [90.0, -0.1, 1.0001])
def test_an_accuracy_in_percent_is_refused(accuracy: float) -> None:
    """It would count for nothing, whatever the floor."""

    class Loud(InverseDistance):
        def report(self, net: FlatModel, data: Samples, dev: State, ctx: Context) -> Mapping[str, Any]:
            return {"accuracy": accuracy if ctx.device == 1 else 0.5}

    result = sent(MODELS, Loud(times="intrac"))
    assert result.history[0]["refused"] == {"1": f"'accuracy' is {accuracy}, not between 0 and 1"}
    assert result.history[0]["counted"] == [0, 2]


# Traffic, state, options


@pytest.mark.parametrize(("times", "more"), [("one", False), ("samples", False), ("intrac", True)])
def test_traffic(times: str, more: bool) -> None:
    """One number more, with its name, where accuracies are told."""
    result, plain = simulated("ida", {"times": times}, engine=ONE_BY_ONE), simulated("fedavg", engine=ONE_BY_ONE)
    w = plain.weights
    extra = Message(w=w, n=1, accuracy=0.5).size() - Message(w=w, n=1).size() if more else 0
    for ours, theirs in zip(result.history, plain.history, strict=True):
        assert ours["bytes_down"] == theirs["bytes_down"]
        assert ours["bytes_up"] == theirs["bytes_up"] + extra * len(ours["counted"])
    assert not any(result.device_state[device] for device in result.device_state)
    assert not result.server_state


def test_devices_hold_nothing_more() -> None:
    settings: dict[str, Any] = {"model": softmax_model(), "devices": classification(), "engine": ONE_BY_ONE}
    ida, plain = (state_bytes(played(planned(name, **settings))) for name in ("ida", "fedavg"))
    assert ida == plain


@pytest.mark.parametrize("times", ["one", "intrac"])
def test_beside_other_methods(times: str) -> None:
    settings: dict[str, Any] = {"merge": {"name": "inverse-distance", "times": times}, "engine": ONE_BY_ONE}
    for method in ("scaffold", "fedpsd", "fedcm"):
        result: Simulation = simulated(method, **settings)
        assert bool(result.weights.isfinite().all())
        assert all(0 < event["largest_weight"] < 1 for event in result.history)


def test_two_ways_to_set_the_weights_are_refused() -> None:
    with pytest.raises(UserError, match="merge\\.name: 'inverse-distance' is not allowed with fednova"):
        simulated("fednova", merge="inverse-distance")


def test_a_weight_that_is_one_half_of_two() -> None:
    assert math.isclose(simulated("ida", participation=[[0, 1]]).history[0]["largest_weight"], 0.5)


def test_defaults() -> None:
    plan = planned("ida", model=softmax_model(), devices=classification())
    assert plan.merge == InverseDistance(times="one", norm="l2", center="plain", eps=1e-8, intrac_eval="running")
    assert isinstance(plan.task.method, FedAvg)


@pytest.mark.parametrize("options", [{"eps": 0.0}, {"norm": "l3"}, {"times": "accuracy"}, {"center": "global"}])
def test_options_have_ranges(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        planned("ida", options, model=softmax_model(), devices=classification())


def test_a_stack_is_not_watched() -> None:
    """So INTRAC trains one by one, the others may stack."""
    model: nn.Module = softmax_model()
    for times, stacked in (("one", True), ("samples", True), ("intrac", False)):
        result = remanence.simulate("ida", {"times": times}, model=model, devices=classification())
        assert result.engine.startswith("cohort") is stacked
