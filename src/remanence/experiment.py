"""The one place that puts the pieces of an experiment together into a plan that a federation can play."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from remanence.config import Experiment
from remanence.core.context import Context
from remanence.core.plan import Plan
from remanence.core.rng import key, numpy_generator
from remanence.core.vector import FlatModel
from remanence.data.augment import augmentation
from remanence.data.datasets import load_dataset
from remanence.data.fleet import IndexedFleet
from remanence.data.partition import Partition
from remanence.data.samples import Dataset, Samples
from remanence.data.streams.static import Static
from remanence.engine.worker import Task
from remanence.errors import UserError

MIX_SHOWN = 1000  # devices up to which the start event lists every device's classes


@dataclass(frozen=True)
class Prepared:
    plan: Plan
    start: dict[str, Any]  # the first event: what was found
    seconds: float


def prepare(experiment: Experiment) -> Prepared:
    """Load, split, deal, build. Everything that can be wrong with an experiment is found here."""
    started = time.perf_counter()
    dataset = load_dataset(experiment.data.name or None, experiment.data.path or None, experiment.source)
    dataset, public = _set_apart(dataset, experiment)
    partition = _deal(dataset, experiment)
    module = _model(dataset, experiment)
    stream = None if isinstance(experiment.stream, Static) else experiment.stream
    fleet = IndexedFleet(dataset, partition.indices, stream, experiment.seed("data"))
    sites = _sites(experiment)
    task = Task(
        method=experiment.method,
        module=module,
        fleet=fleet,
        batches=experiment.train.batch,
        privacy=experiment.parts["privacy"],
        merge=experiment.parts["merge"],
        context=_context(experiment, dataset, public),
        test=dataset.prepare(dataset.test),
        augment=augmentation(experiment.data.augment, dataset.shape, dataset.black),
        bfloat16=experiment.engine.precision == "bfloat16",
    )
    plan = Plan(
        task,
        experiment.general.rounds,
        experiment.devices.per_round,
        experiment.parts["select"],
        experiment.parts["optimise"],
        experiment.engine,
        experiment.measure,
        experiment.parts["topology"],
        sites,
        experiment.seed("sampling"),
    )
    notes = [*partition.notes, *_empty(fleet.sizes), *plan.notes()]
    return Prepared(plan, _start(experiment, dataset, plan, module, notes), time.perf_counter() - started)


def _set_apart(dataset: Dataset, experiment: Experiment) -> tuple[Dataset, Samples | None]:
    """Samples for the server, the same share of every class, taken out of the training set; labels dropped."""
    wanted, available = experiment.data.public, len(dataset.train)
    if not wanted:
        return dataset, None
    if wanted >= available:
        raise UserError(f"data.public: {wanted} is not allowed: the training set has {available} samples")
    generator = numpy_generator(experiment.seed("partition"), "public")
    taken = _stratified(dataset.train.y.numpy(), wanted, generator)
    rest = np.setdiff1d(np.arange(available), taken)
    public = dataset.prepare(dataset.train.take(taken))
    public.y = torch.full_like(public.y, -1)
    return Dataset(**vars(dataset) | {"train": dataset.train.take(rest)}), public


def _stratified(y: np.ndarray, wanted: int, generator: np.random.Generator) -> np.ndarray:
    """The k-th of n samples of a class is taken in the order of k/n, so every class gives its share."""
    order = generator.permutation(len(y))
    rank, size = np.empty(len(y)), np.bincount(y)
    for label in np.unique(y):
        own = order[y[order] == label]
        rank[own] = (np.arange(len(own)) + 0.5) / size[label]
    return np.sort(np.argsort(rank, kind="stable")[:wanted])


def _deal(dataset: Dataset, experiment: Experiment) -> Partition:
    devices, y, group = experiment.devices, dataset.train.y.numpy(), dataset.train.group
    generator = numpy_generator(experiment.seed("partition"), "partition")
    if devices.skew == "devices" or devices.sites == 1:
        return experiment.partition.split(y, dataset.classes, devices.count, generator, group)  # type: ignore[no-any-return]
    sites = experiment.partition.split(y, dataset.classes, devices.sites, generator, group)
    return Partition(list(_within_sites(sites.indices, devices.count, generator)), sites.notes)


def _within_sites(sites: list[np.ndarray], count: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """A site's samples, shuffled and dealt evenly to its devices."""
    sizes = np.bincount(site_of(count, len(sites)), minlength=len(sites))
    for samples, devices in zip(sites, sizes, strict=True):
        if len(samples) < devices:
            raise UserError(f"devices.count: a site has {len(samples)} samples for {devices} devices")
        for part in np.array_split(generator.permutation(samples), devices):
            yield np.sort(part)


def _sites(experiment: Experiment) -> list[list[int]]:
    """The devices of every site."""
    devices = np.arange(experiment.devices.count)
    if experiment.devices.sites_by == "shuffled":
        devices = numpy_generator(experiment.seed("partition"), "sites").permutation(devices)
    number = site_of(len(devices), experiment.devices.sites)
    return [sorted(devices[number == site].tolist()) for site in range(experiment.devices.sites)]


def site_of(devices: int, sites: int) -> np.ndarray:
    """The site of every device: blocks of neighbours, as equal as can be."""
    return np.arange(devices) * sites // devices


def _digest(dataset: Dataset, fleet: IndexedFleet) -> str:
    """Of every sample and of who holds it: a run must not go on with other data than it began with."""
    digest = hashlib.sha256()
    for split in (dataset.train, dataset.test):
        digest.update(np.ascontiguousarray(split.x.numpy()).data)
        digest.update(split.y.numpy().data)
    for rows in fleet.indices:
        digest.update(np.ascontiguousarray(rows).data)
    return digest.hexdigest()


def _model(dataset: Dataset, experiment: Experiment) -> nn.Module:
    _check_vocabulary(dataset, experiment.model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(experiment.seed("init"), "init"))
        module: nn.Module = experiment.model.build(dataset.shape, dataset.classes)
    return module


def _check_vocabulary(dataset: Dataset, model: Any) -> None:
    """Token numbers are no quantities: only a model with a vocabulary can read them, and it reads nothing else."""
    used, read = len(dataset.words), getattr(model, "vocabulary", 0)
    if used and not read:
        raise UserError(
            f"model.name: '{model.name}' is not allowed with '{dataset.name}', whose samples are token numbers: "
            "use a model with a vocabulary, such as fasttext"
        )
    if read and not used:
        raise UserError(
            f"model.name: '{model.name}' reads token numbers, but the samples of '{dataset.name}' are quantities: "
            "use it with data.name = 'text' or 'ag-news'"
        )
    if used > read:
        raise UserError(
            f"model.vocabulary: {read} is not allowed: '{dataset.name}' has {used} token numbers, so at least {used}; "
            "or lower data.vocabulary"
        )


def _context(experiment: Experiment, dataset: Dataset, public: Samples | None) -> Context:
    train = experiment.train
    return Context(
        round=0,
        rounds=experiment.general.rounds,
        lr=train.lr,
        train=train,
        devices=experiment.devices.count,
        classes=dataset.classes,
        seed=experiment.seed("data"),
        public=public,
    )


def _empty(sizes: Sequence[int]) -> list[str]:
    empty = [device for device, size in enumerate(sizes) if not size]
    if len(empty) == len(sizes):
        raise UserError("devices: none of them has a sample")
    return [f"{len(empty)} devices have no samples and never take part: {empty[:10]}"] if empty else []


def _start(experiment: Experiment, dataset: Dataset, plan: Plan, module: nn.Module, notes: list[str]) -> dict[str, Any]:
    count, fleet = experiment.devices.count, plan.task.fleet
    assert isinstance(fleet, IndexedFleet)
    start = {
        "event": "start",
        "name": experiment.general.name,
        "method": experiment.method.name,
        "dataset": dataset.name,
        "origin": dataset.origin,
        "train_samples": len(dataset.train),
        "test_samples": len(dataset.test),
        "classes": dataset.classes,
        "labels": list(dataset.labels),
        "devices": count,
        "per_round": experiment.devices.per_round,
        "edges": plan.topology.sites,
        "iterations": plan.topology.iterations,
        "rounds": experiment.general.rounds,
        "model": experiment.model.name,
        "parameters": FlatModel(module).size,
        "notes": notes,
        "data_sha256": _digest(dataset, fleet),
    }
    if len(plan.sites) > 1 or plan.topology.sites:
        numbers = {device: site for site, members in enumerate(plan.sites) for device in members}
        start["sites"] = [numbers[device] for device in range(count)]
    if count <= MIX_SHOWN:
        start["class_mix"] = [fleet.counts(device).tolist() for device in range(count)]
    return start
