"""What selectors share that look at class counts: who is taken at random first, and noise on what devices tell."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field
from threadpoolctl import ThreadpoolController

from remanence.core.context import Context
from remanence.core.parts import Offers, Select
from remanence.errors import UserError
from remanence.parts.select.matching import Problem
from remanence.registry import options

if TYPE_CHECKING:
    from remanence.core.method import Method

LEAST_EPSILON = 1e-6  # less means noise beyond the whole numbers of a report


@options
class ByCounts(Select):
    """Devices tell the class counts of what they train on next: a disclosure that training alone does not make."""

    random: int = Field(0, ge=0, description="of the chosen, how many are drawn uniformly, before the others")
    epsilon: float = Field(
        0.0,
        ge=0,
        description="noise on every reported count: each report is epsilon-differentially private for one record "
        "replaced by another; 0 = exact counts, else at least 1e-6",
    )
    random_per_round: bool = Field(
        False, description="these are the same positions in all exchanges of a round, as in the published code"
    )
    reports = True

    def check(self, method: "Method", ctx: Context) -> None:
        if 0 < self.epsilon < LEAST_EPSILON:
            raise UserError(f"select.epsilon: {self.epsilon:g} is not allowed: must be 0 or at least {LEAST_EPSILON:g}")

    @property
    def exact(self) -> bool:
        return not self.epsilon

    def protect(self, counts: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        if not self.epsilon:
            return counts
        # One record replaced changes two counts by one each: sensitivity 2; the difference of two geometric
        # numbers is the discrete Laplace distribution.
        stop = -np.expm1(-self.epsilon / 2)
        noise = generator.geometric(stop, counts.shape) - generator.geometric(stop, counts.shape)
        protected: np.ndarray = np.maximum(counts + noise, 0)
        return protected

    def choose(
        self, candidates: Sequence[int], count: int, generator: np.random.Generator, offers: Offers | None = None
    ) -> list[int]:
        assert offers is not None
        filled = np.flatnonzero(offers.sizes)  # a group without a sample has no mix
        if count >= len(filled):
            return sorted(candidates[k] for k in filled.tolist())
        first = offers.steady if self.random_per_round else generator
        drawn = first.choice(filled, size=min(self.random, count), replace=False)
        left = np.setdiff1d(filled, drawn)
        problem = problem_of(offers, drawn, left, count - len(drawn))
        with one_blas_thread():
            picked = self.pick(problem, generator) if problem.choose else []
        return sorted(candidates[k] for k in [*drawn.tolist(), *left[picked].tolist()])

    def pick(self, problem: Problem, generator: np.random.Generator) -> list[int]:
        """The chosen of the problem's candidates."""
        raise NotImplementedError


def one_blas_thread() -> AbstractContextManager[Any]:
    """On a busy machine products this small wait ten times as long for other threads as they take on one."""
    return _blas().limit(limits=1)  # type: ignore[no-any-return]


@cache
def _blas() -> Any:
    return ThreadpoolController().select(user_api="blas")


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
