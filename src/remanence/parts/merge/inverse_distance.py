"""Inverse-distance weights (IDA): a model counts for the inverse of its distance to the mean of the round's models.

Yeganeh, Farshad, Navab, Albarqouni 2020, DCL workshop at MICCAI, arXiv 2008.07665. Usable with every method that
leaves the weights open. Distances are over all trainable parameters together. The paper's norm and its small constant
are not certain: `norm`, `eps`. Equal distances, as two models always have, count for 1 each, so that two devices with
`times="samples"` are FedAvg bit for bit. A model far away keeps a weight and moves the mean: this is no defence.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from remanence.core.context import Context
from remanence.core.message import Message, Refused
from remanence.core.parts import Merge
from remanence.core.state import State
from remanence.core.vector import FlatModel
from remanence.data.samples import Batch, Samples
from remanence.measure.accuracy import count_correct
from remanence.registry import options, parts

ALIKE = 1e-12  # relative difference up to which distances are equal


@parts["merge"].register("inverse-distance")
@options
class InverseDistance(Merge):
    """Weights by the inverse distance to the mean model, times a factor of each device."""

    times: Literal["one", "intrac", "samples"] = Field(
        "one", description="the factor: none, the inverse training accuracy (INTRAC), or samples (IDA+FedAvg)"
    )
    norm: Literal["l2", "l1"] = Field("l2", description="of the distance")
    center: Literal["plain", "weighted"] = Field("plain", description="mean of the models; weighted: by samples")
    eps: float = Field(1e-8, gt=0, description="added to every distance, relative to 1 + the norm of the mean model")
    intrac_eval: Literal["running", "full"] = Field(
        "running", description="training accuracy: over the last epoch, before each step; full: after training"
    )
    weighs = True

    def stacks(self) -> bool:
        return self.times != "intrac"

    def watches(self) -> bool:
        return self.times == "intrac" and self.intrac_eval == "running"

    def watch(self, logits: Tensor, batch: Batch, epoch: int, ctx: Context) -> None:
        seen = ctx.scratch.get("intrac")
        if seen is None or seen["epoch"] != epoch:
            seen = ctx.scratch["intrac"] = {"epoch": epoch, "right": 0, "samples": 0}
        seen["right"] += int((logits.argmax(1) == batch.y).sum())
        seen["samples"] += len(batch.y)

    def report(self, net: FlatModel, data: Samples, dev: State, ctx: Context) -> Mapping[str, Any]:
        if self.times != "intrac":
            return {}
        if self.intrac_eval == "full":
            return {"accuracy": int(count_correct(net, data)[0].sum()) / len(data)}
        seen = ctx.scratch["intrac"]
        return {"accuracy": seen["right"] / seen["samples"]}

    def arrive(self, upload: Message, ctx: Context) -> Mapping[str, Any]:
        accuracy = upload.get("accuracy", 0.0)
        if not 0 <= accuracy <= 1:
            raise Refused(f"'accuracy' is {accuracy}, not between 0 and 1")
        return {}

    def weigh(self, messages: Mapping[int, Message], ctx: Context) -> Tensor:
        assert ctx.net is not None
        models = [message["w"][: ctx.net.size] for message in messages.values()]
        n = torch.tensor([message["n"] for message in messages.values()], dtype=torch.float64)
        center = mean(models, n if self.center == "weighted" else torch.ones_like(n))  # w_avg
        # d_k = || w_k - w_avg ||
        order = 2 if self.norm == "l2" else 1
        distances = torch.stack([torch.linalg.vector_norm(model - center, order) for model in models])
        u = inverses(distances, self.eps * (1 + float(center.norm())))
        if self.times == "samples":
            return u * n  # u_k n_k
        if self.times == "intrac":
            accuracy = torch.tensor([message["accuracy"] for message in messages.values()], dtype=torch.float64)
            return u / accuracy.clamp(min=1 / ctx.classes)  # u_k v_k, v_k = 1 / max(1/C, acc_k)
        return u


def mean(models: Sequence[Tensor], weights: Tensor) -> Tensor:
    """In float64."""
    total = torch.zeros_like(models[0], dtype=torch.float64)
    for model, weight in zip(models, weights.tolist(), strict=True):
        total.add_(model, alpha=weight)
    return total.div_(weights.sum())


def inverses(distances: Tensor, eps: float) -> Tensor:
    """u_k = 1 / (d_k + eps), in units of the largest; 1 where all distances are equal, 0 among them."""
    nearest, farthest = distances.min(), distances.max()
    if farthest - nearest <= ALIKE * farthest:
        return torch.ones_like(distances)
    return (nearest + eps) / (distances + eps)
