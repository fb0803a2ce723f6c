"""Groups whose joint data look like the whole: the problem that selectors solve, and how its value changes by swaps.

Minimise || A x - y ||, or with batches of unequal size the divergence itself (Eq. 6, 7, 10-13 of FedGS; column k of A
are the class counts of candidate k). Everything is multiplied by the fleet's number of samples, so that with equal
batches all values are whole numbers and ties are ties.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Problem:
    """Which `choose` of the candidates?"""

    counts: Array  # A: a row of class counts per candidate
    sizes: Array  # samples per candidate
    base: Array  # b: class counts of those who take part anyway
    base_size: float
    whole: Array  # class counts of the fleet; P_real is their mix
    choose: int

    @property
    def candidates(self) -> int:
        return len(self.sizes)

    @property
    def equal(self) -> bool:
        """Batches of one size: Eq. 7 and Eq. 10 order groups alike."""
        return bool((self.sizes == self.sizes[:1]).all())

    @cached_property
    def gram(self) -> Array:
        """G = A^T A."""
        gram: Array = self.counts @ self.counts.T
        return gram

    @cached_property
    def distances(self) -> Array:
        """D_ij = || a_i - a_j ||^2."""
        own = np.diagonal(self.gram)
        distances: Array = own[:, None] + own - 2 * self.gram
        return distances

    @property
    def mix(self) -> Array:
        """P_real."""
        mix: Array = self.whole / self.whole.sum()
        return mix

    @property
    def target(self) -> Array:
        """y = (N_b + L_sel mean size) P_real - b, multiplied by the fleet's samples."""
        size = self.base_size + self.choose * float(self.sizes.mean())
        target: Array = size * self.whole - self.whole.sum() * self.base
        return target

    @cached_property
    def landscape(self) -> "Landscape":
        return Quadratic(self) if self.equal else Ratio(self)

    def divergence(self, chosen: Sequence[int]) -> float:
        """|| joint mix - P_real || of the whole group.  Eq. 6"""
        rows = list(chosen)
        size = self.base_size + self.sizes[rows].sum()
        joint = self.base + self.counts[rows].sum(0)
        return float(np.linalg.norm(joint / size - self.mix)) if size else float("nan")

    def random_groups(self, number: int, generator: np.random.Generator) -> Array:
        """Uniform draws without replacement; a row of True and False each."""
        lots = generator.random((number, self.candidates))
        return self.groups(lots.argsort(1, kind="stable")[:, : self.choose])

    def groups(self, chosen: Array) -> Array:
        """Rows of True and False from rows of candidates' numbers."""
        members = np.zeros((len(chosen), self.candidates), dtype=bool)
        np.put_along_axis(members, chosen, True, 1)
        return members


class Landscape(Protocol):
    """Many groups at once, a row each, and what swaps would do to them."""

    tolerance: float  # a smaller change is none
    members: Array  # (groups, candidates), True and False

    def values(self, members: Array) -> Array:
        """What is minimised, but for a constant."""
        ...

    def stand(self, members: Array) -> None:
        """Begin at these groups."""
        ...

    def slope(self) -> Array:
        """The gradient by x, up to a factor; a row per group."""
        ...

    def changes(self) -> Array:
        """(groups, in, out): the change by every swap; infinite where there is nothing to swap."""
        ...

    def swap(self, rows: Array, entering: Array, leaving: Array) -> None: ...

    def keep(self, rows: Array) -> None:
        """Go on with these groups only."""
        ...


class Quadratic:
    """f = || A x - y ||^2 in Gram form; equal batches."""

    def __init__(self, problem: Problem) -> None:
        self.scale = float(problem.whole.sum())
        self.gram = problem.gram * self.scale
        self.distances = problem.distances * self.scale
        self.c = problem.counts @ problem.target  # c = A^T y
        self.tolerance = 1e-9 * self.scale

    def values(self, members: Array) -> Array:
        x = members.astype(np.float64)
        values: Array = ((x @ self.gram - 2 * self.c) * x).sum(1)
        return values

    def stand(self, members: Array) -> None:
        self.members = members.copy()
        self.h = members.astype(np.float64) @ self.gram - self.c  # h = G x - c

    def slope(self) -> Array:
        slope: Array = self.h
        return slope

    def changes(self) -> Array:
        entering, leaving = _masked(2 * self.h, self.members)
        changes: Array = entering[:, :, None] + (self.distances - leaving[:, None, :])  # 2 (h_i - h_j) + D_ij
        return changes

    def swap(self, rows: Array, entering: Array, leaving: Array) -> None:
        self.members[rows, entering], self.members[rows, leaving] = True, False
        self.h[rows] += self.gram[entering] - self.gram[leaving]

    def keep(self, rows: Array) -> None:
        self.members, self.h = self.members[rows], self.h[rows]


class Ratio:
    """The squared divergence Q / N^2 - 2 P / N; batches of any size."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.gram, self.distances = problem, problem.gram, problem.distances
        self.v = problem.counts @ problem.whole / problem.whole.sum()  # in this order, for ties among equal columns
        self.w = problem.sizes.astype(np.float64)
        self.tolerance = 1e-12

    def values(self, members: Array) -> Array:
        Q, P, N, _ = self._sums(members)
        values: Array = Q / N**2 - 2 * P / N
        return values

    def _sums(self, members: Array) -> tuple[Array, Array, Array, Array]:
        """Q = ||s||^2, P = p^T s, N, u = A^T s, of s = A x + b."""
        x = members.astype(np.float64)
        s = x @ self.problem.counts + self.problem.base
        size = x @ self.w + self.problem.base_size
        return (s * s).sum(1), s @ self.problem.mix, size, s @ self.problem.counts.T

    def stand(self, members: Array) -> None:
        self.members = members.copy()
        self.Q, self.P, self.N, self.u = self._sums(members)

    def slope(self) -> Array:
        Q, P, N = (each[:, None] for each in (self.Q, self.P, self.N))
        slope: Array = self.u / N**2 - self.v / N + self.w * (P / N**2 - Q / N**3)
        return slope

    def changes(self) -> Array:
        Q, P, N = (each[:, None, None] for each in (self.Q, self.P, self.N))
        entering, leaving = _masked(2 * self.u, self.members)
        possible = ~self.members[:, :, None] & self.members[:, None, :]
        size = np.where(possible, N + self.w[:, None] - self.w, 1)  # never 0, also where there is nothing to swap
        after = (Q + entering[:, :, None] - leaving[:, None, :] + self.distances) / size**2
        after -= 2 * (P + self.v[:, None] - self.v) / size
        changes: Array = after - (Q / N**2 - 2 * P / N)
        return changes

    def swap(self, rows: Array, entering: Array, leaving: Array) -> None:
        self.members[rows, entering], self.members[rows, leaving] = True, False
        pull = self.u[rows, entering] - self.u[rows, leaving]
        self.Q[rows] += 2 * pull + self.distances[entering, leaving]
        self.P[rows] += self.v[entering] - self.v[leaving]
        self.N[rows] += self.w[entering] - self.w[leaving]
        self.u[rows] += self.gram[entering] - self.gram[leaving]

    def keep(self, rows: Array) -> None:
        self.members, self.u = self.members[rows], self.u[rows]
        self.Q, self.P, self.N = self.Q[rows], self.P[rows], self.N[rows]


def _masked(values: Array, members: Array) -> tuple[Array, Array]:
    """The values of those who may enter (others infinite), and of those who may leave (others minus infinite)."""
    return np.where(members, np.inf, values), np.where(members, values, -np.inf)


def descend(landscape: Landscape, members: Array) -> Array:
    """The best swap by exact decrease, again and again until none is left; all groups at once."""
    landscape.stand(members)
    ends, standing = members.copy(), np.arange(len(members))
    while len(standing):
        changes = landscape.changes().reshape(len(standing), -1)
        best = changes.argmin(1)  # lowest i, then lowest j
        moving = changes[np.arange(len(best)), best] < -landscape.tolerance
        ends[standing[~moving]] = landscape.members[~moving]
        if not moving.all():
            landscape.keep(moving)
            standing, best = standing[moving], best[moving]
        landscape.swap(np.arange(len(best)), *np.divmod(best, members.shape[1]))
    return ends


def greedy(problem: Problem) -> Array:
    """From nobody, always the candidate that lowers || A x - y || most."""
    quadratic = Quadratic(problem)
    own = np.diagonal(quadratic.gram)
    return _one_by_one(problem, quadratic, lambda h, taken: 2 * h + own)


def by_gradient(problem: Problem, growing: bool = False) -> Array:
    """From nobody, always the candidate with the smallest gradient; `growing`: y counts only those chosen so far."""
    quadratic = Quadratic(problem)
    if not growing:
        return _one_by_one(problem, quadratic, lambda h, taken: h)
    size = float(problem.sizes[0])  # y(x) = n (L_rnd + sum x) P_real - b
    missing = problem.counts @ problem.whole * size
    return _one_by_one(problem, quadratic, lambda h, taken: h + missing * (problem.choose - taken))


def _one_by_one(problem: Problem, quadratic: Quadratic, score: "Score") -> Array:
    members, h = np.zeros(problem.candidates, dtype=bool), -quadratic.c
    for taken in range(problem.choose):
        scores = np.where(members, np.inf, score(h, taken))
        best = int(scores.argmin())
        members[best] = True
        h = h + quadratic.gram[best]
    return members


class Score(Protocol):
    def __call__(self, h: Array, taken: int) -> Array: ...


def best_of(problem: Problem, members: Array) -> list[int]:
    """The best of the groups, the first of equals, as candidates' numbers."""
    values = problem.landscape.values(members)
    return np.flatnonzero(members[int(values.argmin())]).tolist()
