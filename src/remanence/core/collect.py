"""The server's half of a round: check what arrives, count it or refuse it, reduce it in the order of device ids."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from remanence.core.context import Context
from remanence.core.message import Message, Refused
from remanence.core.method import Method
from remanence.core.parts import Merge
from remanence.core.reduce import Reducer
from remanence.core.state import State


class Collector:
    """One rule for every method: a device whose upload is not counted is as if it had not taken part."""

    def __init__(
        self,
        method: Method,
        merge: Merge,
        w: Tensor,
        srv: State,
        ctx: Context,
        arrivals: Sequence[int],
        quorum: int,
        largest: int,
        integers: slice,
        like: Message | None,
        least: int = 1,
    ) -> None:
        self.method, self.merge, self.w, self.srv, self.ctx = method, merge, w, srv, ctx
        self.arrivals, self.quorum, self.largest = list(arrivals), quorum, largest
        self.holds = method.needs_all or merge.needs_all or merge.weighs or quorum < len(arrivals)
        self.reducer = Reducer(method.ups, integers)
        self.pending = sorted(arrivals)  # not yet reduced, in the order of reduction
        self.messages: dict[int, Message] = {}
        self.refused: dict[int, str] = {}
        self.weights: dict[int, float] = {}
        self.bytes = 0
        self.like = like  # what an upload must look like
        self.least = least  # samples behind an upload
        self.form: tuple = ()  # of the last good upload, and its bytes
        self.size = 0

    def take(self, device: int, upload: Message | None, reason: str) -> None:
        """An answer, or the reason why there is none; in any order."""
        try:
            if upload is None:
                raise Refused(reason)
            self._check(upload)
            self.messages[device] = self._completed(upload)
        except Refused as refusal:
            self.refused[device] = str(refusal)
        if not self.holds:
            self._reduce_settled()

    def _completed(self, upload: Message) -> Message:
        """With what the server derives from it."""
        derived = Message(self.method.arrive(upload, self.w, self.ctx))
        derived.update(self.merge.arrive(Message(upload | derived) if derived else upload, self.ctx))
        derived.check_finite()
        return Message(upload | derived) if derived else upload

    def _check(self, upload: Message) -> None:
        form = upload.form()
        known = form == self.form
        size = self.size if known else upload.size()
        self.bytes += size
        if size > self.largest:
            raise Refused(f"{size} bytes, more than engine.largest_upload = {self.largest}")
        if not known and self.like is not None:
            upload.check_form(self.like)
        upload.check_finite()
        self.like, self.form, self.size = self.like or upload, form, size
        if not isinstance(upload.get("n"), int) or upload["n"] < self.least:
            raise Refused(f"'n' is {upload.get('n')!r}, not a number of samples")
        upload["n"] = self.merge.samples(upload["n"])

    def _reduce_settled(self) -> None:
        while self.pending and (self.pending[0] in self.messages or self.pending[0] in self.refused):
            device = self.pending.pop(0)
            if device in self.messages:
                message = self.messages.pop(device)
                self._add(device, message, self._weight(device, message))

    def _weight(self, device: int, message: Message) -> float:
        if not self.method.has_weights:
            return float(message["n"])
        return float(self.method.weigh({device: message}, self.srv, self.ctx)[0])

    def _add(self, device: int, message: Message, weight: float) -> None:
        self.weights[device] = weight
        self.reducer.add(message, weight)

    def finish(self) -> dict[str, object]:
        """What the uploads were reduced to; empty when nothing was counted."""
        for device in self.pending:
            if device not in self.messages and device not in self.refused:
                self.refused[device] = "late: the deadline had passed"
        if not self.holds:
            self._reduce_settled()
            return self._reduced() if any(self.weights.values()) else {}
        return self._merge_held()

    def _merge_held(self) -> dict[str, object]:
        in_time = [device for device in self.arrivals if device in self.messages]
        for device in in_time[self.quorum :]:
            self.refused[device] = "late: the quorum was reached"
        held = {device: self.messages[device] for device in sorted(in_time[: self.quorum])}
        if not held:
            return {}
        weights = self._weights(held)
        for (device, message), weight in zip(held.items(), weights.tolist(), strict=True):
            self._add(device, message, weight)
        if not any(self.weights.values()):
            return {}
        merged = self._reduced()
        return merged | self._robust(held, weights) if self.merge.needs_all else merged

    def _reduced(self) -> dict[str, object]:
        return self.reducer.result() | {"counted": self.counted}

    def _weights(self, held: dict[int, Message]) -> Tensor:
        if self.merge.weighs:
            return self.merge.weigh(held, self.ctx)
        return self.method.weigh(held, self.srv, self.ctx)

    def _robust(self, held: dict[int, Message], weights: Tensor) -> dict[str, Tensor]:
        names = [name for name, rule in self.method.ups.items() if rule == "weighted"]
        rows = {name: torch.stack([message[name] for message in held.values()]) for name in names}
        return {name: self.merge.merge(rows[name], weights) for name in names}

    @property
    def counted(self) -> list[int]:
        return sorted(self.weights)

    @property
    def largest_weight(self) -> float | None:
        """The largest share that one device had in the average."""
        total = sum(self.weights.values())
        return max(self.weights.values()) / total if self.weights and total and math.isfinite(total) else None
