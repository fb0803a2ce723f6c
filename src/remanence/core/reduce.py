"""How uploads become one: sums in float64, in the order of device ids, so that nobody's speed changes a bit.

A product of a float32 and a sample count is exact in float64, so one device alone comes out bit for bit.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from remanence.core.message import Message


class Reducer:
    """Streams uploads: nothing is kept but the running sums of the entries named in `ups`."""

    def __init__(self, ups: Mapping[str, str], integers: slice) -> None:
        self.ups, self.integers = ups, integers
        self.sums: dict[str, Any] = {}
        self.totals: dict[str, float] = {}
        self.total_weight, self.samples, self.devices = 0.0, 0.0, 0
        self.largest: Tensor | None = None  # of integer buffers, which no mean suits

    def add(self, message: Message, weight: float) -> None:
        factors = {"weighted": weight, "samples": float(message.get("n", 0)), "sum": 1.0}
        for name, rule in self.ups.items():
            if name not in message:
                continue
            self._accumulate(name, message[name], factors[rule])
            self.totals[name] = self.totals.get(name, 0.0) + factors[rule]
        self.total_weight += weight
        self.samples += message.get("n", 0)
        self.devices += 1
        if self.integers.stop > self.integers.start:
            counters = message["w"][self.integers]
            self.largest = counters.clone() if self.largest is None else torch.maximum(self.largest, counters)

    def _accumulate(self, name: str, value: Any, factor: float) -> None:
        if not isinstance(value, Tensor):
            self.sums[name] = self.sums.get(name, 0.0) + factor * value
        elif name not in self.sums:
            self.sums[name] = value.to(torch.float64) * factor
        else:
            self.sums[name].add_(value, alpha=factor)

    def result(self) -> dict[str, Any]:
        merged = {name: self._finished(name, total) for name, total in self.sums.items()}
        return merged | {
            "total_weight": self.total_weight,
            "samples": self.samples,
            "devices": self.devices,
            "counters": self.largest,
        }

    def _finished(self, name: str, total: Any) -> Any:
        value = total if self.ups[name] == "sum" else total / self.totals[name]
        return value.to(torch.float32) if isinstance(value, Tensor) else value
