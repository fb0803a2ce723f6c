"""Means of the uploads: weighted as the method says (by samples, for FedAvg), or all alike."""

from remanence.core.parts import Merge
from remanence.registry import options, parts


@parts["merge"].register("mean")
@options
class Mean(Merge):
    """The method's weights."""


@parts["merge"].register("uniform")
@options
class Uniform(Merge):
    """Every device counts as one sample, whatever it holds."""

    def samples(self, n: int) -> int:
        return 1
