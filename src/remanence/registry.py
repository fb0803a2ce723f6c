"""Names -> classes. A file that registers a class is all that a new method, part, model or dataset needs.

Every registered class is a frozen set of options: typed fields with ranges. The same fields are the keys of
the experiment file, the arguments in Python, and what `remanence show NAME` prints.
"""

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, dataclass_transform

import pydantic
from pydantic.dataclasses import dataclass as pydantic_dataclass

from remanence.errors import UserError, suggestion

T = TypeVar("T")
C = TypeVar("C", bound=type)

_CONFIG = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)


@dataclass_transform(frozen_default=True)
def options(cls: C) -> C:
    """Make `cls` a frozen dataclass whose fields are checked: `mu: float = Field(0.01, ge=0)`."""
    return pydantic_dataclass(frozen=True, config=_CONFIG)(cls)  # type: ignore[return-value]


@dataclasses.dataclass(frozen=True)
class Combination:
    """A paper's name for a registered class plus choices elsewhere in the experiment (FedAdam, FedGS)."""

    name: str
    summary: str
    uses: Mapping[str, str]  # section -> registered name: {"method": "fedavg", "optimise": "fedadam"}


class Registry(Generic[T]):
    """The classes of one kind. Files of `package` are imported when a name is first asked for."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self.package = kind, package
        self._classes: dict[str, type[T]] = {}
        self.combinations: dict[str, Combination] = {}
        self._loaded = False

    def register(self, name: str) -> Callable[[C], C]:
        def note(cls: C) -> C:
            if name in self._classes and self._classes[name].__module__ != cls.__module__:
                raise UserError(
                    f"{self.kind} '{name}' is registered twice: {cls.__module__} and {self._classes[name].__module__}"
                )
            self._classes[name] = cls
            cls.name = name  # type: ignore[attr-defined]
            return cls

        return note

    def combine(self, name: str, summary: str, **uses: str) -> None:
        self.combinations[name] = Combination(name, summary, uses)

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self.package}.{module.name}")
        for plugin in entry_points(group=f"remanence.{self.kind}"):
            plugin.load()

    def names(self) -> list[str]:
        self._load()
        return sorted({*self._classes, *self.combinations})

    def spelled(self, name: str) -> str:
        """`best_swap` and `Best-Swap` are `best-swap`; an unknown name stays as it is."""
        usual = name.lower().replace("_", "-")
        return usual if usual in self.names() else name

    def get(self, name: str, key: str = "") -> type[T]:
        """The class called `name`; `key` is where the user wrote it."""
        name = self.spelled(name)
        if name not in self._classes:
            raise UserError(f"{key or self.kind}: unknown {self.kind} '{name}'; {suggestion(name, self.names())}")
        return self._classes[name]

    def create(self, name: str, values: Mapping[str, Any] | None = None, key: str = "") -> T:
        """An instance with checked options; errors name the key, the value and what is allowed."""
        return build(self.get(name, key), values or {}, key or self.kind)


def build(cls: type[T], values: Mapping[str, Any], key: str) -> T:
    if not isinstance(values, Mapping):
        raise UserError(f"{key}: {values!r} is not allowed: must be options with their values")
    known = option_fields(cls)
    for name in values:
        if name not in known:
            shown = (name if name.isprintable() else repr(name))[:60]
            raise UserError(f"{key}.{shown}: {_owner(cls, key)} has no such option; {suggestion(name, known)}")
    try:
        made = cls(**values)
    except pydantic.ValidationError as error:
        raise UserError(explain(error, key)) from None
    for name, value in values.items():
        if not _same_kind(value, getattr(made, name)):
            where = f"{key}.{name}".strip(".")
            raise UserError(f"{where}: {_short(value)} is not allowed: text is no number, true and false are neither")
    return made


def _owner(cls: type, key: str) -> str:
    """The registered name of what the options belong to, or the table they stand in."""
    return key if "name" in option_fields(cls) else str(getattr(cls, "name", key))


def _same_kind(given: Any, taken: Any) -> bool:
    """Pydantic reads '7' as 7 and true as 1; here that is more likely a slip than a wish."""
    if isinstance(given, bool) or isinstance(taken, bool):
        return type(given) is type(taken)
    if isinstance(given, (list, tuple)) and isinstance(taken, tuple):
        return all(map(_same_kind, given, taken))
    return not (isinstance(given, str) and isinstance(taken, (int, float)))


def option_fields(cls: type) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}


def option_default(field: dataclasses.Field[Any]) -> Any:
    """The default a user sees; `...` when the option must be given."""
    default = field.default
    if isinstance(default, pydantic.fields.FieldInfo):
        return default.get_default(call_default_factory=True) if not default.is_required() else ...
    if default is not dataclasses.MISSING:
        return default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else ...


def explain(error: pydantic.ValidationError, key: str) -> str:
    """A pydantic error as lines of `key: value is not allowed: why`, at most two."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for item in error.errors():
        place = [str(part) for part in item["loc"][:1]] + [
            str(part) for part in item["loc"][1:] if isinstance(part, int)
        ]
        where = ".".join([key, *place]).strip(".")
        told = "must be given" if item["type"] == "missing" else f"{_short(item['input'])} is not allowed"
        reason = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
        reasons.setdefault((where, told), []).append("" if item["type"] == "missing" else reason)
    lines = [f"{where}: {told}: {' or '.join(why)}".rstrip(": ") for (where, told), why in reasons.items()]
    return "\n".join(lines[:2])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# Quoted names keep this file free of imports from the pieces it registers.
methods: Registry[Any] = Registry("method", "remanence.methods")
models: Registry[Any] = Registry("model", "remanence.models")
datasets: Registry[Any] = Registry("dataset", "remanence.data.sources")
partitions: Registry[Any] = Registry("partition", "remanence.data.partitions")
streams: Registry[Any] = Registry("stream", "remanence.data.streams")
parts: dict[str, Registry[Any]] = {
    kind: Registry(kind, f"remanence.parts.{kind}")
    for kind in ("select", "merge", "optimise", "privacy", "topology", "attack")
}
