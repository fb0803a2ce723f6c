"""Trees of tensors through a pipe between processes: the skeleton as JSON, then every tensor's bytes as they are."""

import json
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from remanence.core.state import flatten, unflatten


def send(connection: Connection, tree: Any) -> None:
    skeleton, tensors = flatten(tree)
    kinds = [(str(t.dtype).removeprefix("torch."), list(t.shape)) for t in tensors]
    connection.send_bytes(json.dumps([skeleton, kinds]).encode())
    for tensor in tensors:
        if tensor.numel():
            connection.send_bytes(_view(tensor.detach().contiguous()))


def receive(connection: Connection) -> Any:
    skeleton, kinds = json.loads(connection.recv_bytes())
    tensors = []
    for kind, shape in kinds:
        tensor = torch.empty(shape, dtype=getattr(torch, kind))
        if tensor.numel():
            connection.recv_bytes_into(_view(tensor))
        tensors.append(tensor)
    return unflatten(skeleton, tensors)


def _view(tensor: Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data
