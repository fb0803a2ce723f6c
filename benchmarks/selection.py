"""Selectors on sites of synthetic writers: how far from the proven optimum, in what time, and what noise costs.

Published beside it: random .072 to .105, genetic .028 to .041, GBP-CS .029 to .042, brute force .026 to .038.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arguments import positive
from benchmarks.show import Table
from benchmarks.writers import BATCH, CHOSEN, DRAWN, FAMILIES, PER_SITE, Family, World, places
from remanence.core.rng import numpy_generator
from remanence.parts.select.bayesian import Bayesian
from remanence.parts.select.best_swap import BestSwap, Tabu
from remanence.parts.select.by_counts import ByCounts, one_blas_thread
from remanence.parts.select.exact import Exact, branch_and_bound
from remanence.parts.select.gbp_cs import GbpCs
from remanence.parts.select.genetic import Genetic
from remanence.parts.select.matching import Problem
from remanence.parts.select.sampling import MonteCarlo, Probability

SELECTORS: dict[str, ByCounts] = {  # what it is, and which of its kind
    "random draws: 1": MonteCarlo(draws=1),
    "random draws: 100, learning": Probability(),
    "random draws: 1000": MonteCarlo(),
    "Bayesian: 5 + 25": Bayesian(),
    "genetic: 100 x 100": Genetic(),
    "GBP-CS: random": GbpCs(init="random"),
    "GBP-CS: zero": GbpCs(init="zero"),
    "GBP-CS: zero, growing": GbpCs(init="zero_growing"),
    "GBP-CS: pseudo-inverse": GbpCs(),
    "best swap: greedy": BestSwap(starts=0),
    "best swap: 4 more starts": BestSwap(starts=4),
    "best swap: 16 more starts": BestSwap(),
    "best swap: 64 more starts": BestSwap(starts=64),
    "tabu: 200 steps": Tabu(),
    "exact: branch and bound": Exact(by="branch_and_bound"),
    "exact: enumeration": Exact(),
}
SLOW = {"Bayesian: 5 + 25": 4}  # instances of a family are enough
NOISY = {"gbp_cs": GbpCs, "best_swap": BestSwap}
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
SAME = 1e-12  # divergences that differ by less are one


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--instances", type=positive, default=10, help="of each of the four families")
    parser.add_argument("--picture", metavar="FILE.svg", help="quality against time")


def measure(command: str, given: argparse.Namespace) -> dict[str, Any]:
    picture = _picture_path(given.picture)
    with one_blas_thread():
        studies = [Study(family, given.instances) for family in FAMILIES.values()]
        rows = [_row(name, [study.tried(name) for study in studies]) for name in SELECTORS]
        noise = [_noise_row(epsilon, studies) for epsilon in (*EPSILONS, 0.0)]
    if picture is not None:
        from benchmarks.selection_chart import draw

        draw(rows, given.instances, picture)
    return {
        "benchmark": command,
        "instances_of_a_family": given.instances,
        "devices_of_a_site": PER_SITE,
        "drawn_at_random": DRAWN,
        "selected": CHOSEN,
        "batch": BATCH,
        "selectors": Table(rows, {"divergence": 4, "excess_percent": 2, "optima_percent": 0, "milliseconds": 2}),
        "divergence_with_noise": Table(noise, dict.fromkeys(NOISY, 4)),
    }


def _picture_path(text: str | None) -> Path | None:
    if text is None:
        return None
    from remanence.report.picture import picture_path

    return picture_path(text)


@dataclass(frozen=True)
class Tried:
    """What a selector reached on the instances of a family; means."""

    divergence: float
    excess: float  # over the optimum, as a share of it
    optima: float  # share of instances
    seconds: Sequence[float]


@dataclass(frozen=True)
class Study:
    family: Family
    instances: int

    @cached_property
    def places(self) -> list[tuple[World, int]]:
        return list(places(self.family, self.instances))

    @cached_property
    def problems(self) -> list[Problem]:
        return [world.problem(site) for world, site in self.places]

    @cached_property
    def optima(self) -> np.ndarray:
        return np.array([each.divergence(_optimum(each)) for each in self.problems])

    def tried(self, name: str) -> Tried:
        number = min(self.instances, SLOW.get(name, self.instances))
        reached, seconds = np.empty(number), []
        for place, problem in enumerate(self.problems[:number]):
            fresh = replace(problem)  # without what other selectors have worked out
            started = time.perf_counter()
            chosen = SELECTORS[name].pick(fresh, _chance(name, place))
            seconds.append(time.perf_counter() - started)
            reached[place] = problem.divergence(chosen)
        best = self.optima[:number]
        return Tried(reached.mean(), (reached / best - 1).mean(), (reached <= best + SAME).mean(), seconds)

    def with_noise(self, selector: ByCounts) -> float:
        """The true divergence of groups chosen by what devices told."""
        reached = []
        for place, ((world, site), exact) in enumerate(zip(self.places, self.problems, strict=True)):
            chosen = selector.pick(world.problem(site, selector), _chance("noise", place))
            reached.append(exact.divergence(chosen))
        return float(np.mean(reached))


def _optimum(problem: Problem) -> list[int]:
    return branch_and_bound(problem, problem.random_groups(64, _chance("optimum", 0))).chosen


def _chance(purpose: str, place: int) -> np.random.Generator:
    return numpy_generator(0, f"selection {purpose}", place)


def _row(name: str, tried: Sequence[Tried]) -> dict[str, Any]:
    seconds = [each for one in tried for each in one.seconds]
    return {
        "selector": name,
        "divergence": _by_family([one.divergence for one in tried]),
        "excess_percent": _by_family([100 * one.excess for one in tried]),
        "optima_percent": 100 * float(np.mean([one.optima for one in tried])),
        "milliseconds": 1000 * float(np.median(seconds)),
    }


def _noise_row(epsilon: float, studies: Sequence[Study]) -> dict[str, Any]:
    """An epsilon of 0 stands for exact counts."""
    groups = {
        name: _by_family([study.with_noise(kind(epsilon=epsilon)) for study in studies]) for name, kind in NOISY.items()
    }
    return {"epsilon": f"{epsilon:g}" if epsilon else "exact", **groups}


def _by_family(values: Sequence[float]) -> Mapping[str, float]:
    return dict(zip(FAMILIES, map(float, values), strict=True))
