"""Selection problems, and the equations of their cards written out directly: whole numbers, no Gram matrix."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from remanence.parts.select.matching import Problem

Vector = np.ndarray


def problem(
    columns: Sequence[Sequence[int]] | Vector, whole: Sequence[int] | Vector, choose: int, drawn: int = 0
) -> Problem:
    """Of candidates whose class counts are given; the first `drawn` take part anyway."""
    counts = np.array(columns, dtype=np.float64)
    return Problem(
        counts=counts[drawn:],
        sizes=counts[drawn:].sum(1),
        base=counts[:drawn].sum(0),
        base_size=float(counts[:drawn].sum()),
        whole=np.array(whole, dtype=np.float64),
        choose=choose,
    )


def worked() -> Problem:
    """A = [[1,3,1,0,3],[2,1,0,2,0],[1,0,3,2,1]], n = 4, P_real = (1/2, 1/4, 1/4), y = (4, 2, 2)."""
    return problem([(1, 2, 1), (3, 1, 0), (1, 0, 3), (0, 2, 2), (3, 0, 1)], (2, 1, 1), choose=2)


def tied() -> Problem:
    """The swap that the gradient proposes leads from 10.6667 to 10.6667."""
    return problem([(4, 0, 0), (0, 4, 0), (0, 0, 4), (2, 2, 0), (1, 1, 2)], (1, 1, 1), choose=2)


def random_problem(
    seed: int, candidates: int = 12, choose: int = 4, classes: int = 6, size: int = 8, drawn: int = 2,
    equal: bool = True, one_class: int = 0,
) -> Problem:  # fmt: skip
    """`one_class`: so many candidates have just one class, the same one for every two of them."""
    generator = np.random.default_rng(seed)
    sizes = np.full(candidates + drawn, size) if equal else generator.integers(1, 2 * size, candidates + drawn)
    columns = np.stack([generator.multinomial(n, generator.dirichlet(np.ones(classes))) for n in sizes])
    for number in range(one_class):
        columns[drawn + number] = 0
        columns[drawn + number, number // 2 % classes] = sizes[drawn + number]
    return problem(columns, generator.integers(1, 40, classes), choose, drawn)


def random_problems(number: int, **options: Any) -> list[Problem]:
    return [random_problem(seed, **options) for seed in range(number)]


def whole_numbers(problem: Problem) -> tuple[Vector, Vector]:
    """A and y = n L P_real - b, both multiplied by the fleet's samples (Eq. 11); equal batches."""
    A, whole, base = (values.astype(np.int64) for values in (problem.counts.T, problem.whole, problem.base))
    size = int(problem.base_size) + problem.choose * int(problem.sizes[0])
    return whole.sum() * A, size * whole - whole.sum() * base


def scaled_distance(problem: Problem, chosen: Sequence[int]) -> int:
    """|| A x - y ||^2 times the square of the fleet's samples, exactly.  Eq. 10"""
    A, y = whole_numbers(problem)
    residual = A[:, list(chosen)].sum(1) - y
    return int(residual @ residual)


def distance(problem: Problem, chosen: Sequence[int]) -> float:
    """|| A x - y ||^2"""
    return float(scaled_distance(problem, chosen) / problem.whole.sum() ** 2)


def divergence(problem: Problem, chosen: Sequence[int]) -> float:
    """|| (A x + b) / N - P_real ||, batches of any size.  Eq. 6, 7"""
    joint = problem.counts[list(chosen)].sum(0) + problem.base
    return float(np.linalg.norm(joint / joint.sum() - problem.whole / problem.whole.sum()))


def all_groups(problem: Problem) -> Iterator[tuple[int, ...]]:
    return combinations(range(problem.candidates), problem.choose)


def swaps(problem: Problem, chosen: Sequence[int]) -> Iterator[list[int]]:
    """Every group that differs in one member."""
    outside = [k for k in range(problem.candidates) if k not in chosen]
    for leaving in chosen:
        yield from (sorted({*chosen, entering} - {leaving}) for entering in outside)


def gbp_cs(problem: Problem, start: Sequence[int]) -> list[int]:
    """The loop of the paper, on whole numbers; a swap must lower the distance."""
    A, y = whole_numbers(problem)
    chosen = sorted(start)
    while 0 < problem.choose < problem.candidates:
        gradient = A.T @ (A[:, chosen].sum(1) - y)
        outside = [k for k in range(problem.candidates) if k not in chosen]
        entering = min(outside, key=lambda k: (gradient[k], k))
        leaving = max(chosen, key=lambda k: (gradient[k], -k))
        after = sorted({*chosen, entering} - {leaving})
        if scaled_distance(problem, after) >= scaled_distance(problem, chosen):
            break
        chosen = after
    return chosen


def from_zero(problem: Problem, growing: bool = False) -> list[int]:
    """Always the smallest gradient; `growing`: towards the target of those chosen so far."""
    A, y = whole_numbers(problem)
    step = int(problem.sizes[0]) * problem.whole.astype(np.int64)  # n P_real, times the fleet's samples
    chosen: list[int] = []
    while len(chosen) < problem.choose:
        target = y - step * (problem.choose - len(chosen)) if growing else y
        gradient = A.T @ (A[:, chosen].sum(1) - target)
        chosen.append(min((k for k in range(problem.candidates) if k not in chosen), key=lambda k: (gradient[k], k)))
    return sorted(chosen)


def members(problem: Problem, chosen: Sequence[int]) -> Vector:
    """A row of True and False."""
    row = np.zeros((1, problem.candidates), dtype=bool)
    row[0, list(chosen)] = True
    return row
