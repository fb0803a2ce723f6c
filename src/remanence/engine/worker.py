"""What one worker does: train one device for one round, or measure a part of the test set."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from remanence.core.batches import BatchRule, Plan, plan
from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.method import Method, Trained, train_device
from remanence.core.parts import Merge, Privacy
from remanence.core.rng import key
from remanence.core.state import State
from remanence.core.vector import FlatModel
from remanence.data.augment import Augmentation
from remanence.data.fleet import Fleet
from remanence.data.samples import Samples
from remanence.measure.accuracy import count_correct
from remanence.measure.record import NO_SAMPLES


@dataclass(frozen=True)
class Task:
    """All that training on a device needs and that does not change from round to round."""

    method: Method
    module: nn.Module  # the plain model; its weights are w^0
    fleet: Fleet
    batches: BatchRule
    privacy: Privacy
    merge: Merge
    context: Context  # what is the same in every round
    test: Samples | None = None
    augment: Augmentation | None = None
    bfloat16: bool = False

    def network(self) -> FlatModel:
        """A fresh network that shares nothing with the plain model."""
        with torch.random.fork_rng(devices=[]):  # layers that a method adds start alike in every worker
            torch.default_generator.manual_seed(key(self.context.seed, "network"))
            return FlatModel(self.method.network(copy.deepcopy(self.module), self.context), self.bfloat16)


@dataclass(slots=True)
class Job:
    device: int
    message: Message
    recall: Callable[[], State | None]  # what the device keeps, read when its turn comes; None: its first round
    measure: bool = False
    used: int = 0  # batches that the device has taken from its stream


@dataclass(slots=True)
class Reply:
    device: int
    upload: Message | None = None  # None: nothing came back, for `reason`
    dev: State = field(default_factory=dict)  # to be kept once the upload is counted
    loss: float = float("nan")  # mean of the steps
    steps: int = 0
    samples: int = 0  # that went through training
    correct: Tensor | None = None  # of the device's own model on the test set, per class
    held: int = 0  # bytes in training, besides networks and moments
    reason: str = ""


class Worker:
    def __init__(self, task: Task) -> None:
        self.task = task
        self.net = task.network()
        self.start = self.net.copy()
        self.teachers = tuple(task.network() for _ in range(task.method.teachers))

    def work(self, job: Job, ctx: Context) -> Reply:
        task = self.task
        data = task.fleet.samples(job.device, ctx.tick, job.used)
        steps = plan(task.batches, len(data), ctx.train.epochs, ctx.seed, ctx.tick, job.device, self.net.batch_norm)
        ctx = ctx.on(job.device, sum(map(len, steps)), self.start, self.teachers)
        if not ctx.steps:
            few = len(data) > 0 and self.net.batch_norm
            return Reply(job.device, reason="one sample: batch norm needs two" if few else NO_SAMPLES)
        dev = self.open(job.recall(), data, ctx)
        upload, loss, held = self.train(job.message, steps, data, dev, ctx, task.augment)
        correct = count_correct(self.net, task.test)[0] if job.measure and task.test is not None else None
        samples = sum(len(ids) for epoch in steps for ids in epoch)
        return Reply(job.device, upload, dev, loss, ctx.steps, samples, correct, held)

    def train(
        self, message: Message, steps: Plan, data: Samples, dev: State, ctx: Context, augment: Augmentation | None
    ) -> Trained:
        """One device's round, and what leaves the device."""
        # Dropout draws from the global generator; `torch.manual_seed` would look for accelerators every time.
        torch.default_generator.manual_seed(key(ctx.seed, "layers", ctx.tick, ctx.device))
        for teacher in self.teachers:
            teacher.load(message["w"])
            teacher.train(False)
        if "public" in message:
            dev["public"] = message["public"]
        self.net.stand(ctx.device)
        merge = self.task.merge
        watch = merge.watch if merge.watches() else None
        trained = train_device(self.task.method, self.net, steps, message, data, dev, ctx, augment, watch)
        upload = Message({**trained.upload, **merge.report(self.net, data, dev, ctx)})
        return trained._replace(upload=self.task.privacy.protect(upload, ctx))

    def rehearse(self, message: Message, ctx: Context) -> Message:
        """An upload with the names and shapes that every device's must have: after one step on two samples."""
        fleet = self.task.fleet
        device = next(device for device, size in enumerate(fleet.sizes) if size)
        whole = fleet.whole(device)
        rows = torch.arange(2) % len(whole)
        data = Samples(whole.x[rows], whole.y[rows], whole.classes)
        ctx = ctx.on(-1, 1, self.start, self.teachers)
        message = Message({name: t.clone() if isinstance(t, Tensor) else t for name, t in message.items()})
        if self.task.merge.public_on_devices:
            assert ctx.public is not None
            message["public"] = ctx.public.x
        dev = self.open(None, data, ctx)
        return self.train(message, [[torch.arange(2)]], data, dev, ctx, None).upload.outline()

    def open(self, dev: State | None, data: Samples, ctx: Context) -> State:
        if dev is not None:
            return dev
        if type(self.task.method).open_device is Method.open_device:
            return {}
        self.net.load(self.start)
        self.net.train()
        return self.task.method.open_device(self.net, data, ctx)

    def measure(self, w: Tensor, start: int, stop: int) -> tuple[Tensor, float]:
        assert self.task.test is not None
        self.net.stand(-1)
        self.net.load(w)
        return count_correct(self.net, self.task.test, start, stop)


class Rehearsal:
    """What an upload must look like: found out by trying, again whenever newcomers are sent something else."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._form: tuple = ()
        self._upload = Message()

    def upload(self, newcomer: Message, ctx: Context) -> Message:
        """`newcomer`: what a device is sent that has never taken part."""
        form = newcomer.form()
        if form != self._form:
            self._form, self._upload = form, Worker(self.task).rehearse(newcomer, ctx)
        return self._upload
