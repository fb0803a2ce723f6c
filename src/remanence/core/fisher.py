"""The diagonal of the empirical Fisher information: mean squared gradients of the cross entropy at true labels."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, vmap

from remanence.core.vector import FlatModel
from remanence.data.samples import Samples

HELD = 2**23  # numbers of the gradients that are held at once


def fisher_per_sample(net: FlatModel, data: Samples, chosen: Tensor) -> Tensor:
    """Mean over the samples of their squared gradients, by trainable parameter; evaluation mode."""
    net.train(False)
    parameters = {name: p.detach() for name, p in net.module.named_parameters() if p.requires_grad}

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(net.module, parameters, (x.unsqueeze(0),)), y.unsqueeze(0))

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))
    total = torch.zeros(net.size)
    for ids in chosen.split(min(16, max(1, HELD // net.size))):
        batch = data.batch(ids)
        for name, each in gradients(parameters, batch.x, batch.y).items():
            total[net.slices[name]] += each.square_().sum(0).reshape(-1)
    return total / len(chosen)


def fisher_per_batch(net: FlatModel, data: Samples, chosen: Tensor, size: int) -> Tensor:
    """Mean over batches of the squared gradient of the batch's mean: no Fisher diagonal, but a published one."""
    net.train(False)
    batches = chosen.split(size)
    total = torch.zeros(net.size)
    for ids in batches:
        batch = data.batch(ids)
        net.g.zero_()
        F.cross_entropy(net(batch.x), batch.y).backward()
        total += net.g[: net.size].square()
    return total / len(batches)
