"""Genetic selection, with the rules of the code published beside FedGS: tournaments, exchanged segments, elimination.

In that code the mutation acts on a copy and changes nothing; here it has its effect unless `mutation_effective` is off.
"""

import numpy as np
from pydantic import Field

from remanence.parts.select.by_counts import ByCounts
from remanence.parts.select.matching import Array, Problem
from remanence.registry import options, parts

TOURNAMENT = 3


@parts["select"].register("genetic")
@options
class Genetic(ByCounts):
    """Groups that are crossed, mutated, and kept by how well they do."""

    population: int = Field(100, ge=1, le=100_000)
    generations: int = Field(100, ge=1, le=100_000)
    mutation: float = Field(0.001, ge=0, le=1, description="probability for each individual")
    mutation_effective: bool = Field(True, description="false: as in the published code")

    def pick(self, problem: Problem, generator: np.random.Generator) -> list[int]:
        groups = problem.random_groups(self.population, generator)
        best, found = np.inf, groups[0]
        for _ in range(self.generations):
            values = problem.landscape.values(groups)
            leader = int(values.argmin())
            if values[leader] < best:
                best, found = float(values[leader]), groups[leader].copy()
            groups = self.next_generation(problem, groups, values, generator)
        return np.flatnonzero(found).tolist()

    def next_generation(self, problem: Problem, groups: Array, values: Array, generator: np.random.Generator) -> Array:
        drawn = generator.integers(len(groups), size=(self.population, TOURNAMENT))
        winners = drawn[np.arange(self.population), values[drawn].argmin(1)]  # ties: the first drawn
        groups = groups[winners].copy()
        for first in range(0, self.population - 1, 2):
            cross(groups[first], groups[first + 1], generator)
        if self.mutation_effective:
            for individual in np.flatnonzero(generator.random(self.population) < self.mutation):
                mutate(groups[individual], problem.choose, generator)
        kept = groups[groups.sum(1) == problem.choose]
        return kept if len(kept) else problem.random_groups(self.population, generator)


def cross(one: Array, other: Array, generator: np.random.Generator) -> None:
    """Exchange the segment between two places where they differ, both ends included."""
    differing = np.flatnonzero(one != other)
    if len(differing) < 2:
        return
    start, stop = np.sort(generator.choice(differing, 2, replace=False))
    segment = one[start : stop + 1].copy()
    one[start : stop + 1] = other[start : stop + 1]
    other[start : stop + 1] = segment


def mutate(group: Array, choose: int, generator: np.random.Generator) -> None:
    """One in and one out at random; a group of the wrong size is repaired."""
    if group.all():
        return
    if group.sum() == choose:
        group[generator.choice(np.flatnonzero(~group))] = True
        group[generator.choice(np.flatnonzero(group))] = False
        return
    surplus = int(group.sum()) - choose
    places = np.flatnonzero(group if surplus > 0 else ~group)
    group[generator.choice(places, abs(surplus), replace=False)] = surplus < 0
