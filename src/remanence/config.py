"""The experiment file: one schema, a default for every key, errors that name key, value and what is allowed."""

import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from remanence.choices import resolve_method, resolve_part
from remanence.core.optimiser import Training
from remanence.core.parts import DEFAULTS
from remanence.engine.options import EngineOptions
from remanence.errors import UserError, suggestion
from remanence.measure.record import Measure
from remanence.registry import Registry, build, datasets, methods, models, option_fields, options, partitions, streams

Tree = dict[str, Any]


@options
class General:
    """Keys outside every table."""

    name: str = Field("experiment", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=60)
    label: str = Field(
        "",
        max_length=60,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="what a comparison calls this run; empty = the method's name",
    )
    seed: int = Field(1, ge=0, lt=2**53)
    rounds: int = Field(50, ge=1, le=10**7)


@options
class Seeds:
    """One for each kind of chance; whatever is not given is `seed`."""

    partition: int | None = Field(None, ge=0, lt=2**53)
    sampling: int | None = Field(None, ge=0, lt=2**53)
    init: int | None = Field(None, ge=0, lt=2**53)
    data: int | None = Field(None, ge=0, lt=2**53)


@options
class DataTable:
    """What exists. Further keys belong to the dataset: `remanence show NAME`."""

    name: str = Field("", description="a dataset's name; with path alone, the kind of file decides")
    path: str = Field("", description="a file or folder of yours")
    public: int = Field(
        0, ge=0, description="training samples moved to the server without labels, before the partition"
    )
    augment: str = Field("none", description="none, standard or fedntd")


@options
class DevicesTable:
    """Who holds what. Further keys belong to the partition: `remanence show dirichlet`."""

    count: int = Field(100, ge=1, le=10**7)
    per_round: int = Field(10, ge=1)
    partition: str = "dirichlet"
    sites: int = Field(1, ge=1, description="factories; devices are dealt to them in blocks")
    skew: Literal["devices", "sites"] = Field("devices", description="sites: factories differ, their devices are alike")
    sites_by: Literal["order", "shuffled"] = Field(
        "order", description="a site is a block of neighbouring devices, or of devices in random order"
    )


@options
class CheckpointTable:
    every: int = Field(10, ge=1, description="rounds")
    seconds: float = Field(1.0, ge=0, description="least time between two checkpoints")


FIXED: dict[str, type[Any]] = {
    "seeds": Seeds,
    "train": Training,
    "engine": EngineOptions,
    "measure": Measure,
    "checkpoint": CheckpointTable,
}
NAMED = ("data", "devices", "stream", "model", "method", *DEFAULTS)
VOLATILE = (("engine", "workers"), ("checkpoint", "every"), ("checkpoint", "seconds"))  # change no number
VARIED = {  # of which an experiment may list several tables: the key that names one, and the default
    "devices": ("partition", "dirichlet"),
    "stream": ("kind", "static"),
    "model": ("name", "mlp"),
    "method": ("name", "fedavg"),
    **{kind: ("name", default) for kind, default in DEFAULTS.items()},
}
DEEPEST = 8  # tables in tables of a file that means anything


@dataclass(frozen=True)
class Experiment:
    general: General
    seeds: Seeds
    data: DataTable
    source: Tree  # the dataset's own options
    devices: DevicesTable
    partition: Any
    model: Any
    train: Training
    method: Any
    parts: dict[str, Any]
    engine: EngineOptions
    measure: Measure
    stream: Any
    checkpoint: CheckpointTable

    def seed(self, purpose: str) -> int:
        value = getattr(self.seeds, purpose)
        return self.general.seed if value is None else int(value)

    def resolved(self) -> Tree:
        """The experiment file with every key written out."""
        tree: Tree = {
            **_plain(self.general),
            "seeds": {p: self.seed(p) for p in option_fields(Seeds)},
            "data": {**_plain(self.data), **self.source},
            "devices": {**_plain(self.devices), **_plain(self.partition)},
        }
        tree["stream"] = {"kind": self.stream.name, **_plain(self.stream)}
        named = {"model": self.model, "method": self.method, **self.parts}
        tree |= {section: {"name": value.name, **_plain(value)} for section, value in named.items()}
        return tree | {section: _plain(getattr(self, section)) for section in FIXED if section != "seeds"}

    def digest(self) -> str:
        """Equal for experiments that give the same numbers."""
        tree = self.resolved()
        for section, name in VOLATILE:
            tree[section].pop(name)
        return hashlib.sha256(json.dumps(tree, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _plain(value: Any) -> Tree:
    """Options as TOML can hold them: no None, tuples as lists."""
    pairs = ((name, getattr(value, name)) for name in option_fields(type(value)))
    return {name: list(v) if isinstance(v, tuple) else v for name, v in pairs if v is not None}


def parse(tree: Mapping[str, Any]) -> Experiment:
    """A checked experiment; a UserError for the first thing that is wrong."""
    known = [*option_fields(General), *FIXED, *NAMED]
    for name in tree:
        if name not in known:
            shown = name if name.isprintable() else repr(name)
            raise UserError(f"{shown[:60]}: there is no such key or table; {suggestion(name, known)}")
    tree = _labelled(tree)
    general = build(General, {k: v for k, v in tree.items() if k in option_fields(General)}, "")
    tables = {section: build(cls, _table(tree, section), section) for section, cls in FIXED.items()}
    data, source = _divided(tree, "data", DataTable)
    devices, own = _divided(tree, "devices", DevicesTable)
    partition = build(partitions.get(devices.partition, "devices.partition"), own, "devices")
    method, parts = _method(tree)
    experiment = Experiment(
        general=general,
        data=data,
        source=source,
        devices=devices,
        partition=partition,
        stream=_stream(tree),
        model=_named(models, tree, "model", "mlp"),
        method=method,
        parts=parts,
        **tables,
    )
    _check(experiment)
    return experiment


def _labelled(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """A combination's name would be lost in the resolved file, which names its pieces."""
    name = _table(tree, "method").get("name")
    known = isinstance(name, str) and name in methods.names() and name in methods.combinations
    return {**tree, "label": name} if known and not tree.get("label") else tree


def _table(tree: Mapping[str, Any], section: str) -> Tree:
    table = tree.get(section, {})
    if isinstance(table, str) and section in NAMED:
        return {"name": table}  # method = "fedprox" is short for [method] name = "fedprox"
    if not isinstance(table, Mapping):
        raise UserError(f"{section}: {table!r} is not allowed: must be a table, [{section}]")
    return dict(table)


def _divided(tree: Mapping[str, Any], section: str, cls: type[Any]) -> tuple[Any, Tree]:
    """The section's own keys, and those of what it names."""
    table = _table(tree, section)
    fixed = {name: table.pop(name) for name in list(table) if name in option_fields(cls)}
    return build(cls, fixed, section), table


def _stream(tree: Mapping[str, Any]) -> Any:
    table = _table(tree, "stream")
    kind = table.pop("kind", table.pop("name", "static"))
    if not isinstance(kind, str):
        raise UserError(f"stream.kind: {kind!r} is not allowed: must be a name")
    return build(streams.get(kind, "stream.kind"), table, "stream")


def _named(registry: Registry[Any], tree: Mapping[str, Any], section: str, default: str) -> Any:
    table = _table(tree, section)
    name = table.pop("name", default)
    if not isinstance(name, str):
        raise UserError(f"{section}.name: {name!r} is not allowed: must be a name")
    return registry.create(name, table, section)


def _method(tree: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    table = _table(tree, "method")
    name = table.pop("name", "fedavg")
    if not isinstance(name, str):
        raise UserError(f"method.name: {name!r} is not allowed: must be a name")
    choices = {kind: {"name": default, **_table(tree, kind)} for kind, default in DEFAULTS.items()}
    for kind, choice in choices.items():
        if choice == {"name": DEFAULTS[kind]}:
            choices[kind] = DEFAULTS[kind]  # type: ignore[assignment]
    method, resolved = resolve_method(name, table, choices)
    return method, {kind: resolve_part(kind, choice) for kind, choice in resolved.items()}


def _check(experiment: Experiment) -> None:
    devices = experiment.devices
    if devices.per_round > devices.count:
        raise UserError(f"devices.per_round: {devices.per_round} is not allowed: there are {devices.count} devices")
    if devices.sites > devices.count:
        raise UserError(f"devices.sites: {devices.sites} is not allowed: there are {devices.count} devices")
    if experiment.data.name:
        datasets.get(experiment.data.name, "data.name")
    experiment.method.check(experiment.train)
    for user in (experiment.method, experiment.parts["merge"]):
        if user.public_data and not experiment.data.public:
            raise UserError(
                f"data.public: 0 is not allowed with {user.name}, which needs unlabelled samples at the server, say 500"
            )


def read(name: str) -> Tree:
    """The tree of an experiment file, or of a recipe by its name."""
    path = Path(name)
    if name in recipes():
        return load_toml(recipes()[name].read_text(), name) | {}
    if not _is_file(path):
        raise UserError(f"{name[:200]}: neither a file nor a recipe; {suggestion(name, recipes())}")
    try:
        tree = load_toml(path.read_text(encoding="utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{name}: cannot be read ({error})") from None
    return {"name": _stem(path), **tree}


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def load_toml(text: str, name: str) -> Tree:
    try:
        return _bounded(tomllib.loads(_few_dots(text)))
    except ValueError as error:
        raise UserError(f"{name}: not valid TOML: {error}") from None
    except RecursionError:
        raise UserError(f"{name}: not valid TOML: nested too deeply") from None


def _few_dots(text: str) -> str:
    """The parser takes hours for a key of a million dots."""
    if any(piece.count(".") > 100 for piece in re.split(r"[=,{}\[\]\n]", text)):
        raise ValueError("nested too deeply")
    return text


def _bounded(tree: Tree) -> Tree:
    """TOML promises numbers of 64 bits and says nothing of depth; beyond both, even the error could not be printed."""
    level: list[Any] = [tree]
    for _ in range(DEEPEST):
        level = [inner for value in level for inner in _inside(value)]
        if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in level):
            raise ValueError("a whole number of more than 64 bits")
    if level:
        raise ValueError("nested too deeply")
    return tree


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _stem(path: Path) -> str:
    letters = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "-" for c in path.stem).strip("-._")
    return letters[:60] or "experiment"


def recipes() -> dict[str, Path]:
    folder = resources.files("remanence") / "recipes"
    return {
        path.name.removesuffix(".toml"): Path(str(path))
        for path in sorted(folder.iterdir(), key=lambda p: p.name)
        if path.name.endswith(".toml")
    }


def apply_settings(tree: Tree, settings: Sequence[str]) -> Tree:
    """`section.key=value` lines over a tree; values as in TOML, bare words are text."""
    tree = json.loads(json.dumps(tree, default=str))
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set {setting}: must be key=value or section.key=value")
        _place(tree, key.strip().split("."), _value(text.strip(), setting), setting)
    return tree


def _place(tree: Tree, path: list[str], value: Any, setting: str) -> None:
    if len(path) > 2:
        raise UserError(f"--set {setting}: must be key=value or section.key=value")
    if len(path) == 1:
        if path[0] == "method" and isinstance(value, str):
            value = {"name": value}
        tree[path[0]] = value
        return
    table = tree.setdefault(path[0], {})
    if isinstance(table, str):
        table = tree[path[0]] = {"name": table}
    if isinstance(table, list):
        raise UserError(
            f"--set {setting}: this experiment compares {len(table)} tables [[{path[0]}]]; "
            f"choose one with --set {path[0]}=NAME"
        )
    if not isinstance(table, dict):
        raise UserError(f"--set {setting}: {path[0]} is not a table")
    table[path[1]] = value


def _value(text: str, setting: str) -> Any:
    try:
        return _bounded(tomllib.loads(_few_dots(f"value = {text}")))["value"]
    except tomllib.TOMLDecodeError:
        return text
    except RecursionError:
        raise UserError(f"--set {setting[:60]}...: nested too deeply") from None
    except ValueError as error:
        raise UserError(f"--set {setting[:60]}: {error}") from None


def variants(tree: Tree) -> list[Tree]:
    """One tree for every choice from the lists of tables, `[[method]]` or `[[select]]`; most files have none."""
    lists = [_listed(section, tree[section]) for section in VARIED if isinstance(tree.get(section), list)]
    if not lists:
        return [tree]
    found = []
    for chosen in itertools.product(*lists):
        tables = {section: table for _, section, table in chosen}
        found.append({**tree, **tables, "label": ", ".join(label for label, _, _ in chosen)})
    return found


def _listed(section: str, entries: list[Any]) -> list[tuple[str, str, Tree]]:
    """Label, section and table of every entry of a list."""
    if not entries:
        raise UserError(f"{section}: the list is empty: must have [[{section}]] tables")
    key, default = VARIED[section]
    found = []
    for entry in entries:
        table = {key: entry} if isinstance(entry, str) else entry
        if not isinstance(table, dict):
            raise UserError(f"{section}: {entry!r} is not allowed: must be a [[{section}]] table")
        label = str(table.get("label", table.get(key, default)))
        found.append((label, section, {name: value for name, value in table.items() if name != "label"}))
    labels = [label for label, _, _ in found]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise UserError(f"{section}.label: two of them are called {twice!r}; give them labels of their own")
    return found
