"""From what a user names to objects: a method by its name or a combination's, parts with their options."""

from collections.abc import Mapping
from typing import Any

from remanence.core.method import Method
from remanence.core.parts import DEFAULTS, KINDS
from remanence.errors import UserError, suggestion
from remanence.registry import Combination, build, methods, option_fields, parts

PartChoice = str | Mapping[str, Any] | tuple[str, Mapping[str, Any]] | Any  # a name, a name with options, or the part


def resolve_method(
    method: str | Method, options: Mapping[str, Any], choices: Mapping[str, PartChoice]
) -> tuple[Method, dict[str, PartChoice]]:
    """The method, and the parts that its name stands for: FedAdam is FedAvg with a server optimiser."""
    if not isinstance(options, Mapping):
        raise UserError(f"options: {options!r} is not allowed: must be names with values")
    if isinstance(method, Method):
        if options:
            raise UserError("options: must be empty when method is an object that has its own")
        return method, dict(choices)
    if not isinstance(method, str):
        raise UserError(f"method: {method!r} is not allowed: must be a name or a Method")
    method = methods.spelled(method)
    combination = methods.combinations.get(method) if method in methods.names() else None
    if combination is None:
        chosen: Method = methods.create(method, options, "method")
        return chosen, dict(choices)
    return _combined(combination, options, choices)


def _combined(
    combination: Combination, options: Mapping[str, Any], choices: Mapping[str, PartChoice]
) -> tuple[Method, dict[str, PartChoice]]:
    """Every option goes to the piece that has it."""
    base = methods.get(combination.uses["method"])
    kinds = {kind: name for kind, name in combination.uses.items() if kind != "method"}
    pieces = {"method": base, **{kind: parts[kind].get(name) for kind, name in kinds.items()}}
    known = [name for cls in pieces.values() for name in option_fields(cls)]
    wrong = next((name for name in options if name not in known), None)
    if wrong is not None:
        raise UserError(f"method.{wrong}: {combination.name} has no such option; {suggestion(wrong, known)}")
    own = {kind: {n: v for n, v in options.items() if n in option_fields(cls)} for kind, cls in pieces.items()}
    resolved: dict[str, PartChoice] = dict(choices)
    for kind, name in kinds.items():
        given = choices.get(kind, DEFAULTS[kind])
        more = {k: v for k, v in given.items() if k != "name"} if isinstance(given, Mapping) else {}
        chosen_name = given.get("name") if isinstance(given, Mapping) else given
        if chosen_name not in (DEFAULTS[kind], name):
            raise UserError(
                f"{kind}: {chosen_name!r} is not allowed with method '{combination.name}', which is {kind} '{name}'"
            )
        resolved[kind] = {"name": name, **more, **own[kind]}
    return build(base, own["method"], "method"), resolved


def resolve_part(kind: str, choice: PartChoice) -> Any:
    if isinstance(choice, KINDS[kind]):
        return choice
    if isinstance(choice, tuple) and len(choice) == 2 and isinstance(choice[1], Mapping):
        choice = {"name": choice[0], **choice[1]}
    if isinstance(choice, str):
        choice = {"name": choice}
    if not isinstance(choice, Mapping) or not isinstance(choice.get("name"), str):
        raise UserError(f"{kind}: {choice!r} is not a name, a name with options, or a part of this kind")
    return parts[kind].create(choice["name"], {k: v for k, v in choice.items() if k != "name"}, kind)
