"""GBP-CS, gradient-based binary permutation: swap the pair with the largest opposite gradients while that helps.

Li, He, Yu, Kang, Li, Xu, Niyato, "Data Heterogeneity-Robust Federated Learning via Group Client Selection in
Industrial IoT", IEEE IoT Journal 2022, section V. Deviations: the gradient of the square instead of the norm (the same
order, and no division by zero), and a swap must lower the distance strictly, where "until it rises" may go in circles.
With batches of unequal sizes it follows the gradient of the divergence itself, for which the paper has no rule.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from remanence.errors import UserError
from remanence.parts.select.by_counts import ByCounts
from remanence.parts.select.matching import Array, Problem, by_gradient
from remanence.registry import options, parts


@parts["select"].register("gbp-cs")
@options
class GbpCs(ByCounts):
    """The selector of FedGS: a start, then swaps along the gradient."""

    init: Literal["mpinv", "zero", "zero_growing", "random"] = Field(
        "mpinv", description="pseudo-inverse, smallest gradients (zero_growing: as the authors' code), or random"
    )

    def pick(self, problem: Problem, generator: np.random.Generator) -> list[int]:
        return permute(problem, self.start(problem, generator))

    def start(self, problem: Problem, generator: np.random.Generator) -> Array:
        if self.init == "mpinv":
            return by_pseudo_inverse(problem)
        if self.init == "random":
            drawn: Array = problem.random_groups(1, generator)[0]
            return drawn
        if self.init == "zero_growing" and not problem.equal:
            raise UserError("select.init: 'zero_growing' is not allowed here: batches differ in size")
        return by_gradient(problem, self.init == "zero_growing")


def by_pseudo_inverse(problem: Problem) -> Array:
    """The L_sel largest entries of pinv(A) y; equal ones in the order of candidates.  Eq. 14"""
    y = problem.target / problem.whole.sum()
    solution = np.linalg.lstsq(problem.counts.T, y, rcond=1e-10)[0]  # of least norm where there are many
    order = np.argsort(-solution.round(9), kind="stable")
    largest: Array = problem.groups(order[None, : problem.choose])[0]
    return largest


def permute(problem: Problem, members: Array) -> list[int]:
    """Swap i = argmin of the gradient outside, j = argmax inside; stop before the first swap that does not help."""
    landscape, first = problem.landscape, np.array([0])
    landscape.stand(members[None])
    while 0 < problem.choose < problem.candidates:
        slope = landscape.slope()[0]
        inside = landscape.members[0]
        entering = int(np.where(inside, np.inf, slope).argmin())
        leaving = int(np.where(inside, slope, -np.inf).argmax())
        before = landscape.values(landscape.members)[0]
        after = landscape.members.copy()
        after[0, [entering, leaving]] = True, False
        if landscape.values(after)[0] - before >= -landscape.tolerance:
            break
        landscape.swap(first, np.array([entering]), np.array([leaving]))
    return np.flatnonzero(landscape.members[0]).tolist()
