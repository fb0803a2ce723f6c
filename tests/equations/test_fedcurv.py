"""FedCurv: the identities of its card, and its pitfalls."""

import copy
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import by_hand
import pytest
import torch
import torch.nn.functional as F
from paired import TRAINING, WITH_MOMENTUM, distance, simulated, world
from torch import Tensor, nn
from worlds import (
    ONE_BY_ONE,
    SIZES,
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
    vector_model,
)

import remanence
from remanence.core.context import Context
from remanence.core.fisher import fisher_per_batch, fisher_per_sample
from remanence.core.method import kept, train_device
from remanence.core.optimiser import Training
from remanence.core.state import State, equal
from remanence.core.vector import FlatModel
from remanence.data.samples import Samples
from remanence.methods.fedcurv import FedCurv
from remanence.simulation import Simulation

NO_DATA = Samples(torch.empty(0, 2), torch.empty(0, dtype=torch.int64), 1)
FULL: dict[str, Any] = {"participation": [[0, 1, 2, 3]]}
GAPS: dict[str, Any] = {"participation": [[], [0, 2], [], [1, 2], [0, 3]]}


class RecordedFedCurv(Recorded, FedCurv):
    pass


def context() -> Context:
    return Context(round=1, rounds=1, lr=0.1, train=Training(), devices=3, classes=3)


def simulated_one_by_one(options: dict[str, Any], **settings: Any) -> Simulation:
    return simulated("fedcurv", options, engine=ONE_BY_ONE, **settings)


# The card's two other devices, F_j and w_j, and where the penalty is looked at.
OTHERS = [(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0])), (torch.tensor([3.0, 1.0]), torch.tensor([2.0, 2.0]))]
HERE = torch.tensor([1.0, 2.0])


def told(*answers: tuple[Tensor, Tensor]) -> State:
    """The server once devices with these F_j and w_j have trained."""
    method, net = FedCurv(), FlatModel(vector_model(*answers[0][1].tolist()))
    srv = method.open_server(net, context())
    for fisher, w in answers:
        method.step(net.w, {"w": w, "du": fisher, "dv": fisher * w}, srv, context())
    return srv


def penalty_gradients(
    w: Tensor, srv: State, own: Sequence[tuple[Tensor, Tensor]], strength: float = 1.0
) -> Iterator[Tensor]:
    """What the penalty adds on devices of one round, whose own last F_k and w_k are these."""
    method, server = FedCurv(strength=strength), context()
    messages = [method.down(w, device, srv, server) for device in range(len(own))]
    for device, (message, (fisher, last)) in enumerate(zip(messages, own, strict=True)):
        net, ctx = FlatModel(vector_model(*w.tolist())), context().on(device, 1, w)
        dev = {"u": fisher, "v": fisher * last}
        method.begin(net, message, NO_DATA, dev, ctx)
        method.grad(net, kept(method, message), dev, ctx)
        yield net.g.clone()


def penalty_gradient(w: Tensor, srv: State, strength: float = 1.0) -> Tensor:
    """On a device that has not taken part yet."""
    nothing = torch.zeros_like(w)
    return next(penalty_gradients(w, srv, [(nothing, nothing)], strength))


def quadratic_form(w: Tensor) -> Tensor:
    return sum(((w - w_j).square() * fisher).sum() for fisher, w_j in OTHERS)  # type: ignore[return-value]


def test_two_others() -> None:
    """The gradient is linear in w, so its mean between 0 and w, times w, is the compact form."""
    srv = told(*OTHERS)
    assert near(srv["U"], 4.0, 3.0)
    assert near(srv["V"], 6.0, 4.0)
    gradient = penalty_gradient(HERE, srv)
    assert near(gradient, -4.0, 4.0)
    at_zero = penalty_gradient(torch.zeros(2), srv)
    compact = ((gradient + at_zero) / 2).dot(HERE)
    constant = quadratic_form(torch.zeros(2))
    assert near(compact, -12.0)
    assert near(constant, 18.0)
    assert near(quadratic_form(HERE), 6.0)
    assert near(compact + constant, 6.0)


def test_both_forms_have_the_same_gradient() -> None:
    w = HERE.clone().requires_grad_()
    quadratic_form(w).backward()
    assert w.grad is not None
    assert near(w.grad, *penalty_gradient(HERE, told(*OTHERS)).tolist())


def test_the_strength_multiplies_without_a_half() -> None:
    assert near(penalty_gradient(HERE, told(*OTHERS), strength=0.25), -1.0, 1.0)


def test_minimiser_of_the_penalty() -> None:
    srv = told(*OTHERS)
    assert near(srv["V"] / srv["U"], 1.5, 4 / 3)
    assert near(penalty_gradient(torch.tensor([1.5, 4 / 3]), srv), 0.0, 0.0)


@pytest.mark.parametrize(("strength", "stable"), [(0.95, True), (1.05, False)])
def test_stable_while_rate_times_curvature_is_below_two(strength: float, stable: bool) -> None:
    """max(U) = 4, rate 0.25: rate * 2 * strength * max(U) is 1.9, or 2.1."""
    srv, w = told(*OTHERS), HERE
    for _ in range(200):
        w = w - 0.25 * penalty_gradient(w, srv, strength)
    assert near(w, 1.5, 4 / 3, within=1e-5) is stable
    assert bool(w.abs().max() > 1e3) is not stable


def test_devices_of_a_round_do_not_share_the_subtraction() -> None:
    """Sum 10, parts 3 and 4: the devices get 7 and 6, not 7 and 3. With all models at 0, the slope at 1 is 2 U."""
    zero, one = torch.zeros(1), torch.ones(1)
    srv = told((torch.tensor([10.0]), zero))
    slopes = penalty_gradients(one, srv, [(torch.tensor([3.0]), zero), (torch.tensor([4.0]), zero)])
    assert near(torch.cat(list(slopes)), 14.0, 12.0)
    assert near(srv["U"], 10.0)


SETTINGS = {"plain": {}, "momentum-and-decay": WITH_MOMENTUM, "gaps": GAPS}
OPTIONS = [{"strength": 0.1}, {"strength": 1.0}, {"strength": 1.0, "fisher": "batch"}]


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_rounds_equal_the_equations(options: dict[str, Any], settings: dict[str, Any]) -> None:
    """Every device that has ever trained pulls, with its latest model; the own part is left out, once."""
    result = simulated_one_by_one(options, **settings)
    expected = by_hand.fedcurv(world(**settings), **options)
    assert distance(result.weights, expected.w) < 2e-6
    assert distance(result.weights, by_hand.fedcurv(world(**settings), 0.0).w) > 1e-3
    for device, fisher in expected.fisher.items():
        assert distance(result.device_state[device]["u"], fisher) < 1e-5
        assert distance(result.device_state[device]["v"], fisher * expected.local[device]) < 1e-5
    assert distance(result.server_state["U"], sum(expected.fisher.values())) < 1e-5


def test_uniform_means_leave_the_sums_alone() -> None:
    """The penalty is a sum over devices, whatever they weigh in the model's mean."""
    result = simulated_one_by_one({"strength": 0.5}, merge="uniform")
    expected = by_hand.fedcurv(world(uniform=True), 0.5)
    assert distance(result.weights, expected.w) < 2e-6
    assert distance(result.server_state["U"], sum(expected.fisher.values())) < 1e-5


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
def test_strength_zero_is_fedavg_bit_for_bit(settings: dict[str, Any], uploads: list[Upload]) -> None:
    result = simulated(RecordedFedCurv(strength=0.0), engine=ONE_BY_ONE, **settings)
    assert same_bits(result.weights, simulated("fedavg", engine=ONE_BY_ONE, **settings).weights)
    assert {tuple(upload.content) for upload in uploads} == {("w", "n", "du", "dv")}
    assert float(result.server_state["U"].max()) > 0.1


def test_no_penalty_in_round_one() -> None:
    result = simulated_one_by_one({"strength": 100.0}, **FULL)
    assert same_bits(result.weights, simulated("fedavg", engine=ONE_BY_ONE, **FULL).weights)


def test_the_first_participant_ever_is_not_pulled() -> None:
    """Nor is it in later rounds, as long as it is the only one: it leaves its own part out."""
    rounds = {"participation": [[], [2], [2], [2], [2]]}
    plain = simulated("fedavg", engine=ONE_BY_ONE, **rounds)
    result = simulated_one_by_one({"strength": 1.0}, **rounds)
    assert float((result.weights - plain.weights).abs().max()) < 1e-6
    first = {"participation": [[], [2]]}
    assert same_bits(
        simulated_one_by_one({"strength": 1.0}, **first).weights,
        simulated("fedavg", engine=ONE_BY_ONE, **first).weights,
    )


def long_run(**settings: Any) -> Simulation:
    """Ten rounds; devices and batches are drawn. Small inputs, since float32 rounds sums above 8 by more than 1e-6."""
    devices = [(x / 3, y) for x, y in classification((*SIZES, 4, 7))]
    return remanence.simulate(
        "fedcurv", {"strength": 0.05}, model=softmax_model(), devices=devices, rounds=10, epochs=2, lr=0.05,
        batches=3, seed=3, **settings,
    )  # fmt: skip


CHANCES: dict[str, dict[str, Any]] = {
    "all": {},
    "half": {"participation": 3},
    "lost": {"engine": {"lost": 0.3}},
    "late": {"engine": {"quorum": 0.5}},
    "half-and-lost": {"participation": 3, "engine": {"lost": 0.3}},
}


@pytest.mark.parametrize("chance", CHANCES)
def test_the_sums_are_those_of_the_devices_after_ten_rounds(chance: str) -> None:
    settings = dict(CHANCES[chance])
    result = long_run(engine=ONE_BY_ONE | settings.pop("engine", {}), **settings)
    for total, own in (("U", "u"), ("V", "v")):
        stored = sum(state[own].double() for state in result.device_state.values())
        assert float((result.server_state[total] - stored).abs().max()) < 1e-6
        assert result.server_state[total].dtype == torch.float64
    assert float(result.server_state["U"].min()) >= 0
    assert float(result.server_state["U"].max()) > 0.1


def test_the_curvature_is_reported() -> None:
    result = long_run(engine=ONE_BY_ONE)
    assert near(result.history[-1]["largest_curvature"], float(result.server_state["U"].max()))


def test_a_round_without_survivors_keeps_the_sums() -> None:
    before = simulated_one_by_one({}, participation=[[0, 1, 2]])
    after = simulated_one_by_one({}, participation=[[0, 1, 2], [], []])
    assert equal(before.server_state, after.server_state)
    assert same_bits(before.weights, after.weights)


@pytest.mark.parametrize("losses", [{"lost": 0.5}, {"quorum": 0.5}], ids=str)
def test_an_upload_that_was_not_counted_does_not_enter_the_sums(losses: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"model": softmax_model(), "devices": classification(), "rounds": 6, "epochs": 2}
    settings |= {"lr": 0.05, "batches": shuffled_batches(SIZES, 3)}
    lossy = remanence.simulate("fedcurv", seed=1, engine=ONE_BY_ONE | losses, **settings)
    counted = [event["counted"] for event in lossy.history]
    assert 0 < sum(map(len, counted)) < 24
    again = remanence.simulate("fedcurv", participation=counted, seed=1, engine=ONE_BY_ONE, **settings)
    assert equal(lossy.server_state, again.server_state)
    assert equal(dict(lossy.device_state), dict(again.device_state))
    assert same_bits(lossy.weights, again.weights)


def started(module: nn.Module) -> nn.Module:
    """Drawn parameters and running statistics."""
    generator = torch.Generator().manual_seed(13)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator) - (0.5 if tensor.requires_grad else 0.0))
    return module


def small_cnn() -> nn.Module:
    """With what differs between training and evaluation, and with a layer that works in place."""
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.5), nn.Linear(27, 3),
    )  # fmt: skip


def partly_frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    module[0].weight.requires_grad_(False)
    return module


MODELS = {
    "softmax": (softmax_model, (4,)),
    "normalised": (normalised_model, (4,)),
    "cnn": (small_cnn, (2, 6, 6)),
    "partly-frozen": (partly_frozen, (4,)),
}


@pytest.fixture(params=MODELS)
def case(request: pytest.FixtureRequest) -> tuple[FlatModel, Samples]:
    """A model, and 37 samples."""
    model, shape = MODELS[request.param]
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(37, *shape, generator=generator)
    return FlatModel(started(model())), Samples(x, torch.randint(0, 3, (37,), generator=generator), 3)


def gradients(module: nn.Module, data: Samples) -> Tensor:
    """Of the cross-entropy of each sample in evaluation mode, one after another; a row per sample."""
    twin, rows = copy.deepcopy(module).double().eval(), []
    trainable = [p for p in twin.parameters() if p.requires_grad]
    for i in range(len(data)):
        loss = F.cross_entropy(twin(data.x[i : i + 1].double()), data.y[i : i + 1])
        rows.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, trainable)]))
    return torch.stack(rows)


def apart(one: Tensor, other: Tensor) -> float:
    """The largest difference; relative to the largest number where that is above 1."""
    return float((one.double() - other).abs().max() / other.abs().max().clamp(min=1.0))


def test_fisher_is_the_mean_of_the_squares(case: tuple[FlatModel, Samples]) -> None:
    net, data = case
    net.train()
    before = net.copy()
    fisher = fisher_per_sample(net, data, torch.arange(37))
    assert fisher.shape == (net.size,)
    assert apart(fisher, gradients(net.module, data).square().mean(0)) < 1e-6
    assert same_bits(net.copy(), before)


def test_fisher_does_not_depend_on_the_other_samples(case: tuple[FlatModel, Samples]) -> None:
    """As it would if batch normalisation saw them together."""
    net, data = case
    alone = torch.stack([fisher_per_sample(net, data, ids) for ids in torch.arange(37).split(1)]).mean(0)
    assert apart(fisher_per_sample(net, data, torch.arange(37).flip(0)), alone.double()) < 1e-6


def test_fisher_by_batches(case: tuple[FlatModel, Samples]) -> None:
    net, data = case
    net.train()
    before, rows = net.copy(), gradients(net.module, data)
    batches = torch.arange(37).split(10)
    expected = torch.stack([rows[ids].mean(0).square() for ids in batches]).mean(0)
    assert apart(fisher_per_batch(net, data, torch.arange(37), 10), expected) < 1e-6
    assert same_bits(net.copy(), before)


def test_the_square_of_a_mean_is_no_mean_of_squares() -> None:
    """Two samples with gradients +1 and -1."""
    net = FlatModel(vector_model(0.0, answers=2))
    data = Samples(torch.full((2, 1), 2.0), torch.tensor([0, 1]), 2)
    assert near(fisher_per_sample(net, data, torch.arange(2)), 1.0, 1.0)
    assert near(fisher_per_batch(net, data, torch.arange(2), 2), 0.0, 0.0)


def first_uploads(uploads: list[Upload], **settings: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Of the first round: the difference to nothing, and the gradients of the device's samples at what it sent."""
    uploads.clear()
    options = settings.pop("options")
    remanence.simulate(
        RecordedFedCurv(**options), model=softmax_model(), devices=classification(), engine=ONE_BY_ONE, **settings
    )
    for upload in uploads:
        net = FlatModel(softmax_model())
        net.load(upload.content["w"])
        yield upload.content["du"], gradients(net.module, Samples(*classification()[upload.device], 3))


def test_uploads_of_round_one(uploads: list[Upload]) -> None:
    """u_k = F_k at the trained model and v_k = F_k w_k, of cross-entropy alone."""
    for u, rows in first_uploads(uploads, options={}, epochs=5, weight_decay=0.5, momentum=0.5):
        assert apart(u, rows.square().mean(0)) < 1e-6
    for upload in uploads:
        assert apart(upload.content["dv"], upload.content["du"].double() * upload.content["w"]) < 1e-6


@pytest.mark.parametrize("samples", [1, 2])
def test_some_samples_are_drawn_without_replacement(samples: int, uploads: list[Upload]) -> None:
    """Each Fisher diagonal is that of exactly one set of so many different samples, not always of the same."""
    found = set()
    for seed in range(6):
        for number, (u, rows) in enumerate(first_uploads(uploads, options={"fisher_samples": samples}, seed=seed)):
            sets = combinations(range(len(rows)), samples)
            fitting = [chosen for chosen in sets if apart(u, rows[list(chosen)].square().mean(0)) < 1e-6]
            assert len(fitting) == 1
            found.add((number, fitting[0]))
    assert len(found) > 2 * len(SIZES)


@pytest.mark.parametrize("samples", [8, 500])
def test_all_samples_are_used_where_there_are_no_more(samples: int, uploads: list[Upload]) -> None:
    for u, rows in first_uploads(uploads, options={"fisher_samples": samples}):
        assert apart(u, rows.square().mean(0)) < 1e-6


def test_batches_have_the_size_of_training(uploads: list[Upload]) -> None:
    """Five samples in batches of 3 and 2: one of ten ways, the device's samples being drawn."""
    u, rows = next(first_uploads(uploads, options={"fisher": "batch"}, batches=3))
    halves = [(list(chosen), [i for i in range(5) if i not in chosen]) for chosen in combinations(range(5), 3)]
    ways = [torch.stack([rows[half].mean(0).square() for half in pair]).mean(0) for pair in halves]
    assert sum(apart(u, way) < 1e-6 for way in ways) == 1


def test_fisher_sees_the_samples_as_they_are() -> None:
    """Not as augmentation made them for training."""
    net, data, method = FlatModel(softmax_model()), Samples(*classification()[1], 3), FedCurv()
    start, ctx = net.copy(), context().on(0, 1, net.copy())
    dev, srv = method.open_device(net, data, ctx), method.open_server(net, context())
    message = method.down(start, 0, srv, context())
    train_device(method, net, [[torch.arange(len(data))]], message, data, dev, ctx, lambda x, generator: -x)
    assert apart(dev["u"], gradients(net.module, data).square().mean(0)) < 1e-6
    assert not same_bits(net.copy(), start)


def test_variables_cover_trainable_parameters_only(uploads: list[Upload]) -> None:
    result = remanence.simulate(
        RecordedFedCurv(), model=normalised_model(), devices=classification(), batches=3, rounds=2, engine=ONE_BY_ONE
    )
    parameters = sum(p.numel() for p in result.model.parameters())
    assert len(result.weights) == parameters + 7
    sent = {len(upload.content[name]) for upload in uploads for name in ("du", "dv")}
    assert {*sent, *map(len, result.server_state.values())} == {parameters}


@pytest.mark.parametrize("options", [{}, {"fisher": "batch"}], ids=str)
def test_fisher_leaves_buffers_and_later_rounds_alone(options: dict[str, Any]) -> None:
    """At strength 0 with batch normalisation: FedAvg bit for bit, running statistics among them."""
    settings: dict[str, Any] = {"devices": classification(), "batches": 3, "rounds": 3, "engine": ONE_BY_ONE}
    result = remanence.simulate("fedcurv", {"strength": 0.0, **options}, model=normalised_model(), **settings)
    assert same_bits(result.weights, remanence.simulate(model=normalised_model(), **settings).weights)


@pytest.mark.parametrize("way", ["bytes_down", "bytes_up"])
def test_traffic_is_three_times_that_of_fedavg(way: str) -> None:
    settings: dict[str, Any] = {"model": softmax_model(60, 50), "devices": classification(features=60)}
    one, other = (remanence.simulate(name, **settings).history[0][way] for name in ("fedcurv", "fedavg"))
    assert near(one / other, 3.0, within=0.05)


def test_four_more_vectors_in_training() -> None:
    """U, V, own u and v, of 15 numbers of 4 bytes."""
    plan = planned("fedcurv", model=softmax_model(), devices=classification(), engine=ONE_BY_ONE)
    assert played(plan).sent["held"] == 4 * 15 * 4


def test_defaults() -> None:
    assert FedCurv() == FedCurv(strength=1.0, fisher="per_sample", fisher_samples=500)
