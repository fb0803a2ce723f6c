"""Where a strength of zero makes a method FedAvg, it is FedAvg bit for bit."""

from typing import Any

import pytest

from contract.cases import NETS, Case, play, reference
from remanence.core.method import Method
from remanence.registry import methods, option_fields, parts

EXCHANGE = ("down", "begin", "up", "weigh", "step", "loss", "end_epoch", "open_server", "open_device", "network")


def changes_gradients_by_mu_only(cls: type[Any]) -> bool:
    return "mu" in option_fields(cls) and all(getattr(cls, stage) is getattr(Method, stage) for stage in EXCHANGE)


REDUCED = [
    name
    for name in methods.names()
    if name not in methods.combinations and changes_gradients_by_mu_only(methods.get(name))
]


def test_fedprox_is_among_them() -> None:
    assert "fedprox" in REDUCED


@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("net", ["mlp", *NETS])
def test_mu_zero_is_fedavg(name: str, net: str) -> None:
    model = {} if net == "mlp" else {"model": NETS[net]()}
    plain = Case(name, {"method": name, "options": {"mu": 0.0}}).plan(**model)
    strong = Case(name, {"method": name, "options": {"mu": 0.5}}).plan(**model)
    assert play(plain) == reference("fedavg", net)
    assert play(strong) != reference("fedavg", net)


def test_server_momentum_zero_is_fedavg() -> None:
    case = Case("fedavgm", {"optimise": {"name": "fedavgm", "beta": 0.0}})
    run, expected = play(case.plan()), reference("fedavg")
    assert run.events == expected.events
    assert run.w.equal(expected.w)


@pytest.mark.parametrize("name", parts["merge"].names())
def test_merging_one_device_gives_its_model_to_every_merge(name: str) -> None:
    alone = [[0], [0], [0]]
    merged = play(Case(name, {"merge": name}).plan(participation=alone))
    plain = play(Case("mean", {}).plan(participation=alone))
    assert merged.w.equal(plain.w)
