"""`remanence.simulate`: a run small enough to check by hand, with the user's own model and tensors."""

import copy
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from remanence.choices import PartChoice, resolve_method, resolve_part
from remanence.core.batches import BatchRule
from remanence.core.context import Context
from remanence.core.federation import Federation
from remanence.core.method import Method
from remanence.core.optimiser import Training
from remanence.core.plan import Event, Plan, Schedule
from remanence.core.state import State
from remanence.data.fleet import TensorFleet, as_inputs, checked
from remanence.data.samples import Samples
from remanence.data.stream import Stream
from remanence.data.streams.static import Static
from remanence.engine.memory import one_thread
from remanence.engine.options import EngineOptions
from remanence.engine.worker import Task
from remanence.errors import UserError
from remanence.measure.record import Measure, summary
from remanence.registry import build, option_fields, streams

StreamChoice = str | Mapping[str, Any] | Stream


@dataclass(frozen=True)
class Simulation:
    """What a run left behind."""

    weights: Tensor
    model: nn.Module
    server_state: State
    device_state: "DeviceStateView"
    history: list[Event]
    summary: dict[str, Any]
    engine: str  # which engine carried the devices, and why


def simulate(
    method: str | Method = "fedavg",
    options: Mapping[str, Any] | None = None,
    *,
    model: nn.Module,
    devices: Sequence[tuple[Any, Any]],
    test: tuple[Any, Any] | None = None,
    public: Any = None,
    rounds: int = 1,
    epochs: int = 1,
    lr: float = 0.1,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    lr_decay: float = 1.0,
    optimiser: str = "sgd",
    clip: float = 0.0,
    batches: BatchRule = "full",
    participation: Sequence[Sequence[int]] | float | None = None,
    select: PartChoice = "uniform",
    merge: PartChoice = "mean",
    optimise: PartChoice = "none",
    privacy: PartChoice = "none",
    topology: PartChoice = "flat",
    sites: int | Sequence[Sequence[int]] = 1,
    stream: StreamChoice = "static",
    seed: int = 0,
    engine: Mapping[str, Any] | None = None,
    measure: Mapping[str, Any] | None = None,
) -> Simulation:
    """Train `model` across `devices`, each a pair (x, y), and return weights, states and the history of rounds.

    `batches` is "full", a size, or a function (device, round, epoch) -> list of index tensors, all counted from
    round 1 and epoch 1 (devices from 0). `participation` is one list of devices per round, a number of devices, a
    share of them below 1.0, or None for all. Parts are names, {"name": ..., option: ...}, or instances; so is `stream`,
    with "kind" for "name". `sites` is a number of equal blocks of devices, or a list of devices for each site; with
    topology "sites", `participation` is the number of devices in each exchange of a site.
    """
    train = build(Training, _training(locals()), "simulate")
    named = {"select": select, "merge": merge, "optimise": optimise, "privacy": privacy, "topology": topology}
    chosen, choices = resolve_method(method, options or {}, named)
    chosen.check(train)
    pieces = {kind: resolve_part(kind, choice) for kind, choice in choices.items()}
    classes, kind = _probed(model, devices)
    rounds, seed = _count(rounds, "rounds"), _count(seed, "seed", 0)
    members = _sites(sites, len(devices))
    per_round, schedule = _participation(participation, len(devices), rounds)
    if pieces["topology"].sites and not isinstance(participation, (list, tuple)):
        largest = max(map(len, members))  # smaller sites then send all of their devices
        per_round, schedule = _participation(participation, largest, rounds)[0], None
    engine_options = build(EngineOptions, engine or {}, "engine")
    task = Task(
        method=chosen,
        module=copy.deepcopy(model),
        fleet=_fleet(devices, classes, kind, _stream(stream), seed),
        batches=batches if callable(batches) else train.batch,
        privacy=pieces["privacy"],
        merge=pieces["merge"],
        context=_context(
            train, rounds, len(devices), classes, seed, _unlabelled(public, classes, kind, _shape(devices))
        ),
        test=_test(test, classes, _shape(devices), kind),
        bfloat16=engine_options.precision == "bfloat16",
    )
    parts = pieces["select"], pieces["optimise"]
    measured = build(Measure, measure or {}, "measure")
    if isinstance(participation, (list, tuple)) and pieces["select"].reports:
        raise UserError(f"participation: lists are not allowed with select '{pieces['select'].name}', which chooses")
    topology = pieces["topology"]
    return _play(Plan(task, rounds, per_round, *parts, engine_options, measured, topology, members, seed, schedule))


def _training(given: Mapping[str, Any]) -> dict[str, Any]:
    """The `[train]` table among the arguments; a rule of the user's own for batches stands outside it."""
    own = {name: given[name] for name in option_fields(Training) if name != "batch"}
    rule = given["batches"]
    return own | {"batch": "full" if callable(rule) else int(rule) if isinstance(rule, np.integer) else rule}


def _play(plan: Plan) -> Simulation:
    with one_thread(), Federation(plan) as federation:
        history = list(federation.play())
        return Simulation(
            federation.w,
            federation.model(),
            server_state(federation),
            DeviceStateView(federation),
            history,
            summary(history, len(plan.task.fleet.sizes)),
            federation.engine_line,
        )


def server_state(federation: Federation) -> State:
    return federation.srv | ({"optimise": federation.optimiser} if federation.optimiser else {})


class DeviceStateView(Mapping[int, State]):
    """What each device keeps; for one that has not taken part yet, what it would start with."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation

    def __len__(self) -> int:
        return len(self._federation.plan.task.fleet.sizes)

    def __iter__(self) -> Any:
        return iter(range(len(self)))

    def __getitem__(self, device: int) -> State:
        if device not in range(len(self)):
            raise KeyError(device)
        kept, task = self._federation.states.get(device), self._federation.plan.task
        if kept is not None:
            return kept
        net = task.network()
        context = self._federation.context(1).on(device, 0, net.copy())
        return task.method.open_device(net, task.fleet.whole(device), context)


def _context(train: Training, rounds: int, devices: int, classes: int, seed: int, public: Samples | None) -> Context:
    return Context(
        round=0,
        rounds=rounds,
        lr=train.lr,
        train=train,
        devices=devices,
        classes=classes,
        seed=seed,
        public=public,
    )


def _unlabelled(public: Any, classes: int, kind: torch.dtype, shape: tuple[int, ...]) -> Samples | None:
    if public is None:
        return None
    x = as_inputs(public, "public", kind)
    if not len(x) or tuple(x.shape[1:]) != shape:
        raise UserError(f"public: inputs of shape {tuple(x.shape)} are not allowed: must be samples of shape {shape}")
    return Samples(x, torch.full((len(x),), -1), classes)


def _probed(model: nn.Module, devices: Sequence[tuple[Any, Any]]) -> tuple[int, torch.dtype]:
    """The width of the model's answer, seen on one sample, and what it reads: quantities, or token numbers."""
    if not isinstance(model, nn.Module):
        raise UserError(f"model: a {type(model).__name__} is not allowed: must be a torch module")
    if not hasattr(devices, "__len__") or not hasattr(devices, "__getitem__") or isinstance(devices, (dict, str)):
        raise UserError(f"devices: a {type(devices).__name__} is not allowed: must be a list of pairs (x, y)")
    if not len(devices):
        raise UserError("devices: at least one is needed")
    if isinstance(devices, (list, tuple)):
        devices = [_pair(device, f"device {number}") for number, device in enumerate(devices)]
    if not any(len(y) for _, y in devices):
        raise UserError("devices: none of them has a sample")
    shape, probe = _shape(devices), copy.deepcopy(model).eval()
    answer, troubles = None, []
    for kind in (torch.float32, torch.int64):
        try:
            with torch.no_grad():
                answer = probe(torch.zeros(1, *shape, dtype=kind))
            break
        except Exception as error:  # whatever a model of the user's own raises
            troubles.append((str(error).splitlines() or [type(error).__name__])[0])
    else:
        raise UserError(f"model: it does not take samples of shape {shape}: {troubles[0]}")
    if not isinstance(answer, Tensor) or answer.dim() != 2:
        raise UserError("model: its answer must be a matrix, samples by classes")
    return int(answer.shape[1]), kind


def _stream(choice: "StreamChoice") -> Stream | None:
    if isinstance(choice, str):
        choice = {"kind": choice}
    if isinstance(choice, Mapping):
        kind = choice.get("kind", choice.get("name"))
        if not isinstance(kind, str):
            raise UserError(f"stream: {choice!r} is not allowed: must be a kind, or a kind with options")
        values = {name: value for name, value in choice.items() if name not in ("kind", "name")}
        choice = build(streams.get(kind, "stream"), values, "stream")
    if not isinstance(choice, Stream):
        raise UserError(f"stream: {choice!r} is not allowed: must be a kind, or a kind with options")
    return None if isinstance(choice, Static) else choice


def _sites(value: Any, devices: int) -> list[list[int]]:
    """The devices of every site."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        if not 1 <= value <= devices:
            raise UserError(f"sites: {value} is not allowed: there are {devices} devices")
        return [part.tolist() for part in np.array_split(np.arange(devices), value)]
    members = _table(value, devices, "sites")
    if not all(members):
        raise UserError("sites: a site without devices is not allowed")
    if sorted(device for row in members for device in row) != list(range(devices)):
        raise UserError("sites: every device must belong to exactly one site")
    return [sorted(row) for row in members]


def _fleet(
    devices: Sequence[tuple[Any, Any]], classes: int, kind: torch.dtype, stream: Stream | None, seed: int
) -> TensorFleet:
    if not isinstance(devices, (list, tuple)):
        return TensorFleet(devices, classes, kind, stream, seed)
    shape = _shape(devices)
    for number, (x, y) in enumerate(devices):
        checked(x, y, classes, f"device {number}", shape, kind)
    pairs = [(x if isinstance(x, Tensor) else np.asarray(x), y) for x, y in devices]
    return TensorFleet(pairs, classes, kind, stream, seed)


def _test(test: Any, classes: int, shape: tuple[int, ...], kind: torch.dtype) -> Samples | None:
    if test is None:
        return None
    samples = checked(*_pair(test, "test"), classes, "test", shape, kind)
    if not len(samples):
        raise UserError("test: it has no samples; None leaves testing out")
    return samples


def _pair(value: Any, owner: str) -> tuple[Any, Any]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise UserError(f"{owner}: must be a pair (x, y)")
    return value[0], value[1]


def _shape(devices: Sequence[tuple[Any, Any]]) -> tuple[int, ...]:
    """The shape of one sample, on the first device that has one."""
    return next(tuple(x.shape[1:]) if hasattr(x, "shape") else np.asarray(x).shape[1:] for x, y in devices if len(y))


def _count(value: Any, name: str, least: int = 1) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise UserError(f"{name}: {value!r} is not allowed: must be a whole number, {least} or more")
    return int(value)


def _participation(value: Any, devices: int, rounds: int) -> tuple[int, Schedule | None]:
    if value is None or (isinstance(value, float) and value == 1):
        return devices, lambda round: range(devices)
    if isinstance(value, float) and 0 < value < 1:
        value = max(1, round(value * devices))
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        if not 1 <= value <= devices:
            raise UserError(f"participation: {value} devices per round is not allowed: there are {devices}")
        return int(value), None
    table = _table(value, devices)
    if len(table) < rounds:
        raise UserError(f"participation: {len(table)} lists for {rounds} rounds")
    return max(1, max(map(len, table), default=1)), lambda round: table[round - 1]


def _table(value: Any, devices: int, key: str = "participation") -> list[list[int]]:
    """Lists of devices."""
    try:
        table = [[operator.index(device) for device in row] for row in value]
    except TypeError:
        what = (
            "a list of devices per round, a number, a share, or None" if key == "participation" else "lists of devices"
        )
        raise UserError(f"{key}: must be {what}") from None
    wrong = next((device for row in table for device in row if device not in range(devices)), None)
    if wrong is not None:
        raise UserError(f"{key}: there is no device {wrong}; devices are 0..{devices - 1}")
    if any(len(set(row)) != len(row) for row in table):
        raise UserError(f"{key}: a device is named twice in one round")
    return table
