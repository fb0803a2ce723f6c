"""FedPSD: the identities of its card, and its pitfalls."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_hand import Vector, World, by_weights, chances
from paired import TRAINING, WITH_MOMENTUM, distance, flat, simulated, world
from torch import Tensor, nn
from worlds import (
    ONE_BY_ONE,
    SIZES,
    STACKED,
    Device,
    Recorded,
    Upload,
    classification,
    near,
    normalised_model,
    planned,
    played,
    same_bits,
    shuffled_batches,
    softmax_model,
)

import remanence
from remanence.core.context import Context
from remanence.core.federation import Federation
from remanence.core.message import Message
from remanence.core.method import Network
from remanence.core.optimiser import Training
from remanence.core.state import State, equal, size
from remanence.core.vector import FlatModel
from remanence.data.fleet import TensorFleet
from remanence.data.samples import Batch, Samples
from remanence.engine.memory import one_thread
from remanence.errors import UserError
from remanence.methods.fedpsd import FedPSD, divergence
from remanence.simulation import Simulation

OFF: dict[str, Any] = {"rhpk": False, "psd": False, "cll": False}

# The card's sample: logits, label, classes of the device, stored outputs.
Z, LABEL, COUNTS, STORED = (2.0, 1.0, 0.0, -1.0), 1, (30, 10, 0, 10), (0.6, 0.3, 0.05, 0.05)
CALIBRATED, PLAIN = (0.877792, -0.892359, 0.0, 0.014568), (0.643914, -0.763117, 0.087144, 0.032059)
DISTILLED = (0.493914, -0.588117, 0.074644, 0.019559)


class Evaluated(NamedTuple):
    loss: float
    gradient: Tensor  # by the logits
    soft: Tensor  # what the device has stored afterwards

    def minus(self, other: "Evaluated") -> "Evaluated":
        return Evaluated(self.loss - other.loss, self.gradient - other.gradient, self.soft)


def held(counts: Sequence[int]) -> Samples:
    """Samples of the value 1, so that the gradient by the weights is that by the logits."""
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return Samples(torch.ones(len(y), 1), y, len(counts))


def evaluated(
    method: FedPSD,
    z: Sequence[float] = Z,
    label: int = LABEL,
    counts: Sequence[int] = COUNTS,
    stored: Sequence[float] | None = None,
    quarter: int = 1,
) -> Evaluated:
    """One sample in the first epoch of round `quarter` of 4; `stored` is what the device kept for it."""
    net, data = FlatModel(nn.Sequential(nn.Linear(1, len(z), bias=False))), held(counts)
    context = Context(round=quarter, rounds=4, lr=0.1, train=Training(), devices=1, classes=len(z))
    dev: State = {} if stored is None else {"soft": torch.tensor([stored] * len(data))}
    batch = data.batch((data.y == label).nonzero()[0])
    method.begin(net, Message(w=torch.tensor(z)), data, dev, context)
    loss = method.loss(net, batch, dev, context)
    loss.mean().backward()
    return Evaluated(float(loss.detach()), net.g.clone(), dev["soft"][batch.ids[0]])


def distilled(method: FedPSD, **sample: Any) -> Evaluated:
    """L_KD alone."""
    return evaluated(method, stored=STORED, **sample).minus(evaluated(method, **sample))


def test_calibrated_cross_entropy_of_the_example() -> None:
    result = evaluated(FedPSD())
    assert near(result.loss, 2.228958)
    assert near(result.gradient, *CALIBRATED)
    assert near(result.gradient + F.one_hot(torch.tensor(LABEL), 4), 0.877792, 0.107641, 0.0, 0.014568)
    assert float(result.gradient[2]) == 0.0  # the device has no sample of this class


def test_plain_cross_entropy_of_the_example() -> None:
    result = evaluated(FedPSD(cll=False))
    assert near(result.loss, 1.440190)
    assert near(result.gradient, *PLAIN)


@pytest.mark.parametrize("cll", [True, False])
def test_distillation_of_the_example(cll: bool) -> None:
    """Against the outputs without calibration, whatever the cross entropy does."""
    result = distilled(FedPSD(cll=cll))
    assert near(result.loss, 0.774864)
    assert near(result.gradient, *DISTILLED)
    p, target = torch.tensor(Z).softmax(0), torch.tensor([0.15, 0.825, 0.0125, 0.0125])
    assert near(result.gradient, *(p - target).tolist())


def test_total_loss_of_the_example() -> None:
    assert near(evaluated(FedPSD(), stored=STORED).loss, 3.003822)


def test_the_stored_output_is_not_calibrated() -> None:
    for stored in (None, STORED):
        assert near(evaluated(FedPSD(), stored=stored).soft, *torch.tensor(Z).softmax(0).tolist())


def test_alpha_zero_is_the_plain_cross_entropy() -> None:
    result = distilled(FedPSD(), quarter=0)
    assert near(result.loss, 1.440190)
    assert near(result.gradient, *PLAIN)


def test_alpha_one_forgets_the_label() -> None:
    results = [distilled(FedPSD(), label=label, quarter=4) for label in (0, 1, 3)]
    assert near([result.loss for result in results], *[results[0].loss] * 3)
    for result in results:
        assert near(result.gradient, *(torch.tensor(Z).softmax(0) - torch.tensor(STORED)).tolist())


@pytest.mark.parametrize("label", range(4))
def test_an_even_prior_changes_nothing(label: int) -> None:
    even = {"counts": (5, 5, 5, 5), "label": label}
    one, other = evaluated(FedPSD(), **even), evaluated(FedPSD(cll=False), **even)
    assert near(one.loss, other.loss)
    assert near(one.gradient, *other.gradient.tolist())


@pytest.mark.parametrize("quarter", [1, 2, 3, 4])
def test_a_class_the_device_lacks_is_pulled_by_distillation_alone(quarter: int) -> None:
    both = evaluated(FedPSD(), stored=STORED, quarter=quarter)
    assert near(both.gradient[2], 0.087144 - quarter / 4 * STORED[2])


@pytest.mark.parametrize("z", [Z, (-300.0, 300.0, 0.0, 0.0), (1e4, -1e4, 0.0, 1.0)])
def test_a_device_of_one_class_learns_nothing_from_its_labels(z: Sequence[float]) -> None:
    result = evaluated(FedPSD(), z=z, counts=(0, 50, 0, 0))
    assert result.loss == 0.0
    assert near(result.gradient, 0.0, 0.0, 0.0, 0.0, within=0.0)


@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.9, 1.0])
def test_the_target_is_a_distribution(alpha: float) -> None:
    """The gradient is p - H."""
    generator = torch.Generator().manual_seed(1)
    soft, z = torch.randn(50, 5, generator=generator).mul(9).softmax(1), torch.randn(50, 5, generator=generator)
    y = torch.randint(0, 5, (50,), generator=generator)
    z.requires_grad_()
    loss = divergence(soft, y, F.log_softmax(z, 1), alpha)
    assert bool((loss >= -1e-6).all())
    loss.sum().backward()
    target = (F.softmax(z, 1) - z.grad).detach()
    assert float(target.min()) >= -1e-6
    assert near(target.sum(1), *[1.0] * 50, within=2e-6)
    assert near(target.gather(1, y[:, None]) - alpha * soft.gather(1, y[:, None]), *[1 - alpha] * 50, within=2e-6)


def test_certain_outputs_and_targets_stay_finite() -> None:
    soft, z = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[-500.0, 500.0, 0.0]], requires_grad=True)
    loss = divergence(soft, torch.tensor([1]), F.log_softmax(z, 1), 0.5)
    loss.sum().backward()
    assert near(loss.detach(), 500 - np.log(2), within=1e-3)
    assert near(z.grad, -0.5, 0.5, 0.0)


# ---- the card's trajectory

TWO_SAMPLES: list[Device] = [(torch.eye(2), torch.tensor([0, 1]))]


class Step(NamedTuple):
    round: int
    cross_entropy: float
    distillation: float


def zero_model() -> nn.Module:
    layer = nn.Linear(2, 3, bias=False)
    nn.init.zeros_(layer.weight)
    return nn.Sequential(layer)


def calibrated(z: Tensor, y: Tensor, counts: Tensor) -> Tensor:
    """The mean of -log( pi_y e^{z_y} / sum_c pi_c e^{z_c} )."""
    weighted = counts / counts.sum() * z.double().exp()
    return -(weighted.gather(1, y[:, None])[:, 0] / weighted.sum(1)).log().mean()


def trajectory(participation: Sequence[Sequence[int]], **switches: Any) -> tuple[Simulation, list[Step]]:
    """The model is zero at the start of every round."""
    steps: list[Step] = []

    class Zeroed(FedPSD):
        def begin(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> None:
            super().begin(net, message, data, dev, ctx)
            net.load(torch.zeros_like(net.w))
            ctx.scratch["counts"] = data.counts

        def loss(self, net: Network, batch: Batch, dev: State, ctx: Context) -> Tensor:
            losses = super().loss(net, batch, dev, ctx)
            with torch.no_grad():
                cross_entropy = float(calibrated(net(batch.x), batch.y, ctx.scratch["counts"]))
            if ctx.device >= 0:  # not the server's rehearsal
                steps.append(Step(ctx.round, cross_entropy, float(losses.detach().mean()) - cross_entropy))
            return losses

    result = remanence.simulate(
        Zeroed(**switches), model=zero_model(), devices=TWO_SAMPLES, rounds=4, epochs=2, lr=0.5,
        participation=participation, engine=ONE_BY_ONE,
    )  # fmt: skip
    return result, steps


@pytest.mark.parametrize(("first", "early"), [("ce_only", 0.0), ("progressive", 0.443978)])
def test_the_trajectory_of_the_example(first: str, early: float) -> None:
    result, steps = trajectory([[0], [], [0], []], first=first)
    assert [step.round for step in steps] == [1, 1, 3, 3]
    assert near([step.cross_entropy for step in steps[:2]], 0.693147, 0.575939)
    assert near([step.distillation for step in steps[:2]], 0.0, early)
    assert near([step.cross_entropy for step in steps[2:]], 0.693147, 0.542500)
    assert near([step.distillation for step in steps[2:]], 0.083884, 0.024391)
    assert near(result.weights, 0.3060, -0.2665, -0.2665, 0.3060, -0.0395, -0.0395, within=5e-5)


@pytest.mark.parametrize("first", ["ce_only", "progressive"])
def test_the_stored_outputs_of_the_example(first: str) -> None:
    """Those seen before the second step."""
    result, _ = trajectory([[0], [], [], []], first=first)
    assert near(result.device_state[0]["soft"][0], 0.375757, 0.292639, 0.331604)


@pytest.mark.parametrize(("late", "alpha"), [(2, 0.5), (3, 0.75), (4, 1.0)])
def test_the_round_counts_not_the_own_participation(late: int, alpha: float) -> None:
    """Always the second participation, with the same stored outputs; p is 1/3."""
    _, steps = trajectory([[0], *([0] if round == late else [] for round in (2, 3, 4))])
    soft, truth = np.array([0.375757, 0.292639, 0.331604]), np.array([1.0, 0.0, 0.0])
    target = alpha * soft + (1 - alpha) * truth
    assert steps[2].round == late
    assert near(steps[2].distillation, float((target * np.log(3 * target)).sum()), within=2e-6)


# ---- the equations, in NumPy


@dataclasses.dataclass
class Calculation:
    """The card's section 2, word by word."""

    world: World
    rhpk: bool = True
    psd: bool = True
    cll: bool = True
    first: str = "ce_only"
    stored: dict[int, Vector] = dataclasses.field(default_factory=dict)

    def run(self) -> Vector:
        w_g = self.world.start
        for round, chosen in enumerate(self.world.participation, start=1):
            local = [self.device(k, round, w_g) for k in chosen]
            if chosen:
                w_g = sum(p * w for p, w in zip(self.world.shares(chosen), local, strict=True))
        return w_g

    def device(self, k: int, round: int, w: Vector) -> Vector:
        first, v = k not in self.stored, np.zeros_like(w)
        self.stored.setdefault(k, np.zeros((len(self.world.devices[k][1]), self.world.classes)))
        for epoch in range(1, self.world.epochs + 1):
            for ids in self.world.batches(k, round, epoch):
                g = self.gradient(w, k, ids, round, self.distils(epoch, first)) + self.world.weight_decay * w
                v = self.world.momentum * v + g
                w = w - self.world.rate(round) * v
        return w

    def distils(self, epoch: int, first: bool) -> bool:
        if first and self.first == "ce_only":
            return False
        return self.psd if epoch > 1 else self.rhpk and not first

    def gradient(self, w: Vector, k: int, ids: Vector, round: int, distils: bool) -> Vector:
        x, y = self.world.batch(k, ids)
        p, truth, old = chances(w, x, self.world.classes), np.eye(self.world.classes)[y], self.stored[k][ids]
        slope = (self.calibrated(p, k) if self.cll else p) - truth
        if distils:
            alpha, seen = round / len(self.world.participation), old.sum(1, keepdims=True) > 0
            slope = slope + seen * (p - alpha * old - (1 - alpha) * truth)
        self.stored[k][ids] = p
        return by_weights(slope, x)

    def calibrated(self, p: Vector, k: int) -> Vector:
        weighted = np.bincount(self.world.devices[k][1], minlength=self.world.classes) * p
        return weighted / weighted.sum(1, keepdims=True)


VARIANTS: dict[str, dict[str, Any]] = {
    "all": {},
    "progressive": {"first": "progressive"},
    "history": {"psd": False},
    "history-progressive": {"psd": False, "first": "progressive"},
    "self": {"rhpk": False},
    "self-progressive": {"rhpk": False, "first": "progressive"},
    "calibration": {"rhpk": False, "psd": False},
    "distillation": {"cll": False},
    "none": OFF,
}
EVERYONE: dict[str, Any] = {"participation": [[0, 1, 2, 3], [], *[[0, 1, 2, 3]] * 3], "epochs": 3}
MOMENTUM: dict[str, Any] = {"momentum": 0.9, "weight_decay": 0.05, "lr": 0.02, "epochs": 3}


@pytest.mark.parametrize("settings", [{}, EVERYONE, MOMENTUM], ids=["plain", "everyone", "momentum"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_rounds_equal_the_equations(variant: str, settings: dict[str, Any]) -> None:
    """Shuffled batches: outputs are stored by sample, not by position."""
    result = simulated("fedpsd", VARIANTS[variant], engine=ONE_BY_ONE, **settings)
    expected = Calculation(world(**settings), **VARIANTS[variant])
    assert distance(result.weights, expected.run()) < 2e-6
    for device, stored in expected.stored.items():
        assert float(np.abs(result.device_state[device]["soft"].double().numpy() - stored).max()) < 2e-6


def test_every_variant_is_another_method() -> None:
    """Otherwise the test above would show little."""
    ends = [Calculation(world(), **options).run() for options in VARIANTS.values()]
    names = list(VARIANTS)
    for i, one in enumerate(ends):
        for j in range(i):
            same = {names[i], names[j]} == {"history", "history-progressive"}
            assert (float(np.abs(one - ends[j]).max()) < 1e-5) is same


def test_samples_not_seen_before_are_not_distilled() -> None:
    """Round 1 trains on sample 0 alone; in round 2 its divergence is divided by the whole batch."""
    some, every = torch.tensor([0]), torch.tensor([2, 0, 1])
    distilled: list[float] = []

    class Watched(FedPSD):
        def loss(self, net: Network, batch: Batch, dev: State, ctx: Context) -> Tensor:
            losses = super().loss(net, batch, dev, ctx)
            if ctx.device < 0:  # the server's rehearsal
                return losses
            with torch.no_grad():
                distilled.extend((losses - F.cross_entropy(net(batch.x), batch.y, reduction="none")).tolist())
            return losses

    table, samples = [[0], [0], []], (torch.eye(3), torch.tensor([0, 1, 2]))
    result = remanence.simulate(
        Watched(), model=softmax_model(3), devices=[samples], rounds=3, participation=table, lr=0.5,
        batches=lambda device, round, epoch: [some if round == 1 else every], engine=ONE_BY_ONE,
    )  # fmt: skip
    assert near(distilled[:2] + distilled[3:], 0.0, 0.0, 0.0)
    assert distilled[2] > 1e-4
    by_hand = World(
        [tuple(tensor.numpy() for tensor in samples)], flat(*softmax_model(3).parameters()), 3,
        lambda device, round, epoch: [(some if round == 1 else every).numpy()], table, lr=0.5,
    )  # fmt: skip
    assert distance(result.weights, Calculation(by_hand).run()) < 1e-6


# ---- switches off


@pytest.mark.parametrize("first", ["ce_only", "progressive"])
@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
def test_all_switches_off_is_fedavg_bit_for_bit(settings: dict[str, Any], first: str) -> None:
    result = simulated("fedpsd", OFF | {"first": first}, engine=ONE_BY_ONE, **settings)
    assert same_bits(result.weights, simulated("fedavg", engine=ONE_BY_ONE, **settings).weights)


@pytest.mark.parametrize("switch", ["rhpk", "psd", "cll"])
def test_each_switch_matters(switch: str) -> None:
    result = simulated("fedpsd", OFF | {switch: True}, engine=ONE_BY_ONE)
    assert distance(result.weights, Calculation(world(), **OFF).run()) > 1e-4


def normalised(method: str | FedPSD, **settings: Any) -> Simulation:
    chosen: dict[str, Any] = {"rounds": 3, "epochs": 2, "batches": 3} | settings
    return remanence.simulate(
        method, model=normalised_model(), devices=classification(), engine=ONE_BY_ONE, **chosen
    )  # fmt: skip


def test_all_switches_off_is_fedavg_with_buffers() -> None:
    assert same_bits(normalised(FedPSD(**OFF)).weights, normalised("fedavg").weights)


# ---- what a device keeps


def test_outputs_are_those_of_the_training_pass() -> None:
    """With batch statistics, before the step: no further pass in evaluation mode."""
    result, module = normalised(FedPSD(), rounds=1, epochs=1, batches="full"), normalised_model()
    for device, (x, _) in enumerate(classification()):
        with torch.no_grad():
            training, evaluation = module.train()(x).softmax(1), normalised_model().eval()(x).softmax(1)
        kept = result.device_state[device]["soft"]
        assert near(kept, *training.reshape(-1).tolist())
        assert float((kept - evaluation).abs().max()) > 0.01


@pytest.mark.parametrize("options", [{}, OFF, {"first": "progressive"}], ids=["on", "off", "progressive"])
def test_every_sample_is_written_once_per_epoch(options: dict[str, Any]) -> None:
    writes: dict[tuple[int, int, int], list[int]] = {}

    class Watched(FedPSD):
        def loss(self, net: Network, batch: Batch, dev: State, ctx: Context) -> Tensor:
            before = dev["soft"].clone()
            losses = super().loss(net, batch, dev, ctx)
            changed = (dev["soft"] != before).any(1).nonzero()[:, 0].tolist()
            if ctx.device >= 0:  # not the server's rehearsal
                writes.setdefault((ctx.round, ctx.device, ctx.scratch["epoch"]), []).extend(changed)
            return losses

    devices = classification()
    result = remanence.simulate(
        Watched(**options), model=softmax_model(), devices=devices, rounds=2, epochs=3, batches=2, engine=ONE_BY_ONE
    )
    assert len(writes) == 2 * len(devices) * 3
    for (_, device, _), ids in writes.items():
        assert sorted(ids) == list(range(len(devices[device][1])))
    for device, (x, _) in enumerate(devices):
        assert result.device_state[device]["soft"].shape == (len(x), 3)


class RecordedFedPSD(Recorded, FedPSD):
    pass


def test_only_the_model_leaves_the_device(uploads: list[Upload]) -> None:
    """A vector of float32 per sample stays on it."""
    result, plain = simulated(RecordedFedPSD(), engine=ONE_BY_ONE), simulated("fedavg", engine=ONE_BY_ONE)
    assert {tuple(upload.content) for upload in uploads} == {("w", "n")}
    for name in ("bytes_up", "bytes_down"):
        assert [event[name] for event in result.history] == [event[name] for event in plain.history]
    for device, (x, _) in enumerate(classification()):
        assert size(result.device_state[device]) == len(x) * 3 * 4


def test_the_storage_of_the_card() -> None:
    """500 samples of ten classes: 20 kB."""
    devices = [(torch.zeros(500, 4), torch.arange(500) % 10)]
    result = remanence.simulate("fedpsd", model=nn.Sequential(nn.Linear(4, 10)), devices=devices)
    assert size(result.device_state[0]) == 20_000


@pytest.mark.parametrize("lossy", [{"quorum": 0.5}, {"lost": 0.4}], ids=["late", "lost"])
def test_an_upload_that_did_not_count_leaves_the_outputs(lossy: dict[str, Any]) -> None:
    """And a device whose first round did not count has its first round still before it."""
    settings: dict[str, Any] = {"model": softmax_model(), "devices": classification(), "rounds": 6, "seed": 5}
    settings["batches"] = shuffled_batches(SIZES, 3)
    result = remanence.simulate("fedpsd", engine=ONE_BY_ONE | lossy, **settings)
    counted = [event["counted"] for event in result.history]
    assert 0 < sum(map(len, counted)) < 24
    told = remanence.simulate("fedpsd", engine=ONE_BY_ONE, participation=counted, **settings)
    assert same_bits(result.weights, told.weights)
    assert all(equal(result.device_state[device], told.device_state[device]) for device in range(4))


def test_low_precision_keeps_the_prior_exact() -> None:
    """-1e9 does not fit into half precision; weights, logits and outputs stay float32."""
    result = simulated("fedpsd", engine=ONE_BY_ONE | {"precision": "bfloat16"})
    exact = simulated("fedpsd", engine=ONE_BY_ONE)
    assert bool(result.weights.isfinite().all())
    assert {state["soft"].dtype for state in result.device_state.values()} == {torch.float32}
    assert float((result.weights - exact.weights).abs().max()) < 0.1


def test_the_model_answers_without_calibration() -> None:
    """No device has class 2, which the model's biases prefer; it is still what the test finds."""
    layer = nn.Linear(2, 3)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor([0.0, 0.0, 9.0]))
    result = remanence.simulate(
        "fedpsd", model=nn.Sequential(layer), devices=TWO_SAMPLES, lr=0.01, test=(torch.eye(2), torch.tensor([2, 2]))
    )
    assert result.summary["accuracy"] == 1.0
    assert result.summary["client_acc_global"] == 1.0


def test_devices_are_not_stacked() -> None:
    """Their outputs are of their own."""
    with pytest.raises(UserError, match="cohort"):
        simulated("fedpsd", engine=STACKED)


# ---- devices of one class


def fleet(*labels: Sequence[int]) -> list[Device]:
    return [(torch.ones(len(y), 4), torch.tensor(y, dtype=torch.int64)) for y in labels]


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (([0, 1], [2, 2, 2], [1]), ["2 devices hold one class; calibrated, their cross entropy is 0: [1, 2]"]),
        (([0, 1], [], [1, 2]), []),
        (([0, 1, 2], [2, 1]), []),
    ],
    ids=["some", "an empty one", "none"],
)
def test_a_note_about_devices_of_one_class(labels: Sequence[Sequence[int]], told: list[str]) -> None:
    devices = fleet(*labels)
    assert FedPSD().examine(TensorFleet(devices, 3)) == told
    assert planned("fedpsd", model=softmax_model(), devices=devices).notes() == told
    assert FedPSD(cll=False).examine(TensorFleet(devices, 3)) == []


SINGLE = {"all": ([0, 0], [2]), "all that have any": ([0, 0], [], [1])}
NOTES = {
    "all": ["2 devices hold one class; calibrated, their cross entropy is 0: [0, 1]"],
    "all that have any": ["2 devices hold one class; calibrated, their cross entropy is 0: [0, 2]"],
}
DISTILLING = [(True, True), (True, False), (False, True)]


@pytest.mark.parametrize("first", ["ce_only", "progressive"])
@pytest.mark.parametrize("labels", SINGLE)
def test_a_fleet_of_single_classes_is_refused_where_nothing_is_distilled(labels: str, first: str) -> None:
    settings: dict[str, Any] = {"model": softmax_model(), "devices": fleet(*SINGLE[labels])}
    calibrated_alone = OFF | {"cll": True, "first": first}
    with pytest.raises(UserError, match=r"method\.cll: true is not allowed here: every device holds one class"):
        planned("fedpsd", calibrated_alone, **settings)
    plan = planned("fedpsd", OFF | {"first": first}, **settings)
    assert plan.notes() == []
    played(plan)


@pytest.mark.parametrize(("rhpk", "psd"), DISTILLING)
@pytest.mark.parametrize("labels", SINGLE)
def test_a_fleet_of_single_classes_is_a_note_where_something_is_distilled(labels: str, rhpk: bool, psd: bool) -> None:
    plan = planned("fedpsd", {"rhpk": rhpk, "psd": psd}, model=softmax_model(), devices=fleet(*SINGLE[labels]))
    assert plan.notes() == NOTES[labels]
    played(plan)


@pytest.mark.parametrize(("rhpk", "psd"), DISTILLING)
@pytest.mark.parametrize("first", ["ce_only", "progressive"])
def test_distillation_teaches_a_fleet_of_single_classes(first: str, rhpk: bool, psd: bool) -> None:
    """L_KD is not calibrated: it pulls towards the labels, from the first epoch that distils."""
    options = {"rhpk": rhpk, "psd": psd, "first": first}
    plan = planned(
        "fedpsd", options, model=softmax_model(), devices=fleet([0, 0], [2]), rounds=4, epochs=2, engine=ONE_BY_ONE
    )
    with one_thread(), Federation(plan) as federation:
        start, after = federation.w.clone(), []
        for _ in federation.play():
            after.append(federation.w.clone())
    assert same_bits(after[0], start) is not (first == "progressive" and psd)
    assert not same_bits(after[1], after[0])
