"""What crosses a border: named tensors and numbers, the bytes they take, and the checks before they are used."""

import json
import math
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor


class Refused(Exception):
    """A message is not used; the text says why and goes into the event log."""


class Message(dict[str, Any]):
    """`Message(w=vector, n=12)`. Numbers travel as 8-byte scalars, so the size depends on names and shapes alone."""

    def to_bytes(self, **envelope: int) -> bytes:
        """`envelope`: round, device, layout."""
        tensors = {name: _tensor(value) for name, value in self.items()}
        tensors |= {f"@{name}": torch.tensor(number) for name, number in envelope.items()}
        return safetensors.torch.save(tensors)

    @staticmethod
    def from_bytes(data: bytes, limit: int | None = None) -> tuple["Message", dict[str, int]]:
        """The message and its envelope; `limit` is the largest size in bytes that is read."""
        if limit is not None and len(data) > limit:
            raise Refused(f"{len(data)} bytes, more than the limit of {limit}")
        try:
            tensors = safetensors.torch.load(data)
        except (
            SafetensorError,
            KeyError,
            ValueError,
            TypeError,
            RuntimeError,
            json.JSONDecodeError,
        ) as error:
            raise Refused(f"unreadable: {str(error).splitlines()[0][:80]}") from None
        message, envelope = Message(), {}
        for name, tensor in sorted(tensors.items()):
            if name.startswith("@"):
                if tensor.dim() or tensor.dtype != torch.int64:
                    raise Refused(f"'{name}' is not a whole number")
                envelope[name[1:]] = int(tensor)
            else:
                message[name] = tensor if tensor.dim() else tensor.item()
        return message, envelope

    def size(self) -> int:
        """Bytes on the wire, exactly those of `to_bytes(round=, device=, layout=)`."""
        form = self.form()
        if form not in _SIZES:
            _SIZES[form] = len(self.to_bytes(round=0, device=0, layout=0))
        return _SIZES[form]

    def form(self) -> tuple:
        """Names, types and shapes."""
        return tuple([(name, *_kind(value)) for name, value in self.items()])

    def outline(self) -> "Message":
        """The same names, types and shapes, in no memory to speak of."""
        return Message({name: _outlined(value) for name, value in self.items()})

    def check_form(self, like: Mapping[str, Any]) -> None:
        """Refuse what does not have the names and shapes of `like`."""
        if set(self) != set(like):
            raise Refused(f"it holds {sorted(self)}, expected {sorted(like)}")
        for name, value in self.items():
            expected = like[name]
            if isinstance(value, Tensor) != isinstance(expected, Tensor):
                raise Refused(f"'{name}' is a {type(value).__name__}, expected a {type(expected).__name__}")
            if isinstance(value, Tensor) and (value.shape != expected.shape or value.dtype != expected.dtype):
                raise Refused(f"'{name}' is {_describe(value)}, expected {_describe(expected)}")

    def check_finite(self) -> None:
        for name, value in self.items():
            if not _finite(value):
                raise Refused(f"'{name}' is not finite")


_SIZES: dict[tuple, int] = {}


def _outlined(value: Any) -> Any:
    return torch.zeros((), dtype=value.dtype).expand(value.shape) if isinstance(value, Tensor) else value


def _finite(value: Any) -> bool:
    if not isinstance(value, Tensor):
        return math.isfinite(value)
    # A sum is finite only if every entry is, unless it overflows; the slow test settles that rare case.
    return not value.is_floating_point() or math.isfinite(value.sum().item()) or bool(value.isfinite().all())


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().contiguous()
    return torch.tensor(value, dtype=_number_type(value))


def _number_type(value: Any) -> torch.dtype:
    if not isinstance(value, (int, float)):
        raise TypeError(f"a message holds tensors and numbers, not {type(value).__name__}")
    return torch.float64 if isinstance(value, float) else torch.int64


def _kind(value: Any) -> tuple[torch.dtype, tuple[int, ...]]:
    return (value.dtype, value.shape) if isinstance(value, Tensor) else (_number_type(value), ())


def _describe(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
