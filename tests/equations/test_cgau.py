"""CGAU: the identities of its card, and its pitfalls."""

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from by_autograd import normalised_layers, two_layers
from paired import BATCH, TRAINING
from pictures import femnist_cnn, noise, parameters_of
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from worlds import (
    ONE_BY_ONE,
    SIZES,
    Recorded,
    Upload,
    classification,
    near,
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
from remanence.core.method import Method
from remanence.core.optimiser import Training
from remanence.core.plan import Plan
from remanence.core.state import State
from remanence.core.vector import FlatModel
from remanence.data.samples import Samples
from remanence.engine.memory import one_thread
from remanence.errors import UserError
from remanence.measure.storage import state_bytes
from remanence.methods.cgau import CGAU, Adapted, GatedHead, Offsets
from remanence.simulation import Simulation

PROCESSES: dict[str, Any] = {"cohort": "off", "workers": 2}
PLAIN = parameters_of(two_layers())
FEATURES, HEAD = 4 * 6 + 6, 6 * 3 + 3
SMALL = {"pretrain": 2, "units": 5}
EVERYONE = [[0, 1, 2, 3]]
TEST = (noise(300, 4, seed=9) + 1, torch.arange(300) % 3)
each_mode = pytest.mark.parametrize("mode", ["frozen", "finetune"])
each_rows = pytest.mark.parametrize("v_avg", ["fedavg", "own"])


class RecordedCGAU(Recorded, CGAU):
    pass


def arguments(**settings: Any) -> dict[str, Any]:
    training = {"model": two_layers(), "devices": classification(), "engine": ONE_BY_ONE} | TRAINING | settings
    rounds = len(training["participation"])
    return {"batches": shuffled_batches(SIZES, BATCH)} | training | {"rounds": rounds}


def simulated(method: str | Method, options: dict[str, Any] | None = None, **settings: Any) -> Simulation:
    return remanence.simulate(method, options, **arguments(**settings))


def cgau(options: dict[str, Any] | None = None, **settings: Any) -> Simulation:
    return simulated("cgau", SMALL | (options or {}), **settings)


def moment(
    devices: int = 4, round: int = 3, device: int = -1, classes: int = 3, start: Tensor | None = None
) -> Context:
    train = Training()
    return Context(round, 4, 0.1, train, devices, classes, device=device, start=start)


def network(devices: int = 4, model: nn.Module | None = None, adapted: bool = True, **options: Any) -> FlatModel:
    """Set to its gated head, which starts the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = two_layers() if model is None else model
        net = FlatModel(CGAU(**SMALL | options).network(module, moment(devices)))
    net.w[net.slices["adapted"]] = float(adapted)
    return net


def filled(net: FlatModel, part: str, seed: int = 4) -> FlatModel:
    place = net.part(part)
    net.w[place] = noise(place.stop - place.start, seed=seed)
    return net


# The gated units


@pytest.mark.parametrize(("layers", "dropout"), [(1, 0.0), (2, 0.0), (3, 0.5)])
def test_units(layers: int, dropout: float) -> None:
    """x <- tanh(W1 x + b1 + V1[k]) * sigmoid(W2 x + b2 + V2[k]), then Wo x + bo + Vo[k]."""
    head = GatedHead(nn.Linear(6, 3), 5, layers, dropout, False).eval()
    offsets = Offsets(head.widths, 4)
    for number, parameter in enumerate([*head.parameters(), *offsets.parameters()]):
        parameter.data.copy_(noise(*parameter.shape, seed=number))
    x = first = noise(7, 6, seed=99)
    tables = [table.detach() for table in offsets.tables]
    for layer in range(layers):
        value, gate, v1, v2 = head.values[layer], head.gates[layer], tables[2 * layer], tables[2 * layer + 1]
        x = torch.tanh(x @ value.weight.T + value.bias + v1[2]) / (
            1 + torch.exp(-(x @ gate.weight.T + gate.bias + v2[2]))
        )
    expected = x @ head.output.weight.T + head.output.bias + tables[-1][2]
    assert near(head(first, offsets(2)).detach(), *expected.detach().flatten().tolist(), within=2e-6)


def hidden(net: FlatModel, x: Tensor) -> Tensor:
    """The outputs of the last gated layer: what the output projection is given."""
    seen: list[Tensor] = []
    hook = net.module.gated.output.register_forward_hook(lambda module, given, answer: seen.append(given[0].detach()))
    net(x)
    hook.remove()
    return seen[0]


def test_worked_value() -> None:
    """x = 0, b = 0, V1[k] = 1, V2[k] = 0: tanh(1) / 2."""
    net = network()
    net.w[: net.part("gated").start] = 0
    net.module.offsets.tables[0].data[1] = 1.0
    net.stand(1)
    assert near(hidden(net, torch.zeros(1, 4)), *[math.tanh(1) / 2] * 5)
    assert near(math.tanh(1) / 2, 0.380797)
    net.stand(0)
    assert near(hidden(net, torch.zeros(1, 4)), *[0.0] * 5)


@pytest.mark.parametrize("layers", [1, 2])
def test_units_are_bounded(layers: int) -> None:
    net = network(layers=layers)
    net.w[: net.size] = 0.7 * noise(net.size)
    assert float(hidden(net, noise(500, 4)).abs().max()) < 1
    net.w[: net.size] *= 1000
    assert float(hidden(net, noise(500, 4)).abs().max()) <= 1  # float32 rounds to the bound


def test_start() -> None:
    """W Glorot-uniform, b and V zero: the answer does not depend on the device, and is a plain gated network's."""
    net = network(units=64)
    gated, x = net.module.gated, noise(9, 4)
    for projection in (*gated.values, *gated.gates, gated.output):
        bound = math.sqrt(6 / sum(projection.weight.shape))
        assert 0.9 * bound < float(projection.weight.detach().abs().max()) <= bound
        assert not projection.bias.any()
    assert not net.w[net.part("offsets")].any()
    z = net.module.features(x)
    value, gate = gated.values[0], gated.gates[0]
    units = torch.tanh(F.linear(z, value.weight, value.bias)) * torch.sigmoid(F.linear(z, gate.weight, gate.bias))
    expected = F.linear(units, gated.output.weight, gated.output.bias).detach()
    for device in (-1, 0, 1, 3):
        net.stand(device)
        assert near(net(x).detach(), *expected.flatten().tolist())


def test_only_the_own_rows_have_a_gradient() -> None:
    net = filled(network(), "offsets")
    net.stand(2)
    F.cross_entropy(net(noise(9, 4)), torch.arange(9) % 3).backward()
    for name, width in zip(range(3), (5, 5, 3), strict=True):
        gradient = net.g[net.slices[f"offsets.tables.{name}"]].view(4, width)
        assert float(gradient[2].abs().min()) > 0
        assert not gradient[[0, 1, 3]].any()


def test_a_device_of_its_own_and_the_mean() -> None:
    """The server, as a device that is not known, answers with the mean row."""
    net, x = filled(network(), "offsets"), noise(9, 4)
    answers = []
    for device in (-1, 0, 1, 2, 3):
        net.stand(device)
        answers.append(net(x).detach())
    assert all(float((answers[0] - other).abs().max()) > 1e-2 for other in answers[1:])
    for table in net.module.offsets.tables:
        table.data[:] = table.data.mean(0)
    net.stand(1)
    assert near(net(x).detach(), *answers[0].flatten().tolist())


@each_rows
def test_offsets_of_a_single_device_are_a_bias(v_avg: str) -> None:
    """K = 1: the same functions as without offsets."""
    net, x = filled(network(devices=1, v_avg=v_avg, layers=2), "offsets"), noise(9, 4)
    net.stand(0)
    answer = net(x).detach()
    gated, tables = net.module.gated, list(net.module.offsets.tables)
    pairs = [gated.values[0], gated.gates[0], gated.values[1], gated.gates[1], gated.output]
    for projection, table in zip(pairs, tables, strict=True):
        assert table.shape == (1, len(projection.bias))
        projection.bias.data += table.data[0]
        table.data.zero_()
    assert near(net(x).detach(), *answer.flatten().tolist())


def test_a_second_bias_doubles_the_step() -> None:
    both = [network(double_bias=double) for double in (False, True)]
    moved = []
    for net in both:
        F.cross_entropy(net(noise(9, 4)), torch.arange(9) % 3).backward()
        net.w[: net.size] -= 0.1 * net.g[: net.size]
        output = net.module.gated.output
        moved.append(output.bias.detach() + (0 if output.second is None else output.second.detach()))
    assert near(moved[1], *(2 * moved[0]).tolist())
    assert both[1].size - both[0].size == 5 + 5 + 3


# Sizes


@pytest.mark.parametrize(
    ("width", "layers", "total", "rows"),
    [
        (2048, 1, 1_265_922, 200_900),
        (2048, 2, 1_576_706, 380_100),
        (3136, 1, 1_822_978, 200_900),
        (3136, 2, 2_133_762, 380_100),
    ],
)
def test_parameters(width: int, layers: int, total: int, rows: int) -> None:
    """350 devices, 62 classes, 256 units."""
    head = GatedHead(nn.Linear(width, 62), 256, layers, 0.0, False)
    offsets = Offsets(head.widths, 350)
    assert parameters_of(offsets) == rows
    assert parameters_of(head) + rows == total


def test_parameters_behind_the_femnist_network() -> None:
    """What travels: the head alone, 5.1 MB; with its features, 1.17 models."""
    ctx = moment(350, classes=62)
    net = FlatModel(CGAU().network(femnist_cnn(), ctx))
    assert net.size == 6_603_710 + 1_265_922

    def travelling(round: int, **options: Any) -> int:
        """Numbers of the model in a message of this round; the second phase begins after 100."""
        places = net.places(*CGAU(**options)._travels(replace(ctx, round=round)))
        return sum(place.stop - place.start for place in places)

    assert travelling(100) == 6_603_710
    assert travelling(101) == 1_265_922
    assert near(4 * travelling(101) / 1e6, 5.1, within=0.05)
    assert near(travelling(101) / 6_603_710, 0.19, within=0.005)
    assert near(travelling(101, mode="finetune") / 6_603_710, 1.17, within=0.005)
    assert travelling(101, v_avg="own") == 1_265_922 - 200_900


# The first phase


@each_mode
@each_rows
@pytest.mark.parametrize("model", [two_layers, normalised_layers], ids=["plain", "normalised"])
def test_the_first_rounds_are_fedavg_bit_for_bit(mode: str, v_avg: str, model: Any) -> None:
    """Weights, statistics, bytes, accuracies."""
    options = {"mode": mode, "v_avg": v_avg}
    settings: dict[str, Any] = {"model": model(), "test": TEST, "momentum": 0.5, "weight_decay": 0.01}
    plan = planned("cgau", SMALL | options, **arguments(**settings))
    plain = planned("fedavg", **arguments(**settings))
    with one_thread(), Federation(plan) as run, Federation(plain) as other:
        for _ in range(2):
            event, expected = run.play_round(), other.play_round()
            assert {**event, "adapted_rounds": None} == {**expected, "adapted_rounds": None}
            assert event["adapted_rounds"] == 0
            places = run.net.places("features", "head")
            assert same_bits(torch.cat([run.w[place] for place in places]), other.w)
        assert run.play_round() != other.play_round()


def test_the_gated_head_starts_when_its_phase_does() -> None:
    plan = planned("cgau", SMALL, **arguments())
    start = plan.task.network()
    gated = slice(start.part("gated").start, start.part("offsets").stop)
    with one_thread(), Federation(plan) as run:
        for round in range(1, 5):
            event, before = run.play_round(), run.w
            assert same_bits(before[gated], start.w[gated]) is (round <= 2)
            assert float(before[start.slices["adapted"]]) == float(round > 2)
            assert event["adapted_rounds"] == max(0, round - 2)


def test_without_a_first_phase() -> None:
    """The model may come trained."""
    result = cgau({"pretrain": 0})
    start = two_layers()
    assert same_bits(result.weights[:PLAIN], parameters_to_vector(start.parameters()).detach())
    assert [event["adapted_rounds"] for event in result.history] == [1, 2, 3, 4]


# The second phase


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1, "momentum": 0.9}], ids=["plain", "decay"])
@each_rows
def test_frozen_features_stand_still(v_avg: str, settings: dict[str, Any]) -> None:
    """Weights, statistics and counters, under weight decay as well; the plain head is as FedAvg left it."""
    options = {"v_avg": v_avg}
    settings = settings | {"model": normalised_layers(), "devices": classification()}
    before, after = (cgau(options | {"pretrain": 1}, **settings, participation=EVERYONE * rounds) for rounds in (2, 4))
    plan = planned("cgau", SMALL | options, **arguments(**settings))
    net = plan.task.network()
    for place in net.places("features", "head"):
        assert same_bits(before.weights[place], after.weights[place])
    for place in net.places("gated", "offsets"):
        assert not same_bits(before.weights[place], after.weights[place])


def test_features_are_trained_on() -> None:
    before, after = (cgau({"mode": "finetune"}, participation=EVERYONE * rounds) for rounds in (3, 4))
    assert not near(before.weights[:FEATURES], *after.weights[:FEATURES].tolist(), within=1e-4)
    assert same_bits(before.weights[FEATURES:PLAIN], after.weights[FEATURES:PLAIN])  # the plain head has no say


# Rounds, in plain float64 PyTorch


def gated_logits(model: nn.Module, x: Tensor, device: int, frozen: bool) -> Tensor:
    z = model.features(x).detach() if frozen else model.features(x)
    v = [table[device] for table in model.offsets.tables]
    for layer, (value, gate) in enumerate(zip(model.gated.values, model.gated.gates, strict=True)):
        z = torch.tanh(F.linear(z, value.weight, value.bias) + v[2 * layer]) * torch.sigmoid(
            F.linear(z, gate.weight, gate.bias) + v[2 * layer + 1]
        )
    return F.linear(z, model.gated.output.weight, model.gated.output.bias) + v[-1]


def reference(options: dict[str, Any], momentum: float = 0.0, **settings: Any) -> nn.Module:
    """With a row for each device in every mode; own rows are taken from their device, unchanged."""
    plan = planned("cgau", SMALL | {k: v for k, v in options.items() if k != "v_avg"}, **arguments(**settings))
    server = copy.deepcopy(plan.task.network().module).double()
    training, frozen, own = TRAINING | settings, options.get("mode") != "finetune", options.get("v_avg") == "own"
    batches, devices = shuffled_batches(SIZES, BATCH), classification()
    for round, chosen in enumerate(training["participation"], start=1):
        local = {k: copy.deepcopy(server) for k in chosen}
        rate = training["lr"] * training["lr_decay"] ** (round - 1)
        for k, model in local.items():
            x, y = devices[k]
            parts = [model.features, model.head] if round <= 2 else [model.gated, model.offsets]
            parts += [model.features] if round > 2 and not frozen else []
            trained = [parameter for part in parts for parameter in part.parameters()]
            optimiser = torch.optim.SGD(trained, rate, momentum)
            for epoch in range(1, training["epochs"] + 1):
                for ids in batches(k, round, epoch):
                    inputs = x[ids].double()
                    plain = round <= 2
                    logits = model.head(model.features(inputs)) if plain else gated_logits(model, inputs, k, frozen)
                    optimiser.zero_grad()
                    F.cross_entropy(logits, y[ids]).backward()
                    optimiser.step()
        merge(server, local, own)
    return server


@torch.no_grad()
def merge(server: nn.Module, local: dict[int, nn.Module], own: bool) -> None:
    total = sum(SIZES[k] for k in local)
    for name, parameter in server.named_parameters():
        sent = {k: dict(model.named_parameters())[name] for k, model in local.items()}
        if own and name.startswith("offsets"):
            for k, table in sent.items():
                parameter[k] = table[k]
        else:
            parameter.copy_(sum(SIZES[k] * value for k, value in sent.items()) / total)


LATE = [[0, 1, 2, 3], [0, 1, 2], [1, 3], [0, 3], [0, 1]]  # device 2 has no part in the second phase


@each_mode
@pytest.mark.parametrize("more", [{}, {"layers": 2}], ids=["one-layer", "two-layers"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_rounds_equal_the_equations(mode: str, more: dict[str, Any], momentum: float) -> None:
    """All rows are averaged by samples: a participant's own row moves by its share."""
    options: dict[str, Any] = {"mode": mode, **more}
    settings: dict[str, Any] = {"participation": LATE, "momentum": momentum, "lr": 0.05}
    result, expected = cgau(options, **settings), reference(options, **settings)
    places = parameters_to_vector(expected.parameters()).detach()
    assert near(result.weights[:-1], *places.tolist(), within=2e-6)
    assert not expected.offsets.tables[0][2].any()


@each_mode
def test_rounds_with_own_rows_equal_the_equations(mode: str) -> None:
    """Rows are those that each device trained last; at the server their mean over all devices."""
    options: dict[str, Any] = {"mode": mode, "v_avg": "own"}
    result, expected = cgau(options, participation=LATE), reference(options, participation=LATE)
    net = planned("cgau", SMALL | options, **arguments()).task.network()
    rows = torch.cat([table.detach() for table in expected.offsets.tables], 1)
    assert near(result.weights[net.part("offsets")], *rows.mean(0).tolist())
    shared = [parameter.flatten() for name, parameter in expected.named_parameters() if "offsets" not in name]
    assert near(result.weights[: net.part("gated").stop], *torch.cat(shared).tolist(), within=2e-6)
    for device in (0, 1, 3):
        assert near(result.device_state[device]["offset"], *rows[device].tolist())
    assert "offset" not in result.device_state[2]
    assert not rows[2].any()


def test_averaged_rows_move_by_their_share() -> None:
    """Ten equal participants: a tenth of the local change."""
    devices = [(noise(6, 4, seed=k), torch.arange(6) % 3) for k in range(12)]
    uploads: list[Tensor] = []

    class Watched(CGAU):
        def up(self, net: FlatModel, message: Message, data: Samples, dev: State, ctx: Context) -> Message:  # type: ignore[override]
            if ctx.device >= 0:
                uploads.append(net.copy())
            return super().up(net, message, data, dev, ctx)

    method = Watched(pretrain=0, units=5)
    result = simulated(method, devices=devices, participation=[list(range(10))], batches="full")
    net = planned(method, **arguments(devices=devices)).task.network()
    for number, width in enumerate((5, 5, 3)):
        place = net.slices[f"offsets.tables.{number}"]
        merged = result.weights[place].view(12, width)
        for device, w in enumerate(uploads):
            local = w[place].view(12, width)
            assert not local[[k for k in range(12) if k != device]].any()
            assert float(local[device].abs().min()) > 0
            assert near(merged[device], *(local[device] / 10).tolist(), within=1e-8)
        assert not merged[10:].any()


def test_own_rows_of_devices_whose_uploads_are_lost_stay() -> None:
    options = SMALL | {"v_avg": "own", "pretrain": 1}
    settings = arguments(participation=EVERYONE * 6, engine=ONE_BY_ONE | {"lost": 0.5}, seed=3)
    plan, kept = planned("cgau", options, **settings), {}
    with one_thread(), Federation(plan) as run:
        for _ in range(6):
            event = run.play_round()
            now = {k: run.states.get(k)["offset"] for k in run.states if "offset" in (run.states.get(k) or {})}
            lost = set(map(int, event["refused"]))
            assert all(same_bits(now[k], kept[k]) for k in lost & set(kept))
            assert not lost & set(now) - set(kept)
            kept = now
            rows = torch.stack([kept.get(k, torch.zeros(13)) for k in range(4)])
            assert near(run.w[run.net.part("offsets")], *rows.mean(0).tolist())
    assert len(kept) > 2


# Whose row answers


@each_rows
def test_devices_are_measured_with_their_own_row(v_avg: str, uploads: list[Upload]) -> None:
    """And the server with the mean. Every device has a class of its own, which its row learns."""
    x = noise(12, 4)
    devices = [(x, torch.full((12,), k)) for k in range(3)]
    options = {"v_avg": v_avg, "pretrain": 0, "units": 5}
    settings: dict[str, Any] = {"devices": devices, "batches": 4, "test": (x, torch.arange(12) % 3), "lr": 0.3}
    result = simulated("cgau", options, participation=[[0, 1, 2]] * 6, epochs=4, **settings)
    assert result.history[-1]["client_acc_local"] == 1.0
    assert result.history[-1]["accuracy"] < 0.6
    with torch.no_grad():
        right = int((result.model.eval()(x).argmax(1) == torch.arange(12) % 3).sum())
    assert near(result.history[-1]["accuracy"], right / 12)


def test_processes_do_not_forget_where_they_stand() -> None:
    settings: dict[str, Any] = {"test": TEST, "measure": {"devices": 1}, "participation": EVERYONE * 4}
    runs = [cgau(engine=engine, **settings) for engine in (ONE_BY_ONE, PROCESSES)]
    assert runs[0].history == runs[1].history
    assert same_bits(runs[0].weights, runs[1].weights)


# Traffic and state


def traffic(options: dict[str, Any], **settings: Any) -> tuple[list[dict[str, Any]], FlatModel]:
    plan = planned("cgau", SMALL | options, **arguments(**settings))
    with one_thread(), Federation(plan) as run:
        return list(run.play()), run.net


def length(net: FlatModel, *names: str) -> int:
    return sum(place.stop - place.start for place in net.places(*names))


def bytes_of(**entries: int) -> int:
    """Of a message; `n` is a number, the others lengths."""
    return Message({name: 1 if name == "n" else torch.zeros(size) for name, size in entries.items()}).size()


def test_frozen_features_come_once() -> None:
    """To a device that takes part, and again where its upload was lost."""
    events, net = traffic({"pretrain": 1}, participation=EVERYONE * 6, engine=ONE_BY_ONE | {"lost": 0.4}, seed=2)
    plain, gated, holders = length(net, "features", "head"), length(net, "gated", "offsets"), set[int]()
    assert events[0]["bytes_down"] == 4 * bytes_of(w=plain)
    assert events[0]["bytes_up"] == len(events[0]["counted"]) * bytes_of(w=plain, n=1)
    for event in events[1:]:
        new = 4 - len(holders)
        assert event["bytes_down"] == (4 - new) * bytes_of(w=gated) + new * bytes_of(w=gated, features=FEATURES)
        assert event["bytes_up"] == len(event["counted"]) * bytes_of(w=gated, n=1)
        holders |= set(event["counted"])
    assert len(holders) == 4
    assert sum(len(event["refused"]) for event in events[1:]) > 2


def test_frozen_features_may_come_every_round() -> None:
    """Then a device keeps nothing; the numbers are the same."""
    kept, sent = (cgau({"features": features}, participation=LATE) for features in ("kept", "sent"))
    assert same_bits(kept.weights, sent.weights)
    assert not any(sent.device_state[device] for device in range(4))
    assert [set(kept.device_state[device]) for device in (1, 2)] == [{"features"}, set()]
    plan = planned("cgau", SMALL, **arguments(participation=LATE))
    assert state_bytes(played(plan))["device_kept"] == 4 * FEATURES


def test_statistics_are_kept_with_the_features() -> None:
    result = cgau(model=normalised_layers(), participation=EVERYONE * 4)
    net = planned("cgau", SMALL, **arguments(model=normalised_layers())).task.network()
    features = torch.cat([result.weights[place] for place in net.places("features")])
    assert len(features) == FEATURES + 4 * 6 + 1
    for device in range(4):
        assert same_bits(result.device_state[device]["features"], features)


def test_traffic_of_features_that_are_trained() -> None:
    events, net = traffic({"mode": "finetune"}, participation=EVERYONE * 4)
    trained = length(net, "features", "gated", "offsets")
    assert [event["bytes_down"] for event in events[2:]] == [4 * bytes_of(w=trained)] * 2
    assert [event["bytes_up"] for event in events[2:]] == [4 * bytes_of(w=trained, n=1)] * 2


def test_own_rows_do_not_come_down() -> None:
    """What goes up of them is their change, for the mean at the server."""
    events, net = traffic({"v_avg": "own", "mode": "finetune"}, participation=EVERYONE * 4)
    shared = length(net, "features", "gated")
    assert length(net, "offsets") == 5 + 5 + 3
    assert [event["bytes_down"] for event in events[2:]] == [4 * bytes_of(w=shared)] * 2
    assert [event["bytes_up"] for event in events[2:]] == [4 * bytes_of(w=shared, n=1, offset=13)] * 2


# What is refused


@pytest.mark.parametrize("pretrain", [4, 100])
def test_too_few_rounds(pretrain: int) -> None:
    with pytest.raises(UserError, match=f"method\\.pretrain: {pretrain} is not allowed: the run has 4 rounds"):
        cgau({"pretrain": pretrain})


def test_a_server_optimiser_would_move_what_is_frozen() -> None:
    with pytest.raises(UserError, match=r"optimise\.name: 'fedavgm' is not allowed with cgau"):
        cgau(optimise="fedavgm")
    assert bool(cgau({"mode": "finetune"}, optimise="fedavgm").weights.isfinite().all())


def test_a_model_without_a_head() -> None:
    with pytest.raises(UserError, match="method\\.name: the model must have `features` and a linear `head`"):
        cgau(model=softmax_model())


@pytest.mark.parametrize(
    "options", [{"mode": "thawed"}, {"units": 0}, {"layers": 0}, {"dropout": 1.0}, {"pretrain": -1}]
)
def test_options_have_ranges(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        cgau(options)


def test_defaults() -> None:
    assert CGAU() == CGAU(
        pretrain=100,
        mode="frozen",
        units=256,
        layers=1,
        dropout=0.0,
        v_avg="fedavg",
        features="kept",
        double_bias=False,
    )


def test_the_server_knows_every_device() -> None:
    """Also of several sites: a row for each device of the fleet."""
    topology = {"name": "sites", "iterations": 2}
    settings = arguments(participation=[], engine={"workers": 1})
    plan: Plan = planned(
        "cgau", SMALL, **settings | {"rounds": 4, "participation": 2, "topology": topology, "sites": 2}
    )
    run = played(plan)
    module = plan.task.network().module
    assert isinstance(module, Adapted)
    assert module.offsets.tables[0].shape == (4, 5)
    assert all(bool(run.w[run.net.slices["offsets.tables.0"]].view(4, 5)[device].any()) for device in range(4))
