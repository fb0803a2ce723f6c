"""What selectors share that look at class counts: who is taken at random first, and noise on what devices tell."""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from remanence.core.parts import Offers, Select
from remanence.parts.select.matching import Problem
from remanence.registry import options


@options
class ByCounts(Select):
    """Devices tell the class counts of what they train on next: a disclosure that training alone does not make."""

    random: int = Field(0, ge=0, description="of the chosen, how many are drawn uniformly, before the others")
    epsilon: float = Field(
        0.0,
        ge=0,
        description="noise on every reported count: each report is epsilon-differentially private for one record "
        "replaced by another; 0 = exact counts",
    )
    random_per_round: bool = Field(
        False, description="these are the same positions in all exchanges of a round, as in the published code"
    )
    reports = True

    @property
    def exact(self) -> bool:
        return not self.epsilon

    def protect(self, counts: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        if not self.epsilon:
            return counts
        # One record replaced changes two counts by one each: sensitivity 2; the difference of two geometric
        # numbers is the discrete Laplace distribution.
        stop = 1 - np.exp(-self.epsilon / 2)
        noise = generator.geometric(stop, counts.shape) - generator.geometric(stop, counts.shape)
        protected: np.ndarray = np.maximum(counts + noise, 0)
        return protected

    def choose(
        self, candidates: Sequence[int], count: int, generator: np.random.Generator, offers: Offers | None = None
    ) -> list[int]:
        assert offers is not None
        if count >= len(candidates):
            return sorted(candidates)
        first = offers.steady if self.random_per_round else generator
        drawn = first.choice(len(candidates), size=min(self.random, count), replace=False)
        left = np.setdiff1d(np.arange(len(candidates)), drawn)
        problem = problem_of(offers, drawn, left, count - len(drawn))
        picked = self.pick(problem, generator) if problem.choose else []
        return sorted(candidates[k] for k in [*drawn.tolist(), *left[picked].tolist()])

    def pick(self, problem: Problem, generator: np.random.Generator) -> list[int]:
        """The chosen of the problem's candidates."""
        raise NotImplementedError


def problem_of(offers: Offers, drawn: np.ndarray, left: np.ndarray, choose: int) -> Problem:
    counts = offers.counts.astype(np.float64)
    return Problem(
        counts=counts[left],
        sizes=offers.sizes[left].astype(np.float64),
        base=counts[drawn].sum(0),
        base_size=float(offers.sizes[drawn].sum()),
        whole=offers.whole.astype(np.float64),
        choose=choose,
    )
