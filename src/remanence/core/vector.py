"""FlatModel: a torch module whose parameters are views of one vector.

`w` = trainable parameters, then everything that is averaged without a gradient: frozen parameters, floating
buffers, integer buffers (as floats: exact to 2^24). `g` has the length of `w`; only its first `size` entries act.
"""

import zlib
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from remanence.errors import UserError


class Placed(nn.Module):
    """A network that answers otherwise on a device than at the server."""

    device: int = -1  # where it stands; -1: at the server


class FlatModel:
    def __init__(self, module: nn.Module, bfloat16: bool = False) -> None:
        self.bfloat16 = bfloat16  # compute in bfloat16, keep weights and answers in float32
        module = module.to(torch.float32)
        self.module = module
        trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not trainable:
            raise UserError("model: it has no trainable parameter")
        frozen = {name: p for name, p in module.named_parameters() if not p.requires_grad}
        floats, self._integers = _buffers(module)
        self.layout = _layout({**trainable, **frozen, **floats, **self._integers})
        self.slices = _slices([*trainable.items(), *frozen.items(), *floats.items(), *self._integers.items()])
        self.size = sum(p.numel() for p in trainable.values())
        self.w = torch.empty(
            sum(t.numel() for t in (*trainable.values(), *frozen.values(), *floats.values(), *self._integers.values()))
        )
        self.g = torch.zeros_like(self.w)
        for name, tensor in {**trainable, **frozen, **floats}.items():
            view = self.w[self.slices[name]].view(tensor.shape)
            view.copy_(tensor.data)
            tensor.data = view
        for name, parameter in trainable.items():
            parameter.grad = self.g[self.slices[name]].view(parameter.shape)
        self.trainable = self.w[: self.size], self.g[: self.size]
        self._store_integers()
        self.integers = slice(len(self.w) - sum(t.numel() for t in self._integers.values()), len(self.w))
        self.logits = torch.empty(0)  # of the latest answer
        self.batch_norm = any(isinstance(m, _BatchNorm) for m in module.modules())

    def __call__(self, x: Tensor) -> Tensor:
        return self._answer(self.module, x)

    def features(self, x: Tensor) -> Tensor:
        """The penultimate activation; the model must define it."""
        return self._run(self._own("features"), x)

    def head(self, features: Tensor) -> Tensor:
        return self._answer(self._own("head"), features)

    def _answer(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        answer = self._run(function, x)
        self.logits = answer.detach()
        return answer

    def _run(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        if not self.bfloat16:
            return function(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return function(x).float()

    def load(self, vector: Tensor) -> None:
        """Become `vector`."""
        self.w.copy_(vector)
        for name, buffer in self._integers.items():
            buffer.copy_(self.w[self.slices[name]].view(buffer.shape))

    def copy(self) -> Tensor:
        self._store_integers()
        return self.w.clone()

    def part(self, name: str) -> slice:
        """The slice of the module called `name`: "head", "features", or a dotted path."""
        inside = [s for key, s in self.slices.items() if key.startswith(name + ".") and s.stop <= self.size]
        if not inside:
            raise UserError(f"model: {type(self.module).__name__} has no trainable part '{name}'")
        first, last = min(s.start for s in inside), max(s.stop for s in inside)
        assert last - first == sum(s.stop - s.start for s in inside), f"the parameters of {name} are not neighbours"
        return slice(first, last)

    def places(self, *names: str) -> list[slice]:
        """Where all that belongs to these modules lies, buffers too; neighbours in one slice."""
        found: list[slice] = []
        for key, place in self.slices.items():
            if not key.startswith(tuple(f"{name}." for name in names)):
                continue
            if found and found[-1].stop == place.start:
                found[-1] = slice(found[-1].start, place.stop)
            else:
                found.append(place)
        return found

    def narrow(self, part: slice) -> None:
        """From now on steps change this part alone."""
        self.trainable = self.w[part], self.g[part]

    def stand(self, device: int) -> None:
        """Answer as on this device; -1: as at the server. To most networks it is all the same."""
        if isinstance(self.module, Placed):
            self.module.device = device

    def train(self, mode: bool = True) -> None:
        self.module.train(mode)

    def _own(self, name: str) -> Callable[[Tensor], Tensor]:
        if not hasattr(self.module, name):
            raise UserError(f"model: {type(self.module).__name__} does not define '{name}', which this method needs")
        return getattr(self.module, name)  # type: ignore[no-any-return]

    def _store_integers(self) -> None:
        for name, buffer in self._integers.items():
            self.w[self.slices[name]] = buffer.reshape(-1).to(torch.float32)


def _buffers(module: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Floating and integer buffers that belong to the model's state."""
    kept = {name: b for name, b in module.named_buffers() if name in module.state_dict(keep_vars=True)}
    floats = {name: b for name, b in kept.items() if b.is_floating_point()}
    return floats, {name: b for name, b in kept.items() if name not in floats}


def _slices(tensors: list[tuple[str, Tensor]]) -> dict[str, slice]:
    slices, start = {}, 0
    for name, tensor in tensors:
        slices[name] = slice(start, start + tensor.numel())
        start += tensor.numel()
    return slices


def _layout(tensors: dict[str, Tensor]) -> int:
    """A number that two models share only if their vectors mean the same."""
    text = ";".join(f"{name}:{tuple(tensor.shape)}:{tensor.dtype}" for name, tensor in tensors.items())
    return zlib.crc32(text.encode())
