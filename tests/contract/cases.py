"""Every registered method and part as a case, on a fleet small enough to try them all."""

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import pydantic
import torch
from torch import Tensor, nn

from remanence import simulate, simulation
from remanence.core.federation import Federation
from remanence.core.message import Message
from remanence.core.method import Method
from remanence.core.plan import Event, Plan
from remanence.core.rng import torch_generator
from remanence.core.state import State, clone, equal
from remanence.engine.memory import one_thread
from remanence.errors import UserError
from remanence.registry import methods, option_fields, parts
from remanence.runs.devices import DeviceStates

CLASSES, ROUNDS = 3, 3
FITTING = {"models": 2, "pretrain": 1}  # models in FedAWAC's window; rounds before CGAU's own
CHOOSE = ("select", "topology")
SERIAL = {"workers": 1, "cohort": "off"}
SIZES = (7, 1, 5, 4, 6, 3)  # device 1 has a single sample, device 2 a single class
Devices = list[tuple[Tensor, Tensor]]


@dataclasses.dataclass(frozen=True)
class Case:
    """Arguments of `simulate` that choose one registered thing."""

    label: str
    arguments: Mapping[str, Any]

    def plan(self, **more: Any) -> Plan:
        arguments = {"model": mlp(), **self.arguments, **more}
        plan = make_plan(**arguments)
        try:
            plan.task.network()
        except UserError:  # a method for convolutions
            return make_plan(**arguments | {"model": behind_a_convolution(arguments["model"])})
        return plan


def registered() -> list[Case]:
    """Every method in all its modes, and every part of the kinds that `simulate` takes.

    Who takes part is given in these cases; selectors and topologies have suites of their own.
    """
    found = [Case(name, {"method": name, "options": fitting(pieces(name))}) for name in methods.names()]
    for name in methods.names():
        if name not in methods.combinations:
            for option, value in modes(methods.get(name)):
                options = {**fitting(pieces(name)), option: value}
                found.append(Case(f"{name}-{option}={value}", {"method": name, "options": options}))
    for kind in (kind for kind in parts if kind in inspect.signature(simulate).parameters and kind not in CHOOSE):
        for name in parts[kind].names():
            cls = parts[kind].get(name)
            plain = {"name": name, **fitting([cls])}
            found.append(Case(f"{kind}-{name}", {kind: plain}))
            for option, value in modes(cls):
                found.append(Case(f"{kind}-{name}-{option}={value}", {kind: plain | {option: value}}))
    return found


def pieces(name: str) -> list[type]:
    """The classes that a method's name stands for."""
    if name not in methods.combinations:
        return [methods.get(name)]
    uses = methods.combinations[name].uses
    return [(methods if kind == "method" else parts[kind]).get(piece) for kind, piece in uses.items()]


def fitting(classes: Sequence[type]) -> dict[str, Any]:
    """Options without which a default would not fit into so few rounds."""
    return {name: value for name, value in FITTING.items() if any(name in option_fields(cls) for cls in classes)}


def modes(cls: type) -> list[tuple[str, Any]]:
    """Each further choice of a word, a switch, or a strength whose default is 0."""
    schema = pydantic.TypeAdapter[Any](cls).json_schema()
    return [(option, value) for option, field in schema.get("properties", {}).items() for value in alternatives(field)]


def alternatives(field: Mapping[str, Any]) -> list[Any]:
    if field.get("type") == "boolean":
        return [not field.get("default")]
    if field.get("type") in ("number", "integer") and field.get("default") == 0:
        return [0.1 if field["type"] == "number" else 4]
    return [value for value in field.get("enum", []) if value != field.get("default")]


def distinct(cases: Sequence[Case]) -> list[Case]:
    """Without those that make the plan of an earlier one: the default parts, and `fedadam` as a part."""
    plans: list[tuple[Any, ...]] = []
    kept = []
    for case in cases:
        plan = case.plan()
        choice = (plan.task.method, plan.task.privacy, plan.select, plan.merge, plan.optimise)
        if choice not in plans:
            plans.append(choice)
            kept.append(case)
    return kept


def make_plan(**arguments: Any) -> Plan:
    """The plan that `simulate` would play."""
    defaults = {
        "model": mlp(),
        "devices": fleet(),
        "test": samples(12, 90),
        "public": samples(4, 91)[0],
        "rounds": ROUNDS,
        "epochs": 2,
        "batches": 4,
        "lr": 0.1,
        "seed": 5,
        "engine": SERIAL,
    }
    with patch.object(simulation, "_play", lambda plan: plan):
        plan: Plan = simulate(**{**defaults, **arguments})
    return plan


def samples(count: int, number: int, labels: Sequence[int] = range(CLASSES)) -> tuple[Tensor, Tensor]:
    """Noisy images (1, 4, 4) whose mean tells the class."""
    generator = torch_generator(number, "contract data")
    y = torch.tensor([labels[i % len(labels)] for i in range(count)], dtype=torch.int64)
    return torch.randn(count, 1, 4, 4, generator=generator) + y.view(-1, 1, 1, 1) - 1.0, y


def fleet(sizes: Sequence[int] = SIZES) -> Devices:
    return [samples(size, device, [2] if device == 2 else range(CLASSES)) for device, size in enumerate(sizes)]


def fleet_with_empty_device() -> Devices:
    return fleet((7, 0, 5, 4))


class Halves(nn.Module):
    """Features and head, which some methods address by name."""

    def __init__(self, features: nn.Module, head: nn.Module | int) -> None:
        super().__init__()
        self.features = features
        self.head = nn.Linear(head, CLASSES) if isinstance(head, int) else head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def mlp() -> nn.Module:
    return _seeded(lambda: Halves(nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.ReLU()), 5))


def batch_norm() -> nn.Module:
    """Floating and integer buffers, and statistics that depend on the batch."""
    return _seeded(lambda: Halves(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten()), 8))


def dropout() -> nn.Module:
    """Draws while it trains."""
    return _seeded(lambda: Halves(nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Tanh(), nn.Dropout(0.4)), 6))


def behind_a_convolution(model: nn.Module) -> nn.Module:
    """The same network for images that a convolution has been over."""
    return _seeded(lambda: Halves(nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.ReLU(), *model.features), model.head))


NETS = {"batch-norm": batch_norm, "dropout": dropout}


def _seeded(build: Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        module: nn.Module = build()
    return module


@dataclasses.dataclass
class Outcome:
    """All that a run leaves behind."""

    tree: State  # weights, server state, device states
    events: list[Event]

    @property
    def w(self) -> Tensor:
        return self.tree["w"]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and equal(self.tree, other.tree) and self.events == other.events


@contextmanager
def federation(plan: Plan, states: DeviceStates | None = None) -> Iterator[Federation]:
    with one_thread(), Federation(plan, states) as opened:
        yield opened


def play(plan: Plan) -> Outcome:
    with federation(plan) as run:
        events = list(run.play())
        return outcome(run, events)


def counted_only(case: Case, run: Outcome, **more: Any) -> Outcome:
    """The run in which the devices that were not counted were never asked."""
    return play(case.plan(participation=[event["counted"] for event in run.events], **more))


def same_but_for_refusals(run: Outcome, expected: Outcome) -> bool:
    facts = ("round", "counted", "loss", "accuracy", "per_class", "largest_weight")
    pick = [[{name: event.get(name) for name in facts} for event in one.events] for one in (run, expected)]
    return equal(run.tree, expected.tree) and pick[0] == pick[1]


def outcome(run: Federation, events: list[Event]) -> Outcome:
    return Outcome(clone(whole(run)), events)


def whole(run: Federation) -> State:
    """Weights, server state and the state of every device, wherever it is stored."""
    tree = run.tree()
    return tree | {"devices": {device: run.states.get(device) for device in run.states}}


@cache
def reference(case_label: str, net: str = "mlp") -> Outcome:
    """The unbroken serial run of a case, which many tests compare with."""
    case = next(case for case in CASES if case.label == case_label)
    return play(case.plan(**({} if net == "mlp" else {"model": NETS[net]()})))


def rebuilt(method: Method) -> Method:
    """Another object with the same options."""
    return type(method)(**{name: getattr(method, name) for name in option_fields(type(method))})


def altered(plan: Plan, devices: Collection[int], change: Callable[[Message], object]) -> Plan:
    """The same plan, but `change` edits what some devices upload."""
    method = plan.task.method

    class Altered(type(method)):
        def up(self, net: Any, message: Any, data: Any, dev: Any, ctx: Any) -> Any:
            upload = super().up(net, message, data, dev, ctx)
            if ctx.device in devices:
                change(upload)
            return upload

    changed = Altered(**{name: getattr(method, name) for name in option_fields(type(method))})
    return dataclasses.replace(plan, task=dataclasses.replace(plan.task, method=changed))


def spoilt(plan: Plan, device: int) -> Plan:
    """The same plan, but what `device` uploads is not a number."""

    def spoil(upload: Message) -> None:
        name = next(name for name, value in upload.items() if isinstance(value, Tensor))
        upload[name] = upload[name] * float("nan")

    return altered(plan, [device], spoil)


CASES = distinct(registered())
