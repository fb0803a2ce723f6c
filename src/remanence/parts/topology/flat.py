"""Every device talks to the cloud."""

from remanence.core.parts import Topology
from remanence.registry import options, parts


@parts["topology"].register("flat")
@options
class Flat(Topology): ...
