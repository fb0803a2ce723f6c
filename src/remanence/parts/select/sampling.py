"""Random groups, the best of many: Monte Carlo, and the variant that learns which devices improve a group."""

import numpy as np
from pydantic import Field

from remanence.parts.select.by_counts import ByCounts
from remanence.parts.select.matching import Problem, best_of
from remanence.registry import options, parts


@parts["select"].register("monte-carlo")
@options
class MonteCarlo(ByCounts):
    """The best of many uniform draws."""

    draws: int = Field(1000, ge=1, le=10_000_000)

    def pick(self, problem: Problem, generator: np.random.Generator) -> list[int]:
        return best_of(problem, problem.random_groups(self.draws, generator))


@parts["select"].register("probability")
@options
class Probability(ByCounts):
    """Draws whose probabilities grow for the members of every group that improved the best."""

    draws: int = Field(100, ge=1, le=1_000_000)

    def pick(self, problem: Problem, generator: np.random.Generator) -> list[int]:
        chances = np.full(problem.candidates, 1 / problem.candidates)
        best, found = np.inf, np.empty(0, dtype=np.int64)
        for _ in range(self.draws):
            drawn = generator.choice(problem.candidates, problem.choose, replace=False, p=chances)
            value = float(problem.landscape.values(problem.groups(drawn[None]))[0])
            if value < best:
                best, found = value, drawn
                chances[drawn] += 1 / problem.candidates
                chances /= chances.sum()
        return sorted(found.tolist())
