"""Bayesian optimisation over groups, with the embedding of the code published beside FedGS.

The candidates are cut, in their order, into as many intervals as devices are chosen, one device from each: most groups
cannot be reached, and the result depends on the order. The Gaussian process is scikit-learn's.
"""

import warnings
from typing import Any

import numpy as np
from pydantic import Field

from remanence.parts.select.by_counts import ByCounts
from remanence.parts.select.matching import Array, Problem
from remanence.registry import options, parts

LOOKED_AT = 2000  # random points among which the next trial is the most promising


@parts["select"].register("bayesian")
@options
class Bayesian(ByCounts):
    """A Gaussian process over one device per interval; expected improvement says what is tried next."""

    first: int = Field(5, ge=1, le=10_000, description="random trials before")
    steps: int = Field(25, ge=0, le=10_000)

    def pick(self, problem: Problem, generator: np.random.Generator) -> list[int]:
        bounds = np.arange(problem.choose + 1) * problem.candidates // problem.choose
        trials = generator.integers(bounds[:-1], bounds[1:], size=(self.first, problem.choose))
        values = problem.landscape.values(problem.groups(trials))
        for _ in range(self.steps):
            points = generator.integers(bounds[:-1], bounds[1:], size=(LOOKED_AT, problem.choose))
            promising = points[int(_expected_improvement(trials, values, points).argmax())]
            trials = np.vstack([trials, promising])
            values = np.append(values, problem.landscape.values(problem.groups(promising[None])))
        return sorted(trials[int(values.argmin())].tolist())


def _expected_improvement(trials: Array, values: Array, points: Array) -> Array:
    from scipy.stats import norm

    process = _process()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a length scale at its bound
        process.fit(trials, values)
    mean, spread = process.predict(points, return_std=True)
    spread = np.maximum(spread, 1e-12)
    better = (values.min() - mean) / spread
    gain: Array = spread * (better * norm.cdf(better) + norm.pdf(better))
    return gain


def _process() -> Any:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import Matern, WhiteKernel

    return GaussianProcessRegressor(Matern(5.0, nu=2.5) + WhiteKernel(1e-3), normalize_y=True, random_state=0)
