"""What is measured in a round, and what a whole run comes to."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from remanence.data.fleet import Counts
from remanence.data.samples import Samples
from remanence.measure.accuracy import device_accuracies, per_class, per_task
from remanence.measure.forgetting import forgetting
from remanence.measure.participation import gini, participation_counts, turns
from remanence.registry import options

NO_SAMPLES = "no samples to train on"  # why a device without data is refused
CLIENT_ACCURACIES = ("client_acc_global", "client_acc_local", "client_acc_out")


@options
class Measure:
    """The `[measure]` table."""

    every: int = Field(1, ge=1, description="rounds between tests of the global model; the last is always tested")
    devices: int = Field(0, ge=0, description="rounds between tests of the devices' own models; 0 = only the last")
    all: int = Field(
        0, ge=0, description="rounds between tests of what every device of the fleet would make of the model; 0 = never"
    )


class Tester(Protocol):
    def measure(self, w: Tensor) -> tuple[Tensor, float]: ...


class Recorder:
    def __init__(self, measure: Measure, rounds: int, fleet: Counts, test: Samples | None) -> None:
        self.measure, self.rounds, self.fleet, self.test = measure, rounds, fleet, test

    def measures(self, round: int) -> bool:
        return self.test is not None and (round % self.measure.every == 0 or round == self.rounds)

    def measures_devices(self, round: int) -> bool:
        every = self.measure.devices
        return self.test is not None and (round == self.rounds or bool(every and round % every == 0))

    def measures_all(self, round: int) -> bool:
        every = self.measure.all
        return self.test is not None and bool(every) and round % every == 0

    def server(self, w: Tensor, tester: Tester) -> dict[str, Any]:
        """The global model on the common test set."""
        assert self.test is not None
        if not bool(w.isfinite().all()):
            chance = 1 / self.test.classes
            known = [chance if count else None for count in self.test.counts.tolist()]
            return {"diverged": True, "accuracy": chance, "test_loss": None, "per_class": known, "per_task": [chance]}
        correct, loss = tester.measure(w)
        samples = len(self.test)
        return {
            "accuracy": int(correct.sum()) / samples,
            "test_loss": loss / samples if math.isfinite(loss) else None,
            "per_class": per_class(correct, self.test.counts),
            "per_task": per_task(correct, self.test.counts, [range(self.test.classes)]),
        }

    def devices(self, own: Mapping[int, Tensor | None]) -> dict[str, Any]:
        """The counted devices' own models, before they were merged: three means over devices."""
        if self.test is None:
            return {}
        measured = {device: correct for device, correct in own.items() if correct is not None}
        rows = [
            device_accuracies(per_class(correct, self.test.counts), _shares(self.fleet.counts(device)))
            for device, correct in measured.items()
        ]
        sizes = [self.fleet.sizes[device] for device in measured]
        facts: dict[str, Any] = {}
        for name, values in zip(CLIENT_ACCURACIES, zip(*rows, strict=True), strict=False):
            facts |= _over_devices(name, values, sizes)
        return facts


def _over_devices(name: str, values: Sequence[float | None], sizes: Sequence[int]) -> dict[str, float | None]:
    """Mean, mean by samples, and deviation over the devices that have a value."""
    known = [(value, size) for value, size in zip(values, sizes, strict=True) if value is not None]
    if not known:
        return dict.fromkeys((name, f"{name}_weighted", f"{name}_std"))
    numbers, weights = np.array(known).T
    return {
        name: float(numbers.mean()),
        f"{name}_weighted": float(np.average(numbers, weights=weights)),
        f"{name}_std": float(numbers.std(ddof=1)) if len(numbers) > 1 else None,
    }


def _shares(counts: np.ndarray) -> np.ndarray:
    shares: np.ndarray = counts / counts.sum()
    return shares


def summary(history: Sequence[Mapping[str, Any]], devices: int) -> dict[str, Any]:
    """The run in a dozen numbers, from its events alone."""
    tested = [event for event in history if "accuracy" in event]
    as_printed, clamped = forgetting([event["per_class"] for event in tested])
    accuracies = [event["accuracy"] for event in tested]
    participation = participation_counts(map(turns, history), devices)
    return {
        "rounds": len(history),
        "accuracy": accuracies[-1] if tested else None,
        "accuracy_best": max(accuracies, default=None),
        "accuracy_last10": _last_ten(tested, len(history)),
        "forgetting": as_printed,
        "forgetting_clamped": clamped,
        **_raw(tested),
        "per_class": tested[-1]["per_class"] if tested else None,
        "per_task": tested[-1]["per_task"] if tested else None,
        **{name: _last(history, name) for name in CLIENT_ACCURACIES},
        "bytes_up": sum(event["bytes_up"] for event in history),
        "bytes_down": sum(event["bytes_down"] for event in history),
        "participation": {
            "least": int(participation.min()),
            "most": int(participation.max()),
            "gini": gini(participation),
        }
        if history
        else None,
        **_links(history),
        "idle_rounds": sum(map(_idle, history)),
        "refused": sum(len(event["refused"]) for event in history),
        "diverged": any(event.get("diverged") for event in history),
    }


def _idle(event: Mapping[str, Any]) -> bool:
    """Whether nobody had data to train on."""
    return not event["counted"] and all(reason == NO_SAMPLES for reason in event["refused"].values())


def _links(history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Bytes by link, where there are several."""
    known = [event["links"] for event in history if "links" in event]
    if not known:
        return {}
    return {
        "links": {name: {way: sum(links[name][way] for links in known) for way in ("up", "down")} for name in known[0]}
    }


def _raw(tested: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of the model before a server optimiser averaged it over rounds, which lowers forgetting by itself."""
    if not any("raw" in event for event in tested):
        return {}
    models = [event.get("raw", event) for event in tested]  # until the window is full they are the same
    as_printed, clamped = forgetting([model["per_class"] for model in models])
    return {
        "accuracy_raw": models[-1]["accuracy"],
        "forgetting_raw": as_printed,
        "forgetting_raw_clamped": clamped,
    }


def _last_ten(tested: Sequence[Mapping[str, Any]], rounds: int) -> float | None:
    """The mean over the last ten rounds, of those that were tested."""
    values = [event["accuracy"] for event in tested if event["round"] > rounds - 10]
    return float(np.mean(values)) if values else None


def _last(history: Sequence[Mapping[str, Any]], name: str) -> Any:
    return next((event[name] for event in reversed(history) if name in event), None)


def digest(w: Tensor) -> str:
    """SHA-256 of the weights' bytes."""
    return hashlib.sha256(w.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
