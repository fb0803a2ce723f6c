"""What a run measures: the definitions and examples of the metrics card."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from by_autograd import two_layers
from torch import Tensor, nn
from worlds import (
    ONE_BY_ONE,
    Device,
    RecordedFedAvg,
    SlopeFedAvg,
    Upload,
    classification,
    near,
    normalised_model,
    planned,
    played,
    same_bits,
    slope_device,
    softmax_model,
    vector_model,
)

import remanence
from remanence.core.context import Context
from remanence.core.method import Network
from remanence.core.state import State, equal
from remanence.core.vector import FlatModel
from remanence.data.samples import Batch, Samples
from remanence.measure.accuracy import count_correct, device_accuracies, per_class, per_task
from remanence.measure.forgetting import forgetting
from remanence.measure.participation import gini, participation_counts
from remanence.measure.record import digest
from remanence.measure.storage import state_bytes
from remanence.methods.fedavg import FedAvg
from remanence.methods.fedpsd import FedPSD
from remanence.simulation import Simulation

# Section 1 and 2: accuracy


def test_accuracy_counts_the_whole_test_set(engine: dict[str, Any]) -> None:
    """Unequal classes: the share of all samples, not the mean of the classes."""
    result, (x, y) = classified(engine=engine)
    answers = result.model(x).argmax(1)
    assert result.summary["accuracy"] == int((answers == y).sum()) / len(y)
    classes = [float((answers[y == c] == c).float().mean()) for c in range(3)]
    assert near(result.summary["per_class"], *classes)
    assert abs(result.summary["accuracy"] - np.mean(classes)) > 0.01


def classified(**settings: Any) -> tuple[Simulation, tuple[Tensor, Tensor]]:
    """A few rounds on skewed devices, tested on unequal classes."""
    test = classification((37,))[0]
    chosen: dict[str, Any] = {"rounds": 4, "epochs": 3, "lr": 0.5, "method": "fedavg"} | settings
    result = remanence.simulate(model=softmax_model(), devices=classification((20, 30, 10)), test=test, **chosen)
    return result, test


def test_the_first_class_wins_ties() -> None:
    x, y = torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])
    net = FlatModel(softmax_model())
    net.load(torch.zeros_like(net.w))
    assert count_correct(net, Samples(x, y, 3))[0].tolist() == [2, 0, 0]


def test_measured_in_evaluation_mode() -> None:
    """Dropout is off, and batch normalisation uses, and leaves, its running statistics."""
    model = nn.Sequential(normalised_model(), nn.Dropout(0.9))
    x, y = classification((50,))[0]
    net = FlatModel(model)
    before = net.copy()
    first, second = (count_correct(net, Samples(x, y, 3)) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert first[1] == second[1]
    assert same_bits(net.copy(), before)
    answers = model.eval()(x).argmax(1)
    assert int(first[0].sum()) == int((answers == y).sum())


def test_a_sample_does_not_depend_on_how_the_set_is_cut() -> None:
    x, y = classification((1203,))[0]
    net, samples = FlatModel(softmax_model()), Samples(x, y, 3)
    pieces = [count_correct(net, samples, start, start + 500)[0] for start in (0, 500)]
    rest = count_correct(net, samples, 1000)[0]
    assert torch.equal(sum(pieces, rest), count_correct(net, samples)[0])


def test_headline_is_the_last_round() -> None:
    result, _ = classified(rounds=14)
    curve = [event["accuracy"] for event in result.history]
    assert len(curve) == 14
    assert len(set(curve)) > 2
    assert result.summary["accuracy"] == curve[-1]
    assert result.summary["accuracy_best"] == max(curve)
    assert near(result.summary["accuracy_last10"], float(np.mean(curve[-10:])), within=1e-12)


def test_the_last_ten_are_rounds_not_measurements() -> None:
    result, _ = classified(rounds=14, measure={"every": 3})
    curve = {event["round"]: event["accuracy"] for event in result.history if "accuracy" in event}
    assert sorted(curve) == [3, 6, 9, 12, 14]
    assert len(set(curve.values())) > 1
    expected = np.mean([curve[round] for round in (6, 9, 12, 14)])
    assert near(result.summary["accuracy_last10"], float(expected), within=1e-12)


def test_the_last_round_is_always_measured() -> None:
    result, _ = classified(rounds=5, measure={"every": 2})
    assert [event["round"] for event in result.history if "accuracy" in event] == [2, 4, 5]


def test_a_class_without_test_samples_has_no_accuracy() -> None:
    assert per_class(torch.tensor([3, 0, 0]), torch.tensor([4, 0, 2])) == [0.75, None, 0.0]
    assert per_task(torch.tensor([3, 0, 0]), torch.tensor([4, 0, 2]), [(0, 1), (1,), (0, 2)]) == [
        0.75,
        None,
        0.5,
    ]


def test_missing_classes_are_left_out_of_every_mean(engine: dict[str, Any], uploads: list[Upload]) -> None:
    """A test set without class 1: F and the devices' accuracies are means over the other two."""
    x, y = (part[classification((60,))[0][1] != 1] for part in classification((60,))[0])
    settings: dict[str, Any] = {"model": softmax_model(), "devices": classification((20, 30, 10))}
    result = remanence.simulate(RecordedFedAvg(), test=(x, y), rounds=3, lr=0.5, engine=engine, **settings)
    table = [event["per_class"] for event in result.history]
    assert all(row[1] is None for row in table)
    present = np.array([[row[0], row[2]] for row in table])
    assert near(result.summary["forgetting"], float((present[:-1].max(0) - present[-1]).mean()))
    own = [own_class_accuracies(u.content["w"], x, y)[[0, 2]] for u in uploads if u.round == 3]
    assert near(result.summary["client_acc_global"], float(np.mean(own)))


def own_class_accuracies(w: Tensor, x: Tensor, y: Tensor) -> np.ndarray:
    """Of a softmax model, by hand; NaN for a class that is not in y."""
    answers = (x.double() @ w[:12].double().view(3, 4).T + w[12:].double()).argmax(1)
    hits = [(answers[y == c] == c).double() for c in range(3)]
    return np.array([float(hit.mean()) if len(hit) else float("nan") for hit in hits])


class Diverging(FedAvg):
    def step(self, w: Tensor, merged: Any, srv: State, ctx: Context) -> Tensor:
        return merged["w"] * (float("inf") if ctx.round == 2 else 1.0)  # type: ignore[no-any-return]


def test_a_diverged_model_is_flagged_at_chance() -> None:
    result, _ = classified(method=Diverging(), rounds=3)
    assert result.summary["diverged"] is True
    assert [event.get("diverged", False) for event in result.history] == [False, True, True]
    assert near(result.summary["accuracy"], 1 / 3)


def test_a_diverged_model_does_not_invent_missing_classes() -> None:
    x, y = (part[classification((60,))[0][1] != 1] for part in classification((60,))[0])
    settings: dict[str, Any] = {"model": softmax_model(), "devices": classification((20, 30, 10))}
    result = remanence.simulate(Diverging(), test=(x, y), rounds=2, **settings)
    assert np.isfinite(result.summary["forgetting"])
    assert result.summary["per_class"][1] is None


# Section 3: forgetting


def test_forgetting_example() -> None:
    history = list(zip((0.2, 0.6, 0.5, 0.3), (0.5, 0.4, 0.7, 0.8), strict=True))
    as_printed, clamped = forgetting(history)
    assert near([as_printed, clamped], 0.10, 0.15, within=1e-12)


def test_forgetting_of_one_round_is_not_defined() -> None:
    assert forgetting([]) == (None, None)
    assert forgetting([[0.5, 0.5]]) == (None, None)
    result, _ = classified(rounds=1)
    assert result.summary["forgetting"] is None
    assert result.summary["forgetting_clamped"] is None


def random_history(seed: int, rounds: int = 12, classes: int = 5) -> list[list[float]]:
    rows: list[list[float]] = np.random.default_rng(seed).random((rounds, classes)).tolist()
    return rows


@pytest.mark.parametrize("seed", range(10))
def test_forgetting_identities(seed: int) -> None:
    history = random_history(seed)
    table = np.array(history)
    as_printed, clamped = forgetting(history)
    assert as_printed is not None
    assert clamped is not None
    assert -1 <= as_printed <= clamped <= 1
    assert near(clamped, float((table.max(0) - table[-1]).mean()), within=1e-12)  # t = T in the maximum
    means = table.mean(1)
    assert as_printed >= means[:-1].max() - means[-1] - 1e-12
    sparser, _ = forgetting([*history[1:-1:2], history[-1]])
    assert sparser is not None
    assert sparser <= as_printed


def test_forgetting_can_be_negative_and_is_not_rounded() -> None:
    assert near(forgetting([[0.0, 0.0], [1.0, 1.0]]), -1.0, 0.0, within=0.0)
    assert near(forgetting([[1.0], [0.0]]), 1.0, 1.0, within=0.0)
    assert near(forgetting([[0.30000001], [0.3]]), 1e-8, 1e-8, within=1e-15)


def test_forgetting_leaves_missing_classes_out() -> None:
    assert near(forgetting([[0.6, None, 0.4], [0.3, None, 0.8]]), -0.05, 0.15, within=1e-12)
    assert forgetting([[None], [None]]) == (None, None)


def test_forgetting_is_that_of_the_measured_rounds() -> None:
    result, _ = classified(rounds=8)
    history = [event["per_class"] for event in result.history]
    assert (result.summary["forgetting"], result.summary["forgetting_clamped"]) == forgetting(history)
    assert forgetting(history)[1] != 0


# Section 4: the devices' own models


def test_device_accuracies_example() -> None:
    measured = device_accuracies([0.9, 0.6, 0.0, 0.0], np.array([0.5, 0.5, 0.0, 0.0]))
    assert near(measured, 0.375, 0.75, 0.25, within=1e-12)


def test_device_accuracies_agree_for_an_even_mix() -> None:
    values = np.random.default_rng(0).random(6)
    assert near(device_accuracies(values.tolist(), np.full(6, 1 / 6)), *[values.mean()] * 3, within=1e-12)


def test_device_accuracies_leave_missing_classes_out() -> None:
    measured = device_accuracies([0.9, None, 0.3], np.array([0.25, 0.5, 0.25]))
    assert near(measured, 0.6, 0.6, 0.6, within=1e-12)


def test_devices_are_measured_before_they_are_merged(engine: dict[str, Any], uploads: list[Upload]) -> None:
    settings: dict[str, Any] = {"method": RecordedFedAvg(), "rounds": 3, "measure": {"devices": 1}}
    result, (x, y) = classified(participation=[[0, 1], [2, 1], [0, 2]], engine=engine, **settings)
    shares = [np.bincount(labels, minlength=3) / len(labels) for _, labels in classification((20, 30, 10))]
    for event in result.history:
        sent = {u.device: u.content["w"] for u in uploads if u.round == event["round"]}
        assert sorted(sent) == event["counted"]
        rows = [by_definition(own_class_accuracies(w, x, y), shares[device]) for device, w in sent.items()]
        names = ("client_acc_global", "client_acc_local", "client_acc_out")
        assert near([event[name] for name in names], *np.mean(rows, axis=0))
        assert near(event["client_acc_global_std"], float(np.std([row[0] for row in rows], ddof=1)))
    assert result.summary["client_acc_global"] == result.history[-1]["client_acc_global"]


def by_definition(classes: np.ndarray, q: np.ndarray) -> tuple[float, float, float]:
    return classes.mean(), (q * classes).sum(), ((1 - q) / (len(q) - 1) * classes).sum()


def test_devices_that_know_only_their_classes_reach_their_share(engine: dict[str, Any]) -> None:
    """Two of four classes each: 1/2 on the whole test set, all of their own mix, nothing outside."""
    x = 5 * torch.eye(4).repeat(10, 1)
    y = torch.arange(4).repeat(10)
    devices = [(x[y // 2 == half], y[y // 2 == half]) for half in (0, 1)]
    model = softmax_model(4, 4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    result = remanence.simulate("fedavg", model=model, devices=devices, test=(x, y), epochs=50, engine=engine)
    last = result.history[-1]
    assert near([last["client_acc_global"], last["client_acc_local"], last["client_acc_out"]], 0.5, 1.0, 1 / 3)


def test_device_accuracies_of_nothing_are_not_defined() -> None:
    """No test sample of a class that the device has, or outside of these, or at all."""
    one_class = np.array([0.0, 1.0, 0.0])
    assert near_or_none(device_accuracies([0.9, None, 0.3], one_class), (0.6, None, 0.6))
    assert near_or_none(device_accuracies([None, 0.7, None], one_class), (0.7, 0.7, None))
    assert device_accuracies([None, None, None], np.full(3, 1 / 3)) == (None, None, None)


def near_or_none(values: Sequence[float | None], expected: Sequence[float | None]) -> bool:
    return all(
        value is None if wanted is None else value is not None and near(value, wanted, within=1e-12)
        for value, wanted in zip(values, expected, strict=True)
    )


def without_class(missing: int, samples: int = 60) -> Device:
    x, y = classification((samples,))[0]
    return x[y != missing], y[y != missing]


def single_classes(*labels: int, samples: int = 10) -> list[Device]:
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(samples, 4, generator=generator), torch.full((samples,), label)) for label in labels]


def test_an_undefined_device_leaves_the_others_mean_alone(engine: dict[str, Any], uploads: list[Upload]) -> None:
    """Devices 1 and 3 hold nothing but class 1, of which there is no test sample."""
    x, y = without_class(1)
    mixed, single = classification((20, 30)), single_classes(1, 1)
    result = remanence.simulate(
        RecordedFedAvg(), model=softmax_model(), devices=[mixed[0], single[0], mixed[1], single[1]], test=(x, y),
        lr=0.5, engine=engine,
    )  # fmt: skip
    event, sent = result.history[0], {upload.device: upload.content["w"] for upload in uploads}
    accuracies = {device: own_class_accuracies(w, x, y)[[0, 2]] for device, w in sent.items()}
    local = []
    for device, (_, labels) in ((0, mixed[0]), (2, mixed[1])):
        q = np.bincount(labels, minlength=3)[[0, 2]]
        local.append(float((q * accuracies[device]).sum() / q.sum()))
    assert near(event["client_acc_local"], float(np.mean(local)))
    assert near(event["client_acc_local_weighted"], float(np.average(local, weights=[20, 30])))
    assert near(event["client_acc_local_std"], float(np.std(local, ddof=1)))
    assert near(event["client_acc_global"], float(np.mean([accuracies[device].mean() for device in range(4)])))
    assert event["client_acc_out"] is not None


def test_nothing_is_known_where_every_device_is_undefined(engine: dict[str, Any]) -> None:
    result = remanence.simulate(
        model=softmax_model(), devices=single_classes(1, 1), test=without_class(1), engine=engine
    )
    event = result.history[0]
    assert [event[f"client_acc_local{ending}"] for ending in ("", "_weighted", "_std")] == [None] * 3
    assert result.summary["client_acc_local"] is None
    assert event["client_acc_global"] == event["client_acc_out"] is not None


def test_means_by_samples_and_deviations(engine: dict[str, Any], uploads: list[Upload]) -> None:
    result, (x, y) = classified(method=RecordedFedAvg(), rounds=1, engine=engine)
    sizes = [20, 30, 10]
    shares = [np.bincount(labels, minlength=3) / len(labels) for _, labels in classification(sizes)]
    sent = {upload.device: upload.content["w"] for upload in uploads}
    rows = np.array([by_definition(own_class_accuracies(sent[k], x, y), shares[k]) for k in range(3)])
    event = result.history[0]
    for name, values in zip(("client_acc_global", "client_acc_local", "client_acc_out"), rows.T, strict=True):
        assert near(event[name], float(values.mean()))
        assert near(event[f"{name}_weighted"], float(np.average(values, weights=sizes)))
        assert near(event[f"{name}_std"], float(values.std(ddof=1)))
        assert abs(event[name] - event[f"{name}_weighted"]) > 1e-4


def test_one_device_has_no_deviation(engine: dict[str, Any]) -> None:
    settings = {"participation": [[1]], "engine": engine if engine == ONE_BY_ONE else {}}
    event = classified(rounds=1, **settings)[0].history[0]
    for name in ("client_acc_global", "client_acc_local", "client_acc_out"):
        assert event[f"{name}_std"] is None
        assert event[f"{name}_weighted"] == event[name]


# What every device would make of the model

ASKED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "fedavg": ("fedavg", {}, {}),
    "scaffold": ("scaffold", {}, {}),
    "moon": ("moon", {}, {}),
    "fedpsd": ("fedpsd", {}, {}),
    "fedcurv": ("fedcurv", {}, {}),
    "fedcm": ("fedcm", {}, {}),
    "fedawac": ("fedawac", {"models": 2}, {"merge": {"name": "consistency", "score_on": "device"}}),
}


def asked(method: str, every: int, **settings: Any) -> Simulation:
    name, options, parts = ASKED[method]
    chosen: dict[str, Any] = {"rounds": 4, "epochs": 2, "batches": 3, "lr": 0.1, "lr_decay": 0.5, "momentum": 0.0}
    return remanence.simulate(
        name, options, model=two_layers(), devices=classification((20, 30, 10, 15)), test=classification((37,))[0],
        public=torch.randn(5, 4, generator=torch.Generator().manual_seed(1)), measure={"all": every, "devices": 1},
        **chosen | parts | settings,
    )  # fmt: skip


@pytest.mark.parametrize("method", ASKED)
@pytest.mark.parametrize("every", [1, 2])
def test_asking_every_device_changes_nothing(method: str, every: int) -> None:
    """Not a bit of weights and states, and no other fact."""
    settings: dict[str, Any] = {"participation": [[0, 1], [1, 2], [3], [0, 2]]}
    for engine in (ONE_BY_ONE, {"cohort": "auto", "workers": 1}):
        plain, more = (asked(method, number, engine=engine, **settings) for number in (0, every))
        assert [event["round"] for event in more.history if "client_acc_all" in event] == [*range(every, 5, every)]
        for event in more.history:
            event.pop("client_acc_all", None)
        assert more.history == plain.history
        assert same_bits(more.weights, plain.weights)
        assert equal(more.server_state, plain.server_state)
        assert all(equal(more.device_state[k], plain.device_state[k]) for k in range(4))


@pytest.mark.parametrize("method", ASKED)
def test_every_device_is_asked_what_the_next_round_would_bring(method: str) -> None:
    """Where everyone takes part, the throw-away copies of a round are the devices' own models of the next."""
    result = asked(method, 1, engine=ONE_BY_ONE)
    told = [event["client_acc_all"] for event in result.history]
    assert told[:-1] == [event["client_acc_global"] for event in result.history[1:]]
    assert len(set(told)) > 1


def test_every_device_is_asked_in_workers_as_in_this_process() -> None:
    one, two = (asked("scaffold", 2, engine={"cohort": "off", "workers": workers}) for workers in (1, 2))
    assert one.history == two.history


def test_asking_after_the_last_round_stays_within_the_schedule() -> None:
    """FedPSD's alpha = t/T is a share: beyond 1 its targets would be negative, and their logarithm not a number."""
    finite: list[bool] = []

    class Watched(FedPSD):
        def loss(self, net: Network, batch: Batch, dev: State, ctx: Context) -> Tensor:
            losses = super().loss(net, batch, dev, ctx)
            finite.append(bool(losses.isfinite().all()))
            return losses

    remanence.simulate(
        Watched(), model=softmax_model(), devices=classification((20, 30, 10)), test=classification((37,))[0], rounds=4,
        epochs=3, lr=0.5, measure={"all": 2}, engine=ONE_BY_ONE,
    )  # fmt: skip
    assert all(finite)


def test_nobody_can_be_asked() -> None:
    """Every device holds one sample, on which batch normalisation cannot train."""
    result = remanence.simulate(
        model=normalised_model(), devices=classification((1, 1)), test=classification((37,))[0], measure={"all": 1}
    )
    assert result.history[0].get("client_acc_all") is None


# Participation


def test_participation_is_counted_by_uploads() -> None:
    assert participation_counts([[0, 2], [2], [], [2, 1]], 4).tolist() == [1, 1, 3, 0]
    silent = slope_device(1.0, samples=1)[0][:0], torch.empty(0, dtype=torch.int64)
    devices = [slope_device(1.0), silent, slope_device(1.0)]
    result = remanence.simulate(
        SlopeFedAvg(), model=vector_model(0.0), devices=devices, rounds=2, participation=[[0, 1], [0, 1, 2]]
    )
    assert result.summary["participation"]["least"] == 0
    assert result.summary["participation"]["most"] == 2
    assert near(result.summary["participation"]["gini"], gini(np.array([2, 0, 1])), within=0.0)
    assert result.summary["refused"] == 2


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((3, 3, 3, 3), 0.0), ((0, 0, 0, 8), 0.75), ((1, 2, 3, 4), 0.25), ((4, 1, 3, 2), 0.25), ((0, 0), 0.0)],
)
def test_gini(counts: tuple[int, ...], expected: float) -> None:
    assert near(gini(np.array(counts)), expected, within=1e-12)


def test_gini_is_the_mean_difference() -> None:
    counts = np.random.default_rng(0).integers(0, 20, 15)
    differences = np.abs(counts[:, None] - counts[None, :]).mean()
    assert near(gini(counts), differences / (2 * counts.mean()), within=1e-12)


# Section 6: storage, in multiples of the model


WIDE = (250, 30)  # features, classes: a model beside which the head of a message is small
MODEL_BYTES = 4 * (WIDE[0] * WIDE[1] + WIDE[1])


def storage(method: str, options: dict[str, Any] | None = None, **settings: Any) -> dict[str, float]:
    """In models. A message may exceed its tensors by its head."""
    generator = torch.Generator().manual_seed(1)
    devices = [
        (torch.randn(6, WIDE[0], generator=generator), torch.randint(0, WIDE[1], (6,), generator=generator))
        for _ in range(3)
    ]
    plan = planned(method, options, model=softmax_model(*WIDE), devices=devices, rounds=2, lr=0.01, **settings)
    measured = {name: value / MODEL_BYTES for name, value in state_bytes(played(plan)).items()}
    for direction in ("down", "up"):
        assert 0 < measured[direction] - round(measured[direction]) < 0.03
        measured[direction] = round(measured[direction])
    return measured


TABLE = {  # server, kept by a device, on a device in training, down, up
    "fedavg": (1, 0, 2, 1, 1),
    "fedprox": (1, 0, 3, 1, 1),
    "fednova": (1, 0, 2, 1, 1),
    "scaffold": (2, 1, 5, 2, 2),
    "fedavgm": (2, 0, 2, 1, 1),
    "fedadagrad": (3, 0, 2, 1, 1),
    "fedadam": (3, 0, 2, 1, 1),
    "fedyogi": (3, 0, 2, 1, 1),
}


@pytest.mark.parametrize("method", TABLE)
@pytest.mark.parametrize(("momentum", "extra"), [(0.0, 0), (0.9, 1)])
def test_storage(method: str, momentum: float, extra: int, engine: dict[str, Any]) -> None:
    server, kept, transient, down, up = TABLE[method]
    measured = storage(method, momentum=momentum, engine=engine)
    expected = (server, kept, transient + extra, down, up)
    names = ("server", "device_kept", "device_transient", "down", "up")
    assert near([measured[name] for name in names], *expected, within=1e-12)


def test_storage_of_terms_that_are_off() -> None:
    assert storage("fedprox", {"mu": 0.0})["device_transient"] == 2
    assert storage("fednova", {"mu": 0.1})["device_transient"] == 3
    assert storage("fedavg", optimiser="adam")["device_transient"] == 4


def test_bytes_of_a_run_are_those_of_its_messages(engine: dict[str, Any]) -> None:
    plan = planned(
        "scaffold", model=softmax_model(), devices=classification(), rounds=3, engine=engine,
        participation=[[0, 1, 2], [1, 3], [0, 1, 2, 3]],
    )  # fmt: skip
    federation = played(plan)
    size = state_bytes(federation)
    down = federation.method.down(federation.w, 0, federation.srv, federation.context(4))
    assert size["down"] == len(down.to_bytes(round=4, device=0, layout=federation.net.layout))
    result = remanence.simulate(
        "scaffold", model=softmax_model(), devices=classification(), rounds=3, engine=engine,
        participation=[[0, 1, 2], [1, 3], [0, 1, 2, 3]],
    )  # fmt: skip
    assert [event["bytes_down"] for event in result.history] == [n * size["down"] for n in (3, 2, 4)]
    assert [event["bytes_up"] for event in result.history] == [n * size["up"] for n in (3, 2, 4)]
    assert result.summary["bytes_up"] == 9 * size["up"]


# Section 7: paired comparisons


def test_methods_are_compared_on_the_same_draws() -> None:
    """Same start, same sampled devices, same batches, whatever the method."""
    settings: dict[str, Any] = {
        "model": softmax_model(), "devices": classification((9, 8, 7, 9, 8, 7)), "rounds": 5,
        "participation": 3, "batches": 3, "seed": 4, "engine": ONE_BY_ONE,
    }  # fmt: skip
    results = [remanence.simulate(method, **settings) for method in ("fedavg", "scaffold", "fednova")]
    selected = [[event["selected"] for event in result.history] for result in results]
    assert selected[0] == selected[1] == selected[2]
    first = {round(result.history[0]["loss"], 9) for result in results}
    assert len(first) == 1
    assert len({digest(result.weights) for result in results}) == 3
