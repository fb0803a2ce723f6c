"""One step, then average, as one batch: the devices of an exchange train together where that is exactly equal.

With plain SGD, w^m - eta * (gradient of the mean loss over all samples) is the mean of the devices' models weighted by
their samples, up to the order of float32 sums (FedGS, Eq. 3 and 4).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.method import Method
from remanence.core.optimiser import LocalOptimiser
from remanence.core.parts import Merge, Topology
from remanence.core.server import Exchange, Server, Trained
from remanence.data.samples import Batch, Samples
from remanence.engine.worker import Job, Worker
from remanence.measure.record import NO_SAMPLES

_STAGES = ("network", "open_device", "down", "begin", "loss", "grad", "end_epoch", "up", "arrive", "weigh", "step")
_MERGE = ("report", "arrive", "samples")


@dataclass
class Pool:
    worker: Worker

    @staticmethod
    def of(worker: Worker, topology: Topology, quorum: float) -> "Pool | None":
        """None where devices must train one by one."""
        return Pool(worker) if topology.pooled and quorum == 1 and _equal(worker) else None

    def exchange(
        self, server: Server, ctx: Context, chosen: Sequence[int], used: Mapping[int, int], own: bool
    ) -> Exchange | None:
        """None where the answer is not finite: then it must be seen whose fault that is."""
        fleet, train = self.worker.task.fleet, ctx.train
        refused = {device: "lost on the way" for device in chosen if server.is_lost(device, ctx)}
        data = {d: fleet.samples(d, ctx.tick, used.get(d, 0)) for d in chosen if d not in refused}
        refused |= {device: NO_SAMPLES for device, one in data.items() if not len(one)}
        data = {device: one for device, one in data.items() if len(one)}
        if isinstance(train.batch, int) and any(len(one) > train.batch for one in data.values()):
            return None  # several steps
        correct = {device: self._own(server, ctx, device, used) for device in data} if own else {}
        w, losses = self._step(server.w, list(data.values()), ctx) if data else (server.w, [])
        if not bool(w.isfinite().all()):
            return None
        upload = Message(w=w, n=1).size()
        server.w, total = w, sum(map(len, data.values()))
        server.sent.most({"down": Message(w=w).size(), "up": upload if data else 0})
        return Exchange(
            chosen=chosen,
            counted=sorted(data),
            refused=refused,
            replies={
                device: Trained(loss, 1, len(data[device]), correct.get(device))
                for device, loss in zip(data, losses, strict=True)
            },
            bytes_down=len(chosen) * Message(w=w).size(),
            bytes_up=len(data) * upload,
            largest_weight=max(map(len, data.values())) / total if data else None,
        )

    def _step(self, w: Tensor, data: Sequence[Samples], ctx: Context) -> tuple[Tensor, list[float]]:
        """The model after the joint step, and every device's mean loss."""
        net, method = self.worker.net, self.worker.task.method
        net.train()
        net.load(w)
        net.g.zero_()
        x, y = torch.cat([one.x for one in data]), torch.cat([one.y for one in data])
        losses = method.loss(net, Batch(x, y, torch.arange(len(y))), {}, ctx)
        losses.mean().backward()
        LocalOptimiser(ctx.train, ctx.lr).step(*net.trainable)
        return net.copy(), [float(part.mean()) for part in losses.detach().split([len(one) for one in data])]

    def _own(self, server: Server, ctx: Context, device: int, used: Mapping[int, int]) -> Tensor | None:
        """The device's own model after its step, only to be measured."""
        job = Job(device, Message(w=server.w), lambda: None, True, used.get(device, 0))
        return self.worker.work(job, ctx).correct


def _equal(worker: Worker) -> bool:
    """Whether the mean of the devices' models is the model of their pooled batch."""
    task, train = worker.task, worker.task.context.train
    method, merge = type(task.method), type(task.merge)
    plain = all(getattr(method, stage) is getattr(Method, stage) for stage in _STAGES)
    weighted = not (task.merge.weighs or task.merge.needs_all)
    weighted = weighted and all(getattr(merge, stage) is getattr(Merge, stage) for stage in _MERGE)
    one_step = train.optimiser == "sgd" and train.epochs == 1 and not train.clip and not callable(task.batches)
    own_data = task.augment is None and not task.bfloat16 and task.privacy.name == "none"
    return plain and weighted and one_step and own_data and _same_alone(worker)


def _same_alone(worker: Worker) -> bool:
    """Whether an answer depends on its sample alone: no batch statistics, no chance in training."""
    if worker.net.batch_norm or len(worker.net.w) != worker.net.size:
        return False
    fleet = worker.task.fleet
    device = next(device for device, size in enumerate(fleet.sizes) if size)
    x = fleet.whole(device).batch(torch.arange(1)).x
    worker.net.train()
    with torch.no_grad():
        return torch.equal(worker.net(x), worker.net(x))
