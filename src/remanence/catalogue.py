"""What `list` and `show` say: names, summaries, options with defaults and ranges, taken from the classes themselves."""

import inspect
from typing import Any

import pydantic
from rich.table import Table

from remanence.config import read, recipes
from remanence.errors import UserError, suggestion
from remanence.registry import (
    Combination,
    Registry,
    datasets,
    methods,
    models,
    option_default,
    option_fields,
    partitions,
    parts,
    streams,
)
from remanence.reproduce.suite import table_entries

Entry = dict[str, Any]


def _registries() -> dict[str, list[Registry[Any]]]:
    return {
        "methods": [methods],
        "parts": [*parts.values()],
        "models": [models],
        "datasets": [datasets],
        "partitions": [partitions],
        "streams": [streams],
    }


def entries(kind: str) -> list[Entry]:
    """Name and summary of everything of a kind."""
    registries = _registries()
    if kind == "recipes":
        return [{"name": name, "kind": "recipe", "summary": _recipe_summary(name)} for name in recipes()]
    if kind == "tables":
        return table_entries()
    if kind not in registries:
        raise UserError(f"list: unknown kind '{kind}'; {suggestion(kind, [*registries, 'recipes', 'tables'])}")
    return [
        {key: entry[key] for key in ("name", "kind", "summary")}
        for registry in registries[kind]
        for entry in _described(registry)
    ]


def describe(name: str) -> Entry:
    """What is called `name`, and under `also` the other kinds that use the same name, in the order of `list`."""
    registries = [registry for group in _registries().values() for registry in group]
    known = [name for registry in registries for name in registry.names()] + [*recipes()]
    if name not in known:
        raise UserError(f"show: nothing is called '{name}'; {_nearest(name, known)}")
    found = [entry for registry in registries for entry in _described(registry) if entry["name"] == name]
    found += [_recipe(name)] if name in recipes() else []
    return {**found[0], "also": found[1:]}


def _recipe(name: str) -> Entry:
    text = recipes()[name].read_text()
    return {"name": name, "kind": "recipe", "summary": _recipe_summary(name), "text": text, "options": []}


def _nearest(name: str, known: list[str]) -> str:
    return suggestion(name, known).split("Known:")[0] + "see: remanence list methods"


def _described(registry: Registry[Any]) -> list[Entry]:
    found: list[Entry] = []
    for name in registry.names():
        combination = registry.combinations.get(name)
        if combination is not None:
            uses = ", ".join(f"{section} = {value}" for section, value in combination.uses.items())
            found.append(
                {
                    "name": name,
                    "kind": registry.kind,
                    "summary": combination.summary,
                    "text": f"{combination.summary}: {uses}.",
                    "options": [option for cls in _pieces(combination) for option in _options(cls)],
                }
            )
        else:
            cls = registry.get(name)
            found.append(
                {
                    "name": name,
                    "kind": registry.kind,
                    "summary": _summary(cls),
                    "text": _text(cls),
                    "options": _options(cls),
                }
            )
    return found


def _pieces(combination: Combination) -> list[type]:
    return [(methods if kind == "method" else parts[kind]).get(name) for kind, name in combination.uses.items()]


def _summary(cls: type) -> str:
    own = (cls.__doc__ or "").strip()
    text = own if own and not own.startswith(f"{cls.__name__}(") else _text(cls)
    return text.splitlines()[0] if text else ""


def _text(cls: type) -> str:
    return inspect.getdoc(inspect.getmodule(cls)) or ""


def _options(cls: type) -> list[Entry]:
    schema = pydantic.TypeAdapter[Any](cls).json_schema()
    properties = schema.get("properties", {})
    return [
        {
            "name": name,
            "default": _readable(option_default(field)),
            "allowed": _allowed(properties.get(name, {})),
            "description": properties.get(name, {}).get("description", ""),
        }
        for name, field in option_fields(cls).items()
    ]


def _readable(value: Any) -> Any:
    if value is ...:
        return "must be given"
    return [*value] if isinstance(value, tuple) else value


_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def _allowed(schema: dict[str, Any]) -> str:
    """A JSON schema as people read it: `number >= 0`, `'a' or 'b'`."""
    if "enum" in schema or "const" in schema:
        return " or ".join(repr(value) for value in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        return " or ".join(filter(None, map(_allowed, schema["anyOf"])))
    bounds = " and ".join(f"{sign} {schema[key]}" for key, sign in _BOUNDS.items() if key in schema)
    kind = {
        "integer": "whole number",
        "array": "list",
        "string": "text",
        "boolean": "true or false",
        "null": "none",
    }.get(schema.get("type", ""), schema.get("type", ""))
    return f"{kind} {bounds}".strip()


def _recipe_summary(name: str) -> str:
    first = recipes()[name].read_text().splitlines()[0]
    return first.removeprefix("#").strip() if first.startswith("#") else str(read(name).get("name", name))


def description_table(entry: Entry) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("option", "default", "allowed", "what it is"):
        table.add_column(column, no_wrap=column == "option")
    for option in entry["options"]:
        table.add_row(option["name"], str(option["default"]), option["allowed"], option["description"])
    return table
