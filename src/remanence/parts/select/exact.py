"""The proven optimum: every group looked at, or branch and bound.

Enumeration puts a group together from the half with the lower numbers and the half with the higher ones, so that one
matrix product values thousands of groups; C(33, 8) = 13,884,156 groups take about a tenth of a second.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Literal

import numpy as np
from pydantic import Field

from remanence.errors import UserError
from remanence.parts.select.by_counts import ByCounts
from remanence.parts.select.matching import Array, Problem, Quadratic, best_of, descend, greedy
from remanence.registry import options, parts

MOST_GROUPS = 10**9
AT_ONCE = 2**21  # groups valued together
NODES_AT_ONCE = 4096


@parts["select"].register("exact")
@options
class Exact(ByCounts):
    """The best group of all, with proof."""

    by: Literal["enumeration", "branch_and_bound"] = Field(
        "enumeration", description="branch_and_bound: for larger groups, of equal batches"
    )

    def pick(self, problem: Problem, generator: np.random.Generator) -> list[int]:
        if self.by == "branch_and_bound":
            return branch_and_bound(problem, problem.random_groups(64, generator)).chosen
        return enumerate_groups(problem).chosen


@dataclass
class Proof:
    """An optimum, and how much was looked at to know it."""

    chosen: list[int]
    groups: int = 0  # complete ones that were valued
    nodes: int = 0  # beginnings of groups that were looked into


def enumerate_groups(problem: Problem) -> Proof:
    candidates, choose = problem.candidates, problem.choose
    number = comb(candidates, choose)
    if number > MOST_GROUPS:
        raise UserError(
            f"select.name: 'exact' is not possible here: {number:.2g} groups of {choose} among {candidates} devices, "
            f"at most {MOST_GROUPS:.0e}; use 'best-swap'"
        )
    best, proof = np.inf, Proof(list(range(choose)))
    valued = _valued_quadratic if problem.equal else _valued_ratio
    for low, high in _halves(candidates, choose):
        values = valued(problem, low, high)
        proof.groups += values.size
        place = int(values.argmin())
        if values.flat[place] < best:
            best = float(values.flat[place])
            row, column = divmod(place, len(high))
            proof.chosen = sorted(np.flatnonzero(low[row] | high[column]).tolist())
    return proof


def _halves(candidates: int, choose: int) -> Iterator[tuple[Array, Array]]:
    """Every group once: its lower half, by the half's last member, and its upper half."""
    lower = (choose + 1) // 2
    for last in range(lower - 1, candidates - (choose - lower)):
        low = np.zeros((comb(last, lower - 1), candidates), dtype=bool)
        np.put_along_axis(low, _combinations(last, lower - 1), True, 1)
        low[:, last] = True
        above = candidates - last - 1
        high = np.zeros((comb(above, choose - lower), candidates), dtype=bool)
        np.put_along_axis(high, _combinations(above, choose - lower) + last + 1, True, 1)
        rows = max(1, AT_ONCE // len(high))
        yield from ((low[start : start + rows], high) for start in range(0, len(low), rows))


@lru_cache(maxsize=128)
def _combinations(items: int, size: int) -> Array:
    return np.array(list(combinations(range(items), size)), dtype=np.int64).reshape(comb(items, size), size)


def _valued_quadratic(problem: Problem, low: Array, high: Array) -> Array:
    landscape = problem.landscape
    assert isinstance(landscape, Quadratic)
    one, other = low.astype(np.float64), high.astype(np.float64)
    # [2 S G, f_S, 1] [T, 1, f_T]^T = f_S + f_T + 2 S G T^T, in one product
    left = np.column_stack([2 * one @ landscape.gram, landscape.values(low), np.ones(len(low))])
    right = np.column_stack([other, np.ones(len(high)), landscape.values(high)])
    values: Array = left @ right.T
    return values


def _valued_ratio(problem: Problem, low: Array, high: Array) -> Array:
    one, other = low.astype(np.float64), high.astype(np.float64)
    with_base, joint = one @ problem.counts + problem.base, other @ problem.counts
    Q = (with_base**2).sum(1)[:, None] + (joint**2).sum(1) + 2 * with_base @ joint.T
    P = (with_base @ problem.mix)[:, None] + joint @ problem.mix
    N = (one @ problem.sizes + problem.base_size)[:, None] + other @ problem.sizes
    values: Array = Q / N**2 - 2 * P / N
    return values


@dataclass
class _Nodes:
    """Beginnings of groups, all of one length; candidates stand in the order of falling c."""

    chosen: Array  # (nodes, members so far)
    value: Array
    added: Array  # H: what every further candidate would add by itself


@dataclass
class _Search:
    gram: Array
    choose: int
    tolerance: float
    best: float
    found: Array
    nodes: int = 0
    stack: list[_Nodes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.companions = [self._least_companions(left) for left in range(self.choose + 1)]

    def _least_companions(self, left: int) -> Array:
        """(first free, k): the sum of the left - 1 smallest G_kj over free j other than k."""
        size = len(self.gram)
        table = np.zeros((size + 1, size))
        for first in range(size + 1) if left > 1 else ():
            free = self.gram[:, first:].copy()
            free[np.arange(first, size), np.arange(size - first)] = np.inf
            if free.shape[1] >= left:
                table[first] = np.partition(free, left - 2, axis=1)[:, : left - 1].sum(1)
        return table

    def expand(self, nodes: _Nodes) -> None:
        """Put one more member to every beginning; go on with those that can still beat the best."""
        size, length = len(self.gram), nodes.chosen.shape[1]
        left = self.choose - length
        last = nodes.chosen[:, -1:] if length else np.full((len(nodes.value), 1), -1)
        numbers = np.arange(size)
        open_ = (numbers > last) & (numbers <= size - left)
        self.nodes += len(nodes.value)
        if left == 1:
            self._complete(nodes, open_)
            return
        parent, member = np.nonzero(open_)
        added = nodes.added[parent] + 2 * self.gram[member]
        value = nodes.value[parent] + nodes.added[parent, member]
        could = np.where(numbers > member[:, None], added + self.companions[left - 1][member + 1], np.inf)
        bound = value + np.partition(could, left - 2, axis=1)[:, : left - 1].sum(1)
        alive = np.flatnonzero(bound < self.best - self.tolerance)
        alive = alive[np.argsort(-bound[alive], kind="stable")]  # the most promising is looked into first
        chosen = np.column_stack([nodes.chosen[parent], member])
        for start in range(0, len(alive), NODES_AT_ONCE):
            rows = alive[start : start + NODES_AT_ONCE]
            self.stack.append(_Nodes(chosen[rows], value[rows], added[rows]))

    def _complete(self, nodes: _Nodes, open_: Array) -> None:
        values = np.where(open_, nodes.value[:, None] + nodes.added, np.inf)
        place = int(values.argmin())
        if values.flat[place] < self.best - self.tolerance:
            row, member = divmod(place, values.shape[1])
            self.best, self.found = float(values.flat[place]), np.append(nodes.chosen[row], member)


def branch_and_bound(problem: Problem, starts: Array) -> Proof:
    """`starts`: groups from which swaps give a first good bound."""
    if not problem.equal:
        raise UserError("select.by: 'branch_and_bound' is not possible here: batches differ in size")
    landscape = problem.landscape
    assert isinstance(landscape, Quadratic)
    known = best_of(problem, descend(landscape, np.vstack([greedy(problem)[None], starts])))
    if not 0 < problem.choose < problem.candidates:
        return Proof(known)
    order = np.argsort(-landscape.c, kind="stable")
    gram, c = landscape.gram[np.ix_(order, order)], landscape.c[order]
    value = float(landscape.values(problem.groups(np.array([known])))[0])
    search = _Search(gram, problem.choose, landscape.tolerance, value, np.empty(0, dtype=np.int64))
    search.stack.append(_Nodes(np.empty((1, 0), dtype=np.int64), np.zeros(1), (np.diagonal(gram) - 2 * c)[None]))
    while search.stack:
        search.expand(search.stack.pop())
    chosen = sorted(order[search.found].tolist()) if len(search.found) else known
    return Proof(chosen, nodes=search.nodes)
