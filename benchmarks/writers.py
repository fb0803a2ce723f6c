"""Selection problems as sites of handwriting devices pose them, without the handwriting: class counts alone.

A device is a writer of digits, capitals and small letters, unevenly used, as in FEMNIST; its next batch is drawn from
its own finite set. In a family all writers' mixes are drawn alike; the concentrations say how much they differ.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remanence.core.parts import Offers, Select
from remanence.core.rng import numpy_generator
from remanence.parts.select.by_counts import problem_of
from remanence.parts.select.matching import Problem

WRITERS, PER_SITE, BATCH = 350, 35, 32
DRAWN, CHOSEN = 2, 8  # at random, and by a selector among the others of the site
SAMPLES, SPREAD, LEAST = 226.8, 88.9, 100  # of a writer: normally distributed, and at least
KINDS = {"digits": 0.495, "capitals": 0.27, "small letters": 0.235}
LETTERS = "8.2 1.5 2.8 4.3 12.7 2.2 2.0 6.1 7.0 0.2 0.8 4.0 2.4 6.7 7.5 1.9 0.1 6.0 6.3 9.1 2.8 1.0 2.4 0.2 2.0 0.1"
CLASSES = 62


def kind_mixes() -> list[np.ndarray]:
    """The mix within digits, capitals and small letters: letters about as frequent as in English."""
    letters = np.array(LETTERS.split(), dtype=np.float64)
    return [np.full(10, 0.1), letters / letters.sum(), letters / letters.sum()]


def whole_mix() -> np.ndarray:
    return np.concatenate([share * mix for share, mix in zip(KINDS.values(), kind_mixes(), strict=True)])


@dataclass(frozen=True)
class Family:
    """How a writer's mix is drawn."""

    name: str
    within: float  # concentration of the classes, or of those of a kind where kinds are drawn first
    kinds: float = 0.0  # concentration of the kinds' shares

    def mix(self, generator: np.random.Generator) -> np.ndarray:
        if not self.kinds:
            return generator.dirichlet(self.within * whole_mix())
        shares = generator.dirichlet(self.kinds * np.array(list(KINDS.values())))
        inner = [generator.dirichlet(self.within * mix) for mix in kind_mixes()]
        return np.concatenate([share * mix for share, mix in zip(shares, inner, strict=True)])


FAMILIES = {
    family.name: family
    for family in (Family("dir20", 20), Family("dir6", 6), Family("type2", 20, kinds=2), Family("type1", 100, kinds=1))
}


@dataclass(frozen=True)
class World:
    """One fleet of writers: what each has written, and who works where."""

    family: Family
    number: int

    def generator(self, purpose: str, *numbers: int) -> np.random.Generator:
        return numpy_generator(self.number, f"writers {self.family.name} {purpose}", *numbers)

    @cached_property
    def written(self) -> np.ndarray:
        """Class counts, a row per writer."""
        generator = self.generator("written")
        sizes = np.maximum(generator.normal(SAMPLES, SPREAD, WRITERS), LEAST).astype(np.int64)
        return np.stack([generator.multinomial(size, self.family.mix(generator)) for size in sizes])

    @cached_property
    def sites(self) -> np.ndarray:
        return self.generator("sites").permutation(WRITERS).reshape(-1, PER_SITE)

    def batches(self, site: int) -> np.ndarray:
        """Class counts of the next batch of every device of a site."""
        generator = self.generator("batches", site)
        return np.stack([generator.multivariate_hypergeometric(row, BATCH) for row in self.written[self.sites[site]]])

    def offers(self, site: int, select: Select | None = None) -> Offers:
        """What the devices of a site tell, as exact as the selector lets them."""
        counts, whole = self.batches(site), self.written.sum(0)
        if select is not None:
            counts = select.protect(counts, self.generator("noise", site))
            whole = select.protect(self.written, self.generator("noise of the whole")).sum(0)
        return Offers(counts, np.full(PER_SITE, BATCH), whole, self.generator("steady"))

    def problem(self, site: int, select: Select | None = None) -> Problem:
        """The first devices stand for those drawn at random: the order of a site is random already."""
        everyone = np.arange(PER_SITE)
        return problem_of(self.offers(site, select), everyone[:DRAWN], everyone[DRAWN:], CHOSEN)


def places(family: Family, instances: int) -> Iterator[tuple[World, int]]:
    """The sites of as many fleets as are needed."""
    sites = WRITERS // PER_SITE
    for number in range(-(-instances // sites)):
        world = World(family, number)
        yield from ((world, site) for site in range(min(sites, instances - number * sites)))


def problems(family: Family, instances: int) -> list[Problem]:
    return [world.problem(site) for world, site in places(family, instances)]
