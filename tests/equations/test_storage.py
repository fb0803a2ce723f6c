"""What every method stores and sends, in multiples of the model: the table of the metrics card."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from by_autograd import two_layers
from torch import Tensor
from worlds import ONE_BY_ONE, STACKED, planned, played

import remanence
from remanence.config import parse
from remanence.core.state import size
from remanence.errors import UserError
from remanence.measure.storage import state_bytes
from remanence.runs.play import play

FEATURES, HIDDEN, CLASSES = 100, 60, 10
W = 4 * (FEATURES * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)  # bytes of the model
SAMPLES = (6, 9, 4)  # of each device
LARGEST = 4 * max(SAMPLES) * CLASSES  # bytes of FedPSD's stored outputs on the largest device
PUBLIC = 7  # samples at the server
BINS = ("server", "device_kept", "device_transient", "down", "up")

# In models, at momentum 0: server, kept by a device, on a device in training, down, up.
TABLE: dict[str, tuple[int, ...]] = {
    "fedavg": (1, 0, 2, 1, 1),
    "fedprox": (1, 0, 3, 1, 1),
    # The card's 3 are w, U and V. U and V are running sums that cannot be made anew, so the card has them accumulated
    # in float64: vectors of double width, 1 + 2 * 2. What travels and what devices hold is float32.
    "fedcurv": (5, 2, 6, 3, 3),
    "fedcm": (2, 0, 3, 2, 1),
    "fedga": (1, 0, 2, 1, 1),
    "fedawac": (6, 0, 3, 1, 1),  # M = 5
    "fednova": (1, 0, 2, 1, 1),
    "scaffold": (2, 1, 5, 2, 2),
    "moon": (1, 1, 4, 1, 1),
    "fedntd": (1, 0, 3, 1, 1),
    "fedlmd": (1, 0, 3, 1, 1),
    "fedpsd": (1, 0, 2, 1, 1),
}

# Bytes beside these multiples.
BESIDE: dict[str, dict[str, int]] = {
    "fedawac": {"server": 4 * PUBLIC * FEATURES},  # P
    "fedlmd": {"device_transient": CLASSES},  # M_k, a byte for each class
    "fedpsd": {"device_kept": LARGEST, "device_transient": LARGEST + 4 * CLASSES},  # O_k; with log pi in training
}

STACKING = ("fedavg", "fedprox", "fedcm", "fedawac", "fednova", "scaffold")
ENTRIES = {"fedcurv": (3, 4), "fedcm": (2, 3), "fednova": (1, 3), "scaffold": (2, 3)}  # of a message down, up


def devices() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(n, FEATURES, generator=generator), torch.randint(0, CLASSES, (n,), generator=generator))
        for n in SAMPLES
    ]


def measured(method: str, options: dict[str, Any] | None = None, **settings: Any) -> dict[str, int]:
    """After six rounds: every device has taken part before, and a window of five is full."""
    plan = planned(
        method, options, model=two_layers(FEATURES, HIDDEN, CLASSES), devices=devices(), rounds=6, lr=0.01,
        public=torch.ones(PUBLIC, FEATURES), **settings,
    )  # fmt: skip
    return state_bytes(played(plan))


def cases() -> list[Any]:
    """Every method one by one, and stacked where that is possible; FedCM refuses momentum."""
    found = [(method, momentum, ONE_BY_ONE) for method in TABLE for momentum in (0.0, 0.9)]
    found += [(method, momentum, STACKED) for method in STACKING for momentum in (0.0, 0.9)]
    return [
        pytest.param(*case, id=f"{case[0]}-{case[1]}-{'stacked' if case[2] == STACKED else 'one-by-one'}")
        for case in found
        if case[:2] != ("fedcm", 0.9)
    ]


@pytest.mark.parametrize(("method", "momentum", "engine"), cases())
def test_table(method: str, momentum: float, engine: dict[str, Any]) -> None:
    """Stored bytes exactly; a message may exceed its tensors by its head and its numbers."""
    found = measured(method, momentum=momentum, engine=engine)
    multiples = dict(zip(BINS, TABLE[method], strict=True))
    multiples["device_transient"] += momentum > 0
    for name in BINS[:3]:
        assert found[name] == multiples[name] * W + BESIDE.get(method, {}).get(name, 0), name
    for name, entries in zip(("down", "up"), ENTRIES.get(method, (1, 2)), strict=True):
        assert 0 < found[name] - multiples[name] * W <= head(entries), name


def head(entries: int) -> int:
    """Most bytes of a message beside its tensors: 8 of length, and for each entry and each of round, device and
    layout 80 of description and number; padded to whole words."""
    return 16 + 80 * (entries + 3)


def test_fedcm_takes_no_momentum() -> None:
    with pytest.raises(UserError, match=r"train\.momentum"):
        measured("fedcm", momentum=0.9)


@pytest.mark.parametrize("window", [1, 2, 6])
def test_fedawac_keeps_the_window_beside_the_model(window: int) -> None:
    found = measured("fedawac", {"models": window}, engine=ONE_BY_ONE)
    assert found["server"] == (window + 1) * W + 4 * PUBLIC * FEATURES


def test_public_samples_count_for_those_who_need_them() -> None:
    assert measured("fedavg", engine=ONE_BY_ONE)["server"] == W


def test_adam_holds_two_moments() -> None:
    assert measured("fedavg", optimiser="adam", engine=ONE_BY_ONE)["device_transient"] == 4 * W


@pytest.mark.parametrize(
    ("method", "options"), [("fedprox", {"mu": 0.0}), ("moon", {"mu": 0.0}), ("fedntd", {"beta": 0.0})]
)
def test_terms_that_are_off_cost_nothing(method: str, options: dict[str, Any]) -> None:
    off, plain = (measured(*chosen, engine=ONE_BY_ONE) for chosen in ((method, options), ("fedavg", {})))
    assert off == plain


def test_a_tensor_met_twice_is_stored_once() -> None:
    tensor = torch.zeros(5)
    assert size({"one": tensor, "other": [tensor]}) == 20
    assert size({"one": tensor, "other": [tensor.clone()], "number": 3, "wide": tensor.double()}) == 80


def experiment(method: str) -> dict[str, Any]:
    return {
        "name": "storage", "rounds": 2, "devices": {"count": 8, "per_round": 8, "partition": "iid"},
        "model": {"name": "mlp", "hidden": [8]}, "train": {"epochs": 1, "lr": 0.1}, "method": {"name": method},
        "engine": ONE_BY_ONE,
    }  # fmt: skip


@pytest.mark.parametrize("method", ["scaffold", "moon", "fedpsd"])
def test_result_of_a_run(method: str, tmp_path: Path) -> None:
    """64 -> 8 -> 10: 610 parameters. FedPSD: 1,797 digits less the test set, at most 225 on a device."""
    result = play(parse(experiment(method)), tmp_path)
    found = result["state_bytes"]
    assert tuple(found) == BINS
    assert [round(found[name] / 2440) for name in ("server", "down", "up")] == [TABLE[method][i] for i in (0, 3, 4)]
    beside = [found[name] - 2440 * TABLE[method][i] for i, name in ((1, BINS[1]), (2, BINS[2]))]
    assert beside == (fedpsd_bytes(beside[0]) if method == "fedpsd" else [0, 0])
    assert json.loads(next(tmp_path.rglob("result.json")).read_text())["state_bytes"] == found


def fedpsd_bytes(kept: int) -> Sequence[int]:
    """Whole rows of ten numbers; the same and ten log-probabilities in training."""
    assert 0 < kept <= 225 * 40
    assert kept % 40 == 0
    return [kept, kept + 40]


def test_bytes_of_the_history_are_those_of_the_account() -> None:
    settings: dict[str, Any] = {"model": two_layers(FEATURES, HIDDEN, CLASSES), "devices": devices(), "rounds": 2}
    for method in ("fedcurv", "moon"):
        history = remanence.simulate(method, engine=ONE_BY_ONE, **settings).history
        found = state_bytes(played(planned(method, engine=ONE_BY_ONE, **settings)))
        assert [event["bytes_down"] for event in history] == [3 * found["down"]] * 2
        assert [event["bytes_up"] for event in history] == [3 * found["up"]] * 2
