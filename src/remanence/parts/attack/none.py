"""Every device is honest."""

from remanence.core.parts import Attack
from remanence.registry import options, parts


@parts["attack"].register("none")
@options
class Honest(Attack): ...
