"""FedGS = sites + a selector + FedAvg: the identities of its card."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from worlds import ONE_BY_ONE, planned

import remanence
from remanence.core.pooled import Pool
from remanence.data.stream import permutation
from remanence.engine.memory import one_thread
from remanence.engine.worker import Worker
from remanence.simulation import Simulation

FEATURES, CLASSES, N, ETA, SEED = 6, 3, 8, 0.1, 4
ONCE = {"kind": "one-shot", "size": N, "order": "file"}
Device = tuple[Tensor, Tensor]


def devices(count: int) -> list[Device]:
    generator = torch.Generator().manual_seed(2)
    made = []
    for number in range(count):
        y = torch.randint(0, CLASSES, (20 + number,), generator=generator)
        made.append((torch.randn(len(y), FEATURES, generator=generator) + y.view(-1, 1), y))
    return made


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, CLASSES))


def world(count: int, sites: Any, iterations: int, chosen: int, **more: Any) -> dict[str, Any]:
    return {
        "model": model(),
        "devices": devices(count),
        "sites": sites,
        "participation": chosen,
        "topology": {"name": "sites", "iterations": iterations, **more.pop("topology", {})},
        "stream": {"kind": "cycle", "size": N},
        "lr": ETA,
        "seed": SEED,
        "engine": ONE_BY_ONE,
        **more,
    }


def fedgs(count: int, sites: Any, iterations: int, chosen: int, **more: Any) -> Simulation:
    return remanence.simulate(**world(count, sites, iterations, chosen, **more))


def batch(fleet: list[Device], device: int, number: int) -> Device:
    """The `number`-th batch of a device, from the definition: passes behind one another, cut into N."""
    x, y = fleet[device]
    passes = np.concatenate([permutation(len(y), SEED, device, k) for k in range(number * N // len(y) + 2)])
    rows = torch.from_numpy(passes[number * N : (number + 1) * N])
    return x[rows], y[rows]


def first(device: Device) -> Device:
    return device[0][:N], device[1][:N]


def second(device: Device) -> Device:
    return device[0][N:], device[1][N:]


def step(w: Tensor, batches: list[Device]) -> Tensor:
    """One step of plain SGD on the pooled batches."""
    net = model()
    nn.utils.vector_to_parameters(w, net.parameters())
    loss = F.cross_entropy(net(torch.cat([x for x, _ in batches])), torch.cat([y for _, y in batches]))
    gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(net.parameters()))])
    return (w - ETA * gradient).detach()


def start() -> Tensor:
    return nn.utils.parameters_to_vector(model().parameters()).detach()


def near(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() < 1e-6)


@pytest.mark.parametrize("pooled", [True, False])
def test_one_site_one_iteration_is_one_step_on_the_pooled_batches(pooled: bool) -> None:
    run = fedgs(4, 1, 1, 4, topology={"pooled": pooled})
    assert near(run.weights, step(start(), [batch(devices(4), k, 0) for k in range(4)]))


@pytest.mark.parametrize("sites", [2, 3])
def test_one_iteration_is_synchronous_sgd(sites: int) -> None:
    """T = 1 and equal n: the mean of the sites' steps is one step on all M L batches."""
    run = fedgs(6, sites, 1, 6 // sites)
    assert near(run.weights, step(start(), [batch(devices(6), k, 0) for k in range(6)]))


def test_every_iteration_uses_the_next_batches() -> None:
    run = fedgs(2, 1, 3, 2, rounds=2)
    w = start()
    for number in range(6):
        w = step(w, [batch(devices(2), k, number) for k in range(2)])
    assert near(run.weights, w)


def test_a_device_per_site_is_fedavg_with_local_steps_bit_for_bit() -> None:
    """L = K^m = 1: T iterations of one device are T local steps on the same batches."""
    fleet, iterations, rounds = devices(3), 4, 2
    ours = fedgs(3, 3, iterations, 1, rounds=rounds)
    told = [[batch(fleet, k, t) for t in range(iterations * rounds)] for k in range(3)]
    local = [(torch.cat([x for x, _ in one]), torch.cat([y for _, y in one])) for one in told]

    def steps(device: int, round: int, epoch: int) -> list[Tensor]:
        begin = (round - 1) * iterations
        return [torch.arange((begin + t) * N, (begin + t + 1) * N) for t in range(iterations)]

    theirs = remanence.simulate(
        model=model(), devices=local, rounds=rounds, lr=ETA, batches=steps, merge="uniform", engine=ONE_BY_ONE
    )
    assert torch.equal(ours.weights, theirs.weights)


@pytest.mark.parametrize("select", ["uniform", "gbp-cs", "best-swap"])
def test_where_everyone_is_selected_selectors_agree(select: str) -> None:
    run = fedgs(6, 2, 3, 3, rounds=2, select=select)
    assert torch.equal(run.weights, fedgs(6, 2, 3, 3, rounds=2).weights)


@pytest.mark.parametrize("select", ["uniform", "gbp-cs", "best-swap", "tabu"])
def test_pooled_and_per_device_steps_agree(select: str) -> None:
    pooled, alone = (
        fedgs(12, 3, 5, 2, topology={"pooled": choice}, rounds=3, select=select) for choice in (True, False)
    )
    assert near(pooled.weights, alone.weights)
    facts = ("selected", "counted", "turns", "samples", "bytes_up", "bytes_down", "links", "largest_weight")
    for ours, theirs in zip(pooled.history, alone.history, strict=True):
        assert [ours[name] for name in facts] == [theirs[name] for name in facts]
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-6)
        assert ours["divergence"] == theirs["divergence"]


def pools(**settings: Any) -> bool:
    plan = planned(**world(4, 2, 1, 2, **settings))
    with one_thread():
        return Pool.of(Worker(plan.task), plan.topology, plan.engine.quorum) is not None


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"optimise": "fedadam"}], ids=str)
def test_what_pools(settings: dict[str, Any]) -> None:
    """A single step from a fresh momentum is a plain step; a server optimiser acts at the cloud."""
    assert pools(**settings)


NORMED = nn.Sequential(nn.Linear(FEATURES, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES))
DROPPING = nn.Sequential(nn.Linear(FEATURES, 4), nn.Dropout(0.5), nn.Linear(4, CLASSES))


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "fedprox"},
        {"method": "scaffold"},
        {"optimiser": "adam"},
        {"clip": 1.0},
        {"epochs": 2},
        {"merge": "uniform"},
        {"topology": {"pooled": False}},
        {"engine": {"quorum": 0.5}},
        {"model": NORMED},
        {"model": DROPPING},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_does_not_pool(settings: dict[str, Any]) -> None:
    assert not pools(**settings)


def unequal(*sizes: int) -> list[Device]:
    generator = torch.Generator().manual_seed(5)
    return [
        (torch.randn(n, FEATURES, generator=generator), torch.randint(0, CLASSES, (n,), generator=generator))
        for n in sizes
    ]


def test_unequal_batches_are_weighted_by_samples() -> None:
    """Eq. 4 at the end of a one-shot stream: n_k / sum n."""
    fleet = unequal(8, 3)
    run = fedgs(2, 1, 1, 2, devices=fleet, stream=ONCE)
    assert near(run.weights, step(start(), fleet))
    assert run.history[0]["largest_weight"] == pytest.approx(8 / 11)


def test_an_idle_site_keeps_its_model_and_counts() -> None:
    """Site 1 has no data in round 2: its model is the one that it was given."""
    fleet = unequal(16, 8)
    run = fedgs(2, 2, 1, 1, devices=fleet, stream=ONCE, rounds=2)
    assert [event["selected"] for event in run.history] == [[0, 1], [0]]
    w = (step(start(), [first(fleet[0])]) + step(start(), [fleet[1]])) / 2
    assert near(run.weights, (step(w, [second(fleet[0])]) + w) / 2)


def test_by_samples_an_idle_site_counts_for_nothing() -> None:
    """In round 3 nobody has data, and w stays."""
    fleet = unequal(16, 8)
    run = fedgs(2, 2, 1, 1, devices=fleet, stream=ONCE, rounds=3, topology={"weights": "by_samples"})
    w = (step(start(), [first(fleet[0])]) + step(start(), [fleet[1]])) / 2
    assert near(run.weights, step(w, [second(fleet[0])]))
    assert run.history[2]["selected"] == []


def test_every_iteration_consumes_a_batch_of_every_chosen_device() -> None:
    run = fedgs(12, 3, 5, 2, rounds=2, select={"name": "gbp-cs", "random": 1})
    for event in run.history:
        assert sum(event["turns"]) == 3 * 5 * 2
        assert event["samples"] == 3 * 5 * 2 * N


def test_participation_counts_every_iteration() -> None:
    often = fedgs(12, 3, 5, 2, rounds=4, select="best-swap").summary["participation"]
    assert often["least"] < often["most"] <= 4 * 5
    assert often["gini"] > 0


def test_a_better_selector_lowers_the_divergence() -> None:
    means = [
        np.mean([event["divergence"] for event in fedgs(24, 2, 10, 4, rounds=3, select=select).history])
        for select in ("best-swap", "gbp-cs", "uniform")
    ]
    assert means == sorted(means)


def test_the_server_optimiser_acts_at_the_cloud_alone() -> None:
    plain = fedgs(4, 2, 3, 2)
    half = fedgs(4, 2, 3, 2, optimise={"name": "fedavgm", "eta": 0.5})
    assert near(half.weights, start() + 0.5 * (plain.weights - start()))


def test_random_devices_may_be_the_same_for_a_whole_round() -> None:
    """As the published code draws them: the same positions in all iterations and in every site."""
    select = {"name": "monte-carlo", "random": 2, "random_per_round": True}
    for event in fedgs(12, 2, 6, 2, rounds=3, select=select).history:
        assert event["turns"] == [6] * 4
        assert [device - 6 for device in event["counted"][2:]] == event["counted"][:2]


def test_the_edge_keeps_the_state_of_a_method() -> None:
    """Every site has a SCAFFOLD of its own; c is a mean over the devices of the site."""
    run = fedgs(4, 2, 2, 2, method="scaffold", stream="static", rounds=2)
    for site, members in enumerate([[0, 1], [2, 3]]):
        mean = torch.stack([run.device_state[k]["c"] for k in members]).mean(0)
        assert near(run.server_state["sites"][site]["c"], mean)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"chosen": 3}, "3 devices per round is not allowed: there are 2"),
        ({"method": "fedpsd"}, "remembers every sample"),
        ({"sites": [[0], [1, 2]]}, "every device must belong"),
        ({"sites": 5}, "5 is not allowed: there are 4 devices"),
        ({"participation": [[0, 1]]}, "lists are not allowed with topology 'sites'"),
        ({"stream": {"kind": "cicle"}}, "did you mean 'cycle'"),
        ({"stream": {"kind": "cycle", "size": 0}}, "stream.size: 0 is not allowed"),
        ({"engine": {"cohort": "on"}}, "devices of sites are not stacked"),
        ({"measure": {"all": 1}, "test": (torch.randn(2, FEATURES), [0, 1])}, "measure.all"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_does_not_fit_is_one_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(remanence.UserError, match=line):
        fedgs(**{"count": 4, "sites": 2, "iterations": 1, "chosen": 2, **settings})
