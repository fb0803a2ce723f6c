"""FedFusion: the identities of its card, and its pitfalls."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from frozen import context
from paired import BATCH, TRAINING, WITH_MOMENTUM
from pictures import PICTURE_SIZES, convolutional, femnist_cnn, noise, parameters_of, pictures
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from worlds import ONE_BY_ONE, Recorded, Upload, near, planned, played, same_bits, shuffled_batches, softmax_model

import remanence
from remanence.core.context import Context
from remanence.core.federation import Federation
from remanence.core.message import Message
from remanence.core.method import Method, Network
from remanence.core.plan import Plan
from remanence.core.state import State
from remanence.core.vector import FlatModel
from remanence.data.samples import Samples
from remanence.engine.memory import one_thread
from remanence.errors import UserError
from remanence.measure.accuracy import count_correct
from remanence.measure.storage import state_bytes
from remanence.methods.fedavg import FedAvg
from remanence.methods.fedfusion import Convolution, FedFusion, Mixture
from remanence.models.classifier import channels, images_and_rest
from remanence.registry import models
from remanence.simulation import Simulation

PLAIN = parameters_of(convolutional())
EXTRACTOR = 2 * 9 + 2
FUSIONS = {"conv": 2 * 4 + 2, "multi": 2, "single": 1}  # parameters for two channels
each_fusion = pytest.mark.parametrize("fusion", FUSIONS)
each_mixture = pytest.mark.parametrize("fusion", ["multi", "single"])


def arguments(**settings: Any) -> dict[str, Any]:
    training = {"model": convolutional(), "devices": pictures(), "engine": ONE_BY_ONE} | TRAINING | settings
    rounds = len(training["participation"])
    return training | {"rounds": rounds, "batches": shuffled_batches(PICTURE_SIZES, BATCH)}


def simulated(method: str | Method, options: dict[str, Any] | None = None, **settings: Any) -> Simulation:
    return remanence.simulate(method, options, **arguments(**settings))


def network(options: dict[str, Any], model: nn.Module | None = None) -> FlatModel:
    """With random weights, on a device, beside the extractor that it has now."""
    method = FedFusion(**options)
    net = FlatModel(method.network(convolutional() if model is None else model, context(classes=3)))
    net.w.copy_(noise(len(net.w)))
    net.stand(0)
    method.begin(net, Message(w=net.copy()), Samples(*pictures()[0], 3), {}, context(classes=3))
    return net


class Fixed(FedFusion):
    """The fusion stays as it starts."""

    def grad(self, net: Network, message: Message, dev: State, ctx: Context) -> None:
        assert isinstance(net, FlatModel)
        net.g[net.part("fusion")] = 0


class RecordedFedFusion(Recorded, FedFusion):
    pass


# The fusion


@each_mixture
def test_mixture(fusion: str) -> None:
    """a f_g + (1 - a) f_l, a weight for each channel over its whole image, or one for all."""
    local, received, a = noise(4, 3, 2, 2), noise(4, 3, 2, 2, seed=2), noise(3 if fusion == "multi" else 1, seed=3)
    mixture = Mixture(len(a))
    assert not mixture.a.any()
    mixture.a.data.copy_(a)
    for channel in range(3):
        weight = float(a[channel % len(a)])
        expected = weight * received[:, channel] + (1 - weight) * local[:, channel]
        assert near(mixture(local, received)[:, channel].detach(), *expected.flatten().tolist())


def test_convolution() -> None:
    """W (*) concat(f_l, f_g) + b, pixel by pixel."""
    local, received, fusion = noise(4, 3, 2, 2), noise(4, 3, 2, 2, seed=2), Convolution(3, False)
    assert fusion.weight.shape == (3, 6, 1, 1)
    pairs = torch.cat([local, received], 1).permute(0, 2, 3, 1)
    expected = (pairs @ fusion.weight[:, :, 0, 0].T + fusion.bias).permute(0, 3, 1, 2)
    assert near(fusion(local, received).detach(), *expected.detach().flatten().tolist())


def test_convolution_with_halves_and_order_swapped() -> None:
    local, received, one, other = (
        noise(4, 3, 2, 2),
        noise(4, 3, 2, 2, seed=2),
        Convolution(3, False),
        Convolution(3, False),
    )
    other.load_state_dict({"weight": one.weight.roll(3, 1), "bias": one.bias})
    assert near(one(local, received).detach(), *other(received, local).detach().flatten().tolist())


def test_convolution_that_begins_as_the_identity() -> None:
    """W = [I | 0], b = 0."""
    fusion, local = Convolution(3, True), noise(4, 3, 2, 2)
    assert torch.equal(fusion.weight[:, :, 0, 0], torch.eye(3, 6))
    assert not fusion.bias.any()
    assert near(fusion(local, 9 * local).detach(), *local.flatten().tolist())


def test_single_is_multi_with_equal_entries() -> None:
    single, multi = network({"fusion": "single"}), network({"fusion": "multi"})
    common = single.part("fusion").start
    multi.w[:common] = single.w[:common]
    multi.w[multi.part("fusion")] = single.w[single.part("fusion")]
    with torch.no_grad():  # what they received stays another extractor, the same for both
        for net in (single, multi):
            net.module.frozen[0].conv1.weight.copy_(noise(2, 1, 3, 3, seed=5))
            net.module.frozen[0].conv1.bias.copy_(noise(2, seed=6))
        x = pictures()[1][0]
        assert near(single(x), *multi(x).flatten().tolist())


@each_mixture
def test_where_a_round_starts_the_weight_has_no_say(fusion: str) -> None:
    net, (x, y) = network({"fusion": fusion}), pictures()[1]
    answer = net(x)
    F.cross_entropy(answer, y).backward()
    part = net.part("fusion")
    assert not net.g[part].any()
    assert net.g.any()
    for a in (0.0, -3.0, 0.7):
        net.w[part] = a
        assert same_bits(net(x).detach(), answer.detach())


# Reductions


def plain_part(result: Simulation) -> Tensor:
    return result.weights[:PLAIN]


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
@each_mixture
def test_a_weight_of_zero_is_fedavg_bit_for_bit(fusion: str, settings: dict[str, Any]) -> None:
    result, plain = simulated(Fixed(fusion=fusion), **settings), simulated("fedavg", **settings)
    assert len(result.weights) == PLAIN + FUSIONS[fusion]
    assert not result.weights[PLAIN:].any()
    assert same_bits(plain_part(result), plain.weights)
    free = simulated("fedfusion", {"fusion": fusion}, **settings)
    assert float((plain_part(free) - plain.weights).abs().max()) > 1e-6


def test_a_weight_of_zero_is_fedavg_with_statistics() -> None:
    settings: dict[str, Any] = {"model": convolutional(normalised=True), "devices": pictures()[:2]}
    more: dict[str, Any] = settings | {"batches": 3, "rounds": 3, "engine": ONE_BY_ONE}
    result, plain = remanence.simulate(Fixed(fusion="multi"), **more), remanence.simulate(**more)
    plain_size = parameters_of(convolutional(normalised=True))
    assert same_bits(result.weights[:plain_size], plain.weights[:plain_size])
    assert same_bits(result.weights[plain_size + 2 :], plain.weights[plain_size:])


@pytest.mark.parametrize("settings", [TRAINING, TRAINING | {"momentum": 0.9}], ids=["plain", "momentum"])
def test_the_identity_kept_fixed_is_fedavg(settings: dict[str, Any]) -> None:
    result = simulated(Fixed(fusion="conv", conv_init="identity"), **settings)
    assert near(plain_part(result), *simulated("fedavg", **settings).weights.tolist())


# Smoothing


def sending(a: float, options: dict[str, Any]) -> FedFusion:
    class Sending(FedFusion):
        def up(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> Message:
            assert isinstance(net, FlatModel)
            net.w[net.part("fusion")] = a
            return super().up(net, message, data, dev, ctx)

    return Sending(**options)


@each_mixture
def test_smoothing(fusion: str) -> None:
    """A round that nobody takes part in leaves the weight; devices start from the smoothed one."""
    method = sending(0.5, {"fusion": fusion})
    plan = planned(method, **arguments(participation=[[0, 1], [], [2]]))
    received: list[float] = []
    with one_thread(), Federation(plan) as federation:
        for _ in range(3):
            federation.play_round()
            received.append(float(federation.w[PLAIN:].mean()))
    assert near(received, 0.05, 0.05, 0.095)


@pytest.mark.parametrize(("options", "expected"), [({"mu": 0.0}, 0.5), ({"mu": 0.6}, 0.2)])
def test_strength_of_the_smoothing(options: dict[str, Any], expected: float) -> None:
    result = simulated(sending(0.5, {"fusion": "single", **options}), participation=[[0, 1]])
    assert near(result.weights[PLAIN:], expected)


def test_a_convolution_is_not_smoothed() -> None:
    result = simulated(sending(0.5, {"fusion": "conv"}), participation=[[0, 1]])
    assert near(result.weights[PLAIN:], *[0.5] * FUSIONS["conv"])


# Rounds, in plain float64 PyTorch


def fused(model: nn.Module, reference: nn.Module, x: Tensor) -> Tensor:
    local, received = model.extractor(x), reference(x).detach()
    if isinstance(model.fusion, nn.Conv2d):
        maps = F.conv2d(torch.cat([local, received], 1), model.fusion.weight, model.fusion.bias)
    else:
        a = model.fusion.a.view(-1, 1, 1)
        maps = a * received + (1 - a) * local
    answer: Tensor = model.head(model.rest(maps))
    return answer


def reference_run(
    plan: Plan, *, epochs: int, lr: float, lr_decay: float = 1.0, momentum: float = 0.0, weight_decay: float = 0.0,
    participation: list[list[int]],
) -> Tensor:  # fmt: skip
    server = copy.deepcopy(plan.task.network().module).double()
    batches, devices = shuffled_batches(PICTURE_SIZES, BATCH), pictures()
    for round, chosen in enumerate(participation, start=1):
        local = {k: copy.deepcopy(server) for k in chosen}
        for k, model in local.items():
            reference, (x, y) = copy.deepcopy(server.extractor), devices[k]
            rate = lr * lr_decay ** (round - 1)
            optimiser = torch.optim.SGD(model.parameters(), rate, momentum, weight_decay=weight_decay)
            for epoch in range(1, epochs + 1):
                for ids in batches(k, round, epoch):
                    optimiser.zero_grad()
                    F.cross_entropy(fused(model, reference, x[ids].double()), y[ids]).backward()
                    optimiser.step()
        total = sum(PICTURE_SIZES[k] for k in chosen)
        with torch.no_grad():
            for name, parameter in server.named_parameters():
                mean = sum(PICTURE_SIZES[k] * dict(m.named_parameters())[name] for k, m in local.items()) / total
                parameter.copy_(0.1 * mean + 0.9 * parameter if name == "fusion.a" else mean)
    return parameters_to_vector(server.parameters()).detach()


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
@pytest.mark.parametrize(
    "options",
    [{}, {"conv_init": "identity"}, {"fusion": "multi"}, {"fusion": "single"}],
    ids=["conv", "identity", "multi", "single"],
)
def test_rounds_equal_the_equations(options: dict[str, Any], settings: dict[str, Any]) -> None:
    plan = planned("fedfusion", options, **arguments(**settings))
    expected = reference_run(plan, **settings)
    assert near(simulated("fedfusion", options, **settings).weights, *expected.tolist(), within=5e-6)


def test_the_received_extractor_stays_as_it_was() -> None:
    """The one of this round, in evaluation mode, without a gradient, in memory of its own."""
    seen: list[int] = []

    class Watched(FedFusion):
        def begin(self, net: FlatModel, message: Message, data: Samples, dev: State, ctx: Context) -> None:  # type: ignore[override]
            super().begin(net, message, data, dev, ctx)
            ctx.scratch["received"] = [t.clone() for t in net.module.extractor.state_dict().values()]

        def up(self, net: FlatModel, message: Message, data: Samples, dev: State, ctx: Context) -> Message:  # type: ignore[override]
            (frozen,) = net.module.frozen
            assert not any(module.training for module in frozen.modules())
            assert all(module.training for module in net.module.modules() if module is not frozen)
            assert all(p.grad is None and not p.requires_grad for p in frozen.parameters())
            own = list(net.module.extractor.state_dict().values())
            for now, before, mine in zip(frozen.state_dict().values(), ctx.scratch["received"], own, strict=True):
                assert same_bits(now, before)
                assert now.data_ptr() != mine.data_ptr()
            if ctx.device >= 0:
                seen.append(ctx.device)
                assert not near(frozen.conv1.weight, *own[0].flatten().tolist(), within=1e-4)
            return super().up(net, message, data, dev, ctx)

    simulated(Watched(), model=convolutional(normalised=True), participation=[[0, 1], [1, 2]])
    assert seen == [0, 1, 1, 2]


# What the server answers


@each_mixture
def test_the_server_answers_with_its_extractor_on_both_sides(fusion: str) -> None:
    """H(E(x)), whatever the weight is."""
    result = simulated("fedfusion", {"fusion": fusion, "mu": 0.0})
    assert result.weights[PLAIN:].any()
    plain = FlatModel(convolutional())
    plain.load(plain_part(result))
    x = pictures()[1][0]
    with torch.no_grad():
        assert same_bits(result.model.eval()(x), plain.module.eval()(x))


def test_the_server_convolves_its_own_features_twice() -> None:
    result = simulated("fedfusion")
    model, x = result.model.eval(), pictures()[1][0]
    with torch.no_grad():
        assert near(model(x), *fused(model, model.extractor, x).flatten().tolist())


TEST = (noise(400, 1, 6, 6, seed=9), torch.arange(400) % 3)


def test_a_device_answers_beside_what_it_received(uploads: list[Upload]) -> None:
    """Its own model, before it is merged."""
    result = simulated(RecordedFedFusion(fusion="conv"), test=TEST, participation=[[1]])
    start = planned("fedfusion", **arguments()).task.network()
    trained = planned("fedfusion", **arguments()).task.network()
    trained.load(uploads[0].content["w"])
    with torch.no_grad():
        right = fused(trained.module, start.module.extractor, TEST[0]).argmax(1) == TEST[1]
        other = fused(trained.module, trained.module.extractor, TEST[0]).argmax(1) == TEST[1]
    assert not torch.equal(right, other)
    assert near(
        result.history[0]["client_acc_global"],
        float(torch.stack([right[i::3].float().mean() for i in range(3)]).mean()),
    )
    assert near(result.history[0]["accuracy"], float(other.float().mean()))


@each_fusion
def test_the_extractor_of_the_round_before(fusion: str) -> None:
    """As the code does: it is sent as well, and the server answers with it."""
    options = {"fusion": fusion, "eval_ref": "previous"}
    before, after = (simulated("fedfusion", options, test=TEST, participation=[[0, 1]] * rounds) for rounds in (1, 2))
    plain = simulated("fedfusion", {"fusion": fusion}, participation=[[0, 1]] * 2)
    size = len(plain.weights)
    assert same_bits(after.weights[:size], plain.weights)
    assert same_bits(after.weights[size:], before.weights[:EXTRACTOR])
    model = after.model.eval()
    with torch.no_grad():
        expected = fused(model, before.model.extractor, TEST[0])
        assert near(model(TEST[0]), *expected.flatten().tolist(), within=1e-5)
        right = int((expected.argmax(1) == TEST[1]).sum())
    assert near(after.history[-1]["accuracy"], right / len(TEST[1]))


# Sizes


@pytest.mark.parametrize(("fusion", "more"), [("conv", 8_256), ("multi", 64), ("single", 1)])
def test_parameters_of_the_femnist_network(fusion: str, more: int) -> None:
    model = femnist_cnn()
    assert parameters_of(model) == 6_603_710
    net = FlatModel(FedFusion(fusion=fusion).network(model, context(classes=62)))
    assert net.size == len(net.w) == 6_603_710 + more
    assert net.part("extractor") == slice(0, 52_096)
    assert net.part("fusion") == slice(6_603_710, net.size)
    with torch.no_grad():
        assert net.module.extractor(torch.zeros(1, 1, 28, 28)).shape == (1, 64, 7, 7)


@each_fusion
def test_traffic_is_the_model_and_the_fusion(fusion: str) -> None:
    result, plain = simulated("fedfusion", {"fusion": fusion}), simulated("fedavg")
    for ours, theirs in zip(result.history, plain.history, strict=True):
        for way in ("bytes_down", "bytes_up"):
            more = (ours[way] - theirs[way]) / len(ours["counted"])
            assert 4 * FUSIONS[fusion] <= more <= 4 * FUSIONS[fusion] + 8  # messages are padded to 8 bytes
    assert not any(result.device_state[device] for device in result.device_state)


def test_an_extractor_more_in_training() -> None:
    kept = state_bytes(played(planned("fedfusion", {"fusion": "single"}, **arguments())))
    assert kept["device_transient"] == 4 * (2 * (PLAIN + 1) + EXTRACTOR)
    assert kept["device_kept"] == 0
    sent = state_bytes(played(planned("fedfusion", {"fusion": "single", "eval_ref": "previous"}, **arguments())))
    assert sent["up"] - kept["up"] in range(4 * EXTRACTOR, 4 * EXTRACTOR + 8)


# Models

IMAGES = [
    ("simple-cnn", {}, 64),
    ("lenet5", {}, 16),
    ("vgg11", {}, 512),
    ("resnet10", {"norm": "bn"}, 512),
    ("mobilenet", {}, 1024),
]


@pytest.mark.parametrize(("name", "options", "width"), IMAGES)
def test_where_models_are_cut(name: str, options: dict[str, Any], width: int) -> None:
    """All convolutions and poolings in front, and the same answer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = models.create(name, options).build((3, 32, 32), 10).eval()
    images, rest = images_and_rest(model)
    assert channels(images) == width
    assert not any(isinstance(layer, nn.Conv2d | nn.MaxPool2d) for layer in rest.modules())
    x = noise(2, 3, 32, 32)
    with torch.no_grad():
        maps = images(x)
        assert maps.dim() == 4
        assert maps.shape[1] == width
        assert same_bits(model.head(rest(maps)), model(x))


@each_fusion
def test_lenet_trains(fusion: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = models.create("lenet5", {}).build((1, 16, 16), 3)
    devices = [(noise(6, 1, 16, 16, seed=k), torch.arange(6) % 3) for k in range(2)]
    result = remanence.simulate("fedfusion", {"fusion": fusion}, model=model, devices=devices, rounds=4, lr=0.01)
    assert result.history[-1]["loss"] < result.history[0]["loss"]


def test_models_without_convolutions() -> None:
    flat = [(x.flatten(1), y) for x, y in pictures()]
    mlp = models.create("mlp", {}).build((36,), 3)
    for model, line in ((mlp, "no `features` that begin with convolutions"), (softmax_model(36), "no `features`")):
        with pytest.raises(UserError, match=line):
            remanence.simulate("fedfusion", model=model, devices=flat)


def test_count_correct_leaves_the_network_where_it_stands() -> None:
    net, x = network({"fusion": "conv"}), pictures()[1]
    first = count_correct(net, Samples(*x, 3))
    assert count_correct(net, Samples(*x, 3))[1] == first[1]
    net.stand(-1)
    with torch.no_grad():
        net.module.frozen[0].conv1.weight.zero_()
    assert count_correct(net, Samples(*x, 3))[1] == first[1]


def test_defaults() -> None:
    assert FedFusion() == FedFusion(fusion="conv", mu=0.9, conv_init="default", eval_ref="received")
    assert isinstance(FedAvg(), Method)
