"""MOON: the identities of its card, and its pitfalls."""

import copy
import math
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from by_autograd import Step, TwoHalves, normalised_layers, played, two_layers
from frozen import Watched, context, held
from paired import BATCH, TRAINING, WITH_MOMENTUM
from torch import Tensor, nn
from worlds import (
    ONE_BY_ONE,
    SIZES,
    STACKED,
    Recorded,
    Upload,
    classification,
    near,
    normalised_model,
    planned,
    same_bits,
    shuffled_batches,
    softmax_model,
)

import remanence
from remanence.core.federation import Federation
from remanence.core.method import Method
from remanence.core.plan import Plan
from remanence.core.vector import FlatModel
from remanence.data.samples import Batch
from remanence.errors import UserError
from remanence.methods.fedavg import FedAvg
from remanence.methods.moon import Moon, contrast
from remanence.registry import models
from remanence.simulation import Simulation

LATE = [[0, 1], [1, 3], [0, 2, 3], [1, 2]]  # devices 2 and 3 come later, device 0 after a pause


class RecordedMoon(Recorded, Moon):
    pass


class WatchedMoon(Watched, Moon):
    pass


def arguments(**settings: Any) -> dict[str, Any]:
    training = {"model": two_layers(), "engine": ONE_BY_ONE} | TRAINING | settings
    rounds = len(training["participation"])
    return training | {"devices": classification(), "rounds": rounds, "batches": shuffled_batches(SIZES, BATCH)}


def simulated(method: str | Method, options: dict[str, Any] | None = None, **settings: Any) -> Simulation:
    return remanence.simulate(method, options, **arguments(**settings))


# The term


def feature_model(*z: float) -> FlatModel:
    """Its features are z, its logits 0."""
    model = TwoHalves(nn.Linear(1, len(z), bias=False), len(z), 2)
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.zero_()
        model.features.weight.copy_(torch.tensor(z).unsqueeze(1))
    return FlatModel(model)


def contrasted(z: Any, received: Any, previous: Any, tau: float = 0.5, mu: float = 1.0) -> tuple[float, Tensor]:
    """What MOON adds to the loss of one sample, and its gradient by z."""
    net, *teachers = (feature_model(*features) for features in (z, received, previous))
    batch = Batch(torch.ones(1, 1), torch.tensor([0]), torch.tensor([0]))
    loss = Moon(mu=mu, tau=tau).loss(net, batch, {}, context(*teachers, classes=2))
    loss.sum().backward()
    return float(loss.detach().double() - math.log(2)), net.g[net.part("features")]


def test_worked_example() -> None:
    assert near(contrasted((1.0, 0.0), (1.0, 1.0), (0.0, 1.0))[0], 0.217622)


@pytest.mark.parametrize("mu", [0.1, 5.0])
def test_the_term_is_multiplied_by_mu(mu: float) -> None:
    assert near(contrasted((1.0, 0.0), (1.0, 1.0), (0.0, 1.0), mu=mu)[0] / mu, 0.217622, within=2e-6)


@pytest.mark.parametrize("z", [(1.0, 0.0), (0.3, -2.0), (1e-3, 40.0)])
def test_equal_models_add_a_constant(z: tuple[float, float]) -> None:
    term, gradient = contrasted(z, (0.7, 0.2), (0.7, 0.2))
    assert near(term, 0.693147)
    assert near(gradient, 0.0, 0.0, within=1e-7)


@pytest.mark.parametrize(
    ("received", "previous", "expected"),
    [
        ((1.0, 0.0), (-1.0, 0.0), 0.018150),
        ((-1.0, 0.0), (1.0, 0.0), 4.018150),
        ((1.0, 0.0), (0.0, 1.0), 0.126928),
        ((0.0, 1.0), (1.0, 0.0), 2.126928),
    ],
)
def test_ends_of_the_range(received: Any, previous: Any, expected: float) -> None:
    """The latter two with features that are never negative."""
    assert near(contrasted((1.0, 0.0), received, previous)[0], expected)


@pytest.mark.parametrize("tau", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("positive", [False, True])
def test_range(tau: float, positive: bool) -> None:
    draws = torch.randn(3, 500, 3, generator=torch.Generator().manual_seed(1)).double()
    terms, widest = contrast(*(draws.relu() if positive else draws), tau), (1 if positive else 2) / tau
    assert float(terms.min()) >= math.log1p(math.exp(-widest)) - 1e-12
    assert float(terms.max()) <= math.log1p(math.exp(widest)) + 1e-12
    assert float(terms.max() - terms.min()) > 0.5 * widest


def definition(z: Tensor, received: Tensor, previous: Tensor, tau: float) -> Tensor:
    """The card's formula, sample by sample; no feature is 0."""

    def similar(other: Tensor) -> Tensor:
        return ((z * other).sum(1) / (z.norm(dim=1) * other.norm(dim=1)) / tau).exp()

    return -(similar(received) / (similar(received) + similar(previous))).log()


@pytest.mark.parametrize("tau", [0.2, 0.5, 3.0])
def test_definition(tau: float) -> None:
    z, received, previous = torch.randn(3, 50, 6, generator=torch.Generator().manual_seed(2)).double()
    terms = contrast(z.requires_grad_(), received, previous, tau)
    gradient = torch.autograd.grad(terms.sum(), z)[0]
    expected = definition(z, received, previous, tau)
    assert near(terms.detach(), *expected.tolist(), within=1e-12)
    assert near(gradient, *torch.autograd.grad(expected.sum(), z)[0].flatten().tolist(), within=1e-12)


def test_the_term_leaves_what_it_compares() -> None:
    features = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(3))
    before = features.clone()
    assert same_bits(contrast(*features, 0.5), contrast(*features, 0.5))
    assert same_bits(features, before)


@pytest.mark.parametrize("others", [((1.0, 1.0), (0.0, 1.0)), ((0.0, 0.0), (0.0, 1.0)), ((0.0, 0.0), (0.0, 0.0))])
def test_features_of_zero(others: Any) -> None:
    """Their cosine is 0; its gradient would be as large as 1 / (eps tau)."""
    term, gradient = contrasted((0.0, 0.0), *others)
    assert near(term, 0.693147)
    assert near(gradient, 0.0, 0.0, within=0.0)


def test_frozen_features_of_zero() -> None:
    """log(1 + e^{-cos / tau}) with cos(z, z_p) = 0, and the other way round."""
    expected = math.log1p(math.exp(-math.sqrt(2)))
    assert near(contrasted((1.0, 1.0), (1.0, 0.0), (0.0, 0.0))[0], expected)
    assert near(contrasted((1.0, 1.0), (0.0, 0.0), (1.0, 0.0))[0], expected + math.sqrt(2))
    assert near(contrasted((1.0, 1.0), (0.0, 0.0), (0.0, 0.0))[0], 0.693147)


@pytest.mark.parametrize("hidden", [0.0, 1.0], ids=["zero", "other"])
def test_features_of_zero_behind_a_linear_head(hidden: float) -> None:
    """No ReLU stands behind the projection: what keeps the gradient out of the weights is the method."""
    method, batch = Moon(mu=1.0, head=256), Batch(torch.ones(4, 4), torch.tensor([0, 1, 2, 0]), torch.arange(4))
    gradients = []
    for each in (method, FedAvg()):
        nets = [FlatModel(method.network(two_layers(), context(classes=3))) for _ in range(3)]
        for number, net in enumerate(nets):
            net.w.normal_(generator=torch.Generator().manual_seed(number))
        nets[0].w[nets[0].part("features.3")] *= hidden
        each.loss(nets[0], batch, {}, context(*nets[1:], classes=3)).sum().backward()
        gradients.append(nets[0].g.clone())
    assert bool(gradients[0].isfinite().all())
    assert torch.equal(*gradients) is (hidden == 0.0)


# Rounds


def reference(mu: float, tau: float = 0.5, fresh: bool = False) -> Any:
    """`fresh`: a wrong reading, in which a device's first contrast is with the received model."""

    def term(step: Step) -> Tensor:
        frozen = step.previous if step.seen or not fresh else step.received
        z, received, previous = (m.features(step.x) for m in (step.model, step.received, frozen))
        pulls, pushes = (F.cosine_similarity(z, other.detach(), dim=1) / tau for other in (received, previous))
        return mu * (torch.logsumexp(torch.stack([pulls, pushes]), 0) - pulls).mean()

    return term


@pytest.mark.parametrize("participation", [TRAINING["participation"], LATE], ids=["all-first", "late"])
@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
@pytest.mark.parametrize("tau", [0.5, 2.0])
def test_rounds_equal_the_equations(settings: dict[str, Any], participation: Any, tau: float) -> None:
    chosen = settings | {"participation": participation}
    result = simulated("moon", {"mu": 5.0, "tau": tau}, **chosen)
    assert difference(result.weights, played(two_layers(), reference(5.0, tau), **chosen)) < 2e-6
    assert difference(result.weights, played(two_layers(), reference(0.0), **chosen)) > 1e-3


def difference(simulated: Tensor, expected: Tensor) -> float:
    return float((simulated.double() - expected).abs().max())


def test_a_late_device_begins_with_the_model_the_run_began_with() -> None:
    result = simulated("moon", {"mu": 5.0}, participation=LATE)
    assert difference(result.weights, played(two_layers(), reference(5.0, fresh=True), participation=LATE)) > 1e-4


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
def test_mu_zero_is_fedavg_bit_for_bit(settings: dict[str, Any], engine: dict[str, Any]) -> None:
    """A stack has FedAvg's loss in closed form, which may round differently."""
    moon = simulated("moon", {"mu": 0.0}, **settings | {"engine": engine})
    plain = simulated("fedavg", **settings | {"engine": engine})
    assert near(moon.weights, *plain.weights.tolist())
    assert engine == STACKED or same_bits(moon.weights, plain.weights)
    assert not any(moon.device_state[device] for device in moon.device_state)


@pytest.mark.parametrize("model", [softmax_model, normalised_model, normalised_layers])
def test_mu_zero_is_fedavg_for_every_model(model: Any) -> None:
    """Also for one without features, of which nothing is asked then."""
    settings: dict[str, Any] = {
        "model": model(), "devices": classification(), "batches": 3, "rounds": 3, "engine": ONE_BY_ONE
    }  # fmt: skip
    moon = remanence.simulate("moon", {"mu": 0.0}, **settings)
    assert same_bits(moon.weights, remanence.simulate("fedavg", **settings).weights)


def test_the_first_round_adds_a_constant() -> None:
    settings = {"participation": [[0, 1, 2, 3]], "lr": 0.3, "momentum": 0.9}
    moon, plain = simulated("moon", {"mu": 2.0}, **settings), simulated("fedavg", **settings)
    assert near(moon.history[0]["loss"] - plain.history[0]["loss"], 2 * 0.693147, within=2e-6)
    assert near(moon.weights, *plain.weights.tolist())


# The previous model


def test_the_previous_model_is_kept_however_old(uploads: list[Upload]) -> None:
    result = simulated(RecordedMoon(), participation=[[0, 1], [1, 3], [1], [1, 3]])
    sent = {(upload.device, upload.round): upload.content["w"] for upload in uploads}
    for device, last in ((0, 1), (1, 4), (3, 4)):
        assert set(result.device_state[device]) == {"previous"}
        assert same_bits(result.device_state[device]["previous"], sent[device, last])
    assert not result.device_state[2]


def test_the_previous_model_is_the_last_that_was_counted(uploads: list[Upload]) -> None:
    """A device whose upload came too late is as if it had not taken part."""
    everyone = [[0, 1, 2, 3]] * 5
    result = simulated(RecordedMoon(), participation=everyone, engine=ONE_BY_ONE | {"quorum": 0.5})
    sent = {(upload.device, upload.round): upload.content["w"] for upload in uploads}
    last = {device: event["round"] for event in result.history for device in event["counted"]}
    assert sorted(set(last.values())) != [5]
    for device, round in last.items():
        assert same_bits(result.device_state[device]["previous"], sent[device, round])


def test_the_previous_model_stays_on_the_device(uploads: list[Upload]) -> None:
    plan: Plan = planned(RecordedMoon(), **arguments())
    with Federation(plan) as federation:
        events = list(federation.play())
        down = federation.method.down(federation.w, 0, federation.srv, federation.context(5))
    assert set(down) == {"w"}
    assert {tuple(upload.content) for upload in uploads} == {("w", "n")}
    plain = simulated("fedavg").history
    for name in ("bytes_down", "bytes_up"):
        assert [event[name] for event in events] == [event[name] for event in plain]


def test_what_is_frozen() -> None:
    """The received model and the device's own last one, which steps, gradients and statistics leave alone."""
    start, last = FlatModel(normalised_layers()).copy(), {}
    watched = held(WatchedMoon(mu=1.0), [[0, 1], [1, 3], [0, 1, 2]])
    for each in watched:
        received, previous = each.frozen
        assert same_bits(received, each.received)
        assert same_bits(previous, last.get(each.device, start))
        last[each.device] = each.sent
    assert [(each.round, each.device) for each in watched] == [(1, 0), (1, 1), (2, 1), (2, 3), (3, 0), (3, 1), (3, 2)]
    for one, other in pairwise(watched):
        assert not same_bits(one.sent, other.sent)


def test_frozen_models_answer_in_evaluation_mode() -> None:
    """In round 1 both are the same model: in training mode, dropout would let their answers differ."""
    settings: dict[str, Any] = {"model": normalised_layers(), "participation": [[0, 1, 2, 3]]}
    moon, plain = simulated("moon", {"mu": 2.0}, **settings), simulated("fedavg", **settings)
    assert near(moon.history[0]["loss"] - plain.history[0]["loss"], 2 * 0.693147, within=2e-6)
    assert near(moon.weights, *plain.weights.tolist())


# Features and the projection head


def test_defaults() -> None:
    assert Moon() == Moon(mu=0.1, tau=0.5, head=0)


def test_features_are_the_512_values_behind_the_relu() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        net = FlatModel(models.create("simple-cnn", {}).build((1, 28, 28), 10))
    x = torch.randn(2, 1, 28, 28, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        z = net.features(x)
        assert z.shape == (2, 512)
        assert float(z.min()) == 0.0
        assert float(z.max()) > 0.0
        assert same_bits(net.head(z), net(x))


@pytest.mark.parametrize(("options", "message"), [({}, "does not define 'features'"), ({"head": 8}, r"method\.head")])
def test_a_model_without_features(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        simulated("moon", options, model=softmax_model())


def projected(mu: float, head: int = 256) -> nn.Module:
    """What is trained, with the weights the run begins with."""
    return planned("moon", {"mu": mu, "head": head}, **arguments()).task.network().module


def test_projection_head() -> None:
    """Two layers with 256 outputs in front of the classifier, part of the model that is sent."""
    shapes = [tuple(parameter.shape) for parameter in projected(1.0).parameters()]
    assert shapes == [(6, 4), (6,), (6, 6), (6,), (256, 6), (256,), (3, 256), (3,)]
    result = simulated("moon", {"head": 256}, participation=[[0, 1]])
    assert len(result.weights) == sum(math.prod(shape) for shape in shapes)
    assert [len(result.device_state[device]["previous"]) for device in (0, 1)] == [len(result.weights)] * 2


def test_rounds_with_a_projection_head() -> None:
    expected = played(copy.deepcopy(projected(5.0)), reference(5.0))
    assert difference(simulated("moon", {"mu": 5.0, "head": 256}).weights, expected) < 2e-6
    plain = played(copy.deepcopy(projected(5.0)), reference(0.0))
    assert difference(expected, plain) > 1e-3


def test_mu_zero_with_a_projection_head_is_fedavg_of_that_model() -> None:
    moon = simulated("moon", {"mu": 0.0, "head": 256})
    assert same_bits(moon.weights, simulated("fedavg", model=projected(0.0)).weights)
