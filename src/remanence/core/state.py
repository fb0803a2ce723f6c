"""Trees of tensors, numbers and text: check, size, save, load. Files are safetensors with the tree as JSON inside."""

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from remanence.core.aligned import aligned
from remanence.errors import RunError, UserError

State = dict[str, Any]
Positions = dict[tuple, tuple[int, Tensor]]  # where a tensor lies in memory -> its number, and itself to keep it there
_PLAIN = (str, int, float, bool, type(None))


def flatten(tree: Any) -> tuple[Any, list[Tensor]]:
    """A JSON-able skeleton and the tensors it refers to by position; memory met twice is stored once."""
    positions: Positions = {}
    skeleton = _skeleton(tree, "", positions)
    return skeleton, [tensor for _, tensor in positions.values()]


# Not a function inside `flatten`: one that calls itself keeps every tensor it saw alive until a garbage collection.
def _skeleton(value: Any, path: str, positions: Positions) -> Any:
    if isinstance(value, Tensor):
        place = (value.data_ptr(), value.shape, value.stride(), value.dtype)  # not `id`: views of one are one
        return {"tensor": positions.setdefault(place, (len(positions), value))[0]}
    if isinstance(value, dict):
        return {"dict": [[_key(k, path), _skeleton(v, f"{path}.{k}", positions)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_skeleton(v, f"{path}[{i}]", positions) for i, v in enumerate(value)]}
    if isinstance(value, _PLAIN):
        return value
    raise TypeError(f"state{path}: {type(value).__name__} is not a tensor, a number, text, or a dict or list of them")


def unflatten(skeleton: Any, tensors: list[Tensor]) -> Any:
    if not isinstance(skeleton, dict):
        return skeleton
    ((kind, content),) = skeleton.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: unflatten(value, tensors) for key, value in content}
    items = [unflatten(value, tensors) for value in content]
    return items if kind == "list" else tuple(items)


def _key(key: Any, path: str) -> str | int:
    if not isinstance(key, (str, int)) or isinstance(key, bool):
        raise TypeError(f"state{path}: the key {key!r} is neither text nor a whole number")
    return key


def tensors_of(tree: Any) -> Iterator[Tensor]:
    yield from flatten(tree)[1]


def size(tree: Any) -> int:
    """Bytes of the tensors, each storage element counted once."""
    return sum(t.numel() * t.element_size() for t in tensors_of(tree))


def clone(tree: Any) -> Any:
    skeleton, tensors = flatten(tree)
    return unflatten(skeleton, [t.clone() for t in tensors])


def equal(one: Any, other: Any) -> bool:
    """Same tree, same bits, whatever memory its tensors share."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and _bytes(one) == _bytes(other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other or (one != one and other != other))  # NaN is equal to NaN


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def save(path: Path, tree: Any, flush: bool = True) -> None:
    """Write to a temporary name, flush to the disk, rename: the file is whole or not there."""
    skeleton, tensors = flatten(tree)
    stored = {f"{i:06d}": t.detach().contiguous() for i, t in enumerate(tensors)}
    text = json.dumps(skeleton)
    metadata = {"tree": text, "crc": str(_checksum(stored, text))}
    temporary = path.with_name(path.name + ".part")
    try:
        safetensors.torch.save_file({k: _own_storage(t) for k, t in stored.items()}, temporary, metadata)
        if flush:
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, safetensors.SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise RunError(f"{path}: could not be written: {_reason(error)}") from None


def load(path: Path) -> Any:
    """The tree saved at `path`; a UserError when the file is missing, cut, altered, or not one of ours."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            stored = {name: file.get_tensor(name) for name in sorted(file.keys(), key=int)}
        skeleton = json.loads(metadata["tree"])
        if metadata["crc"] != str(_checksum(stored, metadata["tree"])):
            raise UserError(f"{path}: damaged (its content does not match its checksum)")
        return unflatten(skeleton, [aligned(tensor) for tensor in stored.values()])
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file") from None
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(f"{path}: cut or damaged ({_reason(error)})") from None
    except (KeyError, ValueError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: not a file written by remanence ({type(error).__name__})") from None


def _checksum(tensors: dict[str, Tensor], text: str) -> int:
    crc = zlib.crc32(text.encode())
    for name in sorted(tensors):
        crc = zlib.crc32(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode(), crc)
        flat = tensors[name].reshape(-1)
        if flat.numel():
            crc = zlib.crc32(np.asarray(flat.view(torch.uint8)).data, crc)
    return crc


def _own_storage(tensor: Tensor) -> Tensor:
    """safetensors refuses tensors that share a storage."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error).splitlines()[0][:120]
