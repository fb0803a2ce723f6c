"""Samplers: the identities of their card; what all selectors by class counts share; noise on what devices tell."""

from collections.abc import Sequence
from itertools import pairwise
from math import comb
from typing import Any

import groups
import numpy as np
import pytest
import torch
from groups import Vector, members, random_problem, random_problems, tied, worked
from worlds import classification, planned, softmax_model

import remanence
from remanence.core.choosing import Chooser
from remanence.core.parts import Offers, Select
from remanence.core.rng import numpy_generator
from remanence.data.fleet import TensorFleet
from remanence.errors import UserError
from remanence.parts.select.bayesian import Bayesian
from remanence.parts.select.best_swap import BestSwap
from remanence.parts.select.by_counts import ByCounts
from remanence.parts.select.exact import Exact, branch_and_bound, enumerate_groups
from remanence.parts.select.gbp_cs import GbpCs
from remanence.parts.select.genetic import Genetic, cross, mutate
from remanence.parts.select.matching import Problem
from remanence.parts.select.sampling import MonteCarlo, Probability
from remanence.registry import parts

SHORT = {"genetic": {"generations": 10}, "bayesian": {"steps": 3}, "tabu": {"steps": 50}}
EVERY = [parts["select"].create(name, SHORT.get(name)) for name in parts["select"].names() if name != "uniform"]
BY_COUNTS = pytest.mark.parametrize("selector", EVERY, ids=[selector.name for selector in EVERY])


def chance(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# The proven optimum


def naive(problem: Problem) -> tuple[int, ...]:
    return min(groups.all_groups(problem), key=lambda chosen: groups.scaled_distance(problem, chosen))


@pytest.mark.parametrize("seed", range(12))
def test_enumeration_is_branch_and_bound_is_the_naive_loop(seed: int) -> None:
    problem = random_problem(seed, one_class=seed % 4)
    best = groups.scaled_distance(problem, naive(problem))
    proofs = [enumerate_groups(problem), branch_and_bound(problem, problem.random_groups(3, chance()))]
    assert [groups.scaled_distance(problem, proof.chosen) for proof in proofs] == [best, best]
    assert proofs[0].groups == comb(12, 4) == 495


@pytest.mark.parametrize(("candidates", "choose"), [(1, 1), (5, 1), (5, 2), (6, 5), (7, 7), (9, 3), (10, 6)])
def test_every_group_is_looked_at_once(candidates: int, choose: int) -> None:
    problem = random_problem(1, candidates=candidates, choose=choose)
    proof = enumerate_groups(problem)
    assert proof.groups == comb(candidates, choose)
    best = groups.scaled_distance(problem, naive(problem))
    proven = branch_and_bound(problem, problem.random_groups(1, chance())).chosen
    assert groups.scaled_distance(problem, proof.chosen) == groups.scaled_distance(problem, proven) == best


def test_branch_and_bound_needs_no_luck() -> None:
    """Even with the worst group to begin with; it looks at a part of the tree only."""
    for problem in random_problems(5, candidates=18, choose=6, size=32):
        worst = min(groups.all_groups(problem), key=lambda chosen: -groups.scaled_distance(problem, chosen))
        proof = branch_and_bound(problem, members(problem, worst))
        assert proof.chosen == list(naive(problem))
        assert proof.nodes < comb(18, 6)


@pytest.mark.parametrize("by", ["enumeration", "branch_and_bound"])
def test_worked_examples(by: Any) -> None:
    assert Exact(by=by).pick(worked(), chance()) == [0, 4]
    assert groups.distance(worked(), [0, 4]) == 0
    assert Exact(by=by).pick(tied(), chance()) == [3, 4]


@pytest.mark.parametrize("seed", range(5))
def test_a_target_that_can_be_reached_is_reached(seed: int) -> None:
    """n L P_real - b is the sum of a group's columns."""
    plain = random_problem(seed)
    aim = chance(seed).choice(12, 4, replace=False)
    problem = groups.problem(
        np.vstack([plain.base / 2, plain.base / 2, plain.counts]), plain.base + plain.counts[aim].sum(0), 4, drawn=2
    )
    chosen = enumerate_groups(problem).chosen
    assert groups.scaled_distance(problem, chosen) == 0
    assert problem.divergence(chosen) == 0


def test_the_mixed_integer_form_has_the_same_optimum() -> None:
    """z_ij = x_i x_j made linear, with sum_j z_ij = (L_sel - 1) x_i, proven by a solver."""
    problem = random_problem(5, candidates=10, choose=3)
    value, chosen = solved(problem)
    assert chosen == enumerate_groups(problem).chosen == list(naive(problem))
    y = groups.whole_numbers(problem)[1]
    assert value + y @ y == groups.scaled_distance(problem, chosen)


def solved(problem: Problem) -> tuple[int, list[int]]:
    from scipy.optimize import Bounds, LinearConstraint, milp

    A, y = groups.whole_numbers(problem)
    K, G, c = problem.candidates, A.T @ A, A.T @ y
    pairs = [(i, j) for i in range(K) for j in range(i + 1, K)]
    column = {pair: K + place for place, pair in enumerate(pairs)}
    cost = np.concatenate([np.diagonal(G) - 2 * c, [2 * G[pair] for pair in pairs]])
    rows, low, high = [np.r_[np.ones(K), np.zeros(len(pairs))]], [problem.choose], [problem.choose]
    for i in range(K):
        row = np.zeros(len(cost))
        row[i] = 1 - problem.choose
        row[[column[tuple(sorted((i, j)))] for j in range(K) if j != i]] = 1
        rows, low, high = [*rows, row], [*low, 0], [*high, 0]
    for (i, j), place in column.items():
        for member in (i, j):
            row = np.zeros(len(cost))
            row[place], row[member] = 1, -1
            rows, low, high = [*rows, row], [*low, -1], [*high, 0]
        both = np.zeros(len(cost))
        both[[place, i, j]] = 1, -1, -1
        rows, low, high = [*rows, both], [*low, -1], [*high, 1]
    binary = np.r_[np.ones(K), np.zeros(len(pairs))]
    found = milp(cost, integrality=binary, bounds=Bounds(0, 1), constraints=LinearConstraint(np.array(rows), low, high))
    return round(found.fun), np.flatnonzero(found.x[:K] > 0.5).tolist()


def test_batches_of_unequal_size_are_enumerated_by_their_divergence() -> None:
    for problem in random_problems(10, equal=False):
        proof = enumerate_groups(problem)
        best = min(groups.divergence(problem, chosen) for chosen in groups.all_groups(problem))
        assert proof.groups == 495
        assert groups.divergence(problem, proof.chosen) == pytest.approx(best, abs=1e-12)
        assert problem.divergence(proof.chosen) == pytest.approx(best, abs=1e-12)


def test_what_cannot_be_proven_is_refused() -> None:
    with pytest.raises(UserError, match=r"select\.name: 'exact' is not possible here: .*use 'best-swap'"):
        enumerate_groups(random_problem(0, candidates=60, choose=20))
    with pytest.raises(UserError, match=r"select\.by: 'branch_and_bound' is not possible here: batches differ"):
        Exact(by="branch_and_bound").pick(random_problem(0, equal=False), chance())


@BY_COUNTS
@pytest.mark.parametrize("equal", [True, False], ids=["equal", "unequal"])
def test_nobody_beats_the_optimum(selector: ByCounts, equal: bool) -> None:
    for seed, problem in enumerate(random_problems(8, equal=equal)):
        chosen = selector.pick(problem, chance(seed))
        assert chosen == sorted(set(chosen))
        assert len(chosen) == 4
        optimum = groups.divergence(problem, enumerate_groups(problem).chosen)
        assert groups.divergence(problem, chosen) >= optimum - 1e-12


# Random draws


def test_one_draw_is_a_random_group() -> None:
    problem = random_problem(0)
    drawn = GbpCs(init="random").start(problem, chance(7))
    assert MonteCarlo(draws=1).pick(problem, chance(7)) == np.flatnonzero(drawn).tolist()


def test_more_draws_are_never_worse() -> None:
    """The first of them are the same."""
    for problem in random_problems(5, candidates=20, choose=6):
        values = [groups.scaled_distance(problem, MonteCarlo(draws=n).pick(problem, chance())) for n in range(1, 60, 4)]
        assert all(later <= earlier for earlier, later in pairwise(values))
        assert values[-1] < values[0]


def test_draws_are_uniform() -> None:
    """495 groups, 40 draws of each on average: all appear, no member is preferred."""
    problem = random_problem(0)
    rows = problem.random_groups(40 * 495, chance())
    assert (rows.sum(1) == 4).all()
    assert len(np.unique(rows, axis=0)) == 495
    assert rows.mean(0) == pytest.approx(np.full(12, 4 / 12), abs=5 * (2 / 9 / len(rows)) ** 0.5)


def test_members_of_better_groups_are_drawn_more_often() -> None:
    """Every improvement adds 1/K to the chances of its members."""
    problem = random_problem(3)
    generator, q = chance(), np.full(12, 1 / 12)
    best, found = None, []
    for _ in range(100):
        drawn = generator.choice(12, 4, replace=False, p=q)
        if best is None or groups.scaled_distance(problem, drawn) < best:
            best, found = groups.scaled_distance(problem, drawn), sorted(drawn.tolist())
            q[drawn] += 1 / 12
            q /= q.sum()
    assert Probability().pick(problem, chance()) == found


# Genetic


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("effective", [True, False])
def test_survivors_have_the_right_size(seed: int, effective: bool) -> None:
    problem = random_problem(seed)
    genetic = Genetic(population=20, mutation=1.0 if effective else 0.0, mutation_effective=effective)
    rows, generator = problem.random_groups(20, chance(seed)), chance(seed + 1)
    for _ in range(20):
        rows = genetic.next_generation(problem, rows, problem.landscape.values(rows), generator)
        assert (rows.sum(1) == 4).all()
        assert 1 <= len(rows) <= 20


def test_the_best_ever_never_rises() -> None:
    problem = random_problem(2, candidates=20, choose=6)
    ends = [Genetic(population=10, generations=n).pick(problem, chance()) for n in range(1, 40)]
    values = [groups.scaled_distance(problem, chosen) for chosen in ends]
    assert all(later <= earlier for earlier, later in pairwise(values))
    first = problem.random_groups(10, chance())
    assert values[0] == min(groups.scaled_distance(problem, np.flatnonzero(row)) for row in first)


@pytest.mark.parametrize("population", [1, 2, 3])
@pytest.mark.parametrize("mutation", [0.0, 1.0])
def test_tiny_populations(population: int, mutation: float) -> None:
    """Odd ones, and those that a crossing can wipe out, are refilled."""
    for seed in range(20):
        chosen = Genetic(population=population, generations=10, mutation=mutation).pick(
            random_problem(seed, candidates=4, choose=2), chance(seed)
        )
        assert len(set(chosen)) == 2


def test_equal_individuals_do_not_cross() -> None:
    one = np.array([True, False, True, False])
    other = one.copy()
    cross(one, other, chance())
    assert one.tolist() == other.tolist() == [True, False, True, False]


def test_a_crossed_segment_has_both_its_ends() -> None:
    for seed in range(30):
        one, other = (row.copy() for row in random_problem(0).random_groups(2, chance(seed)))
        before = (one.copy(), other.copy())
        cross(one, other, chance(seed))
        changed = np.flatnonzero(one != before[0])
        differing = np.flatnonzero(before[0] != before[1])
        if not len(differing):
            continue
        assert len(changed) >= 2
        assert changed.tolist() == [k for k in differing if changed[0] <= k <= changed[-1]]
        assert one[changed].tolist() == before[1][changed].tolist()
        assert other[changed].tolist() == before[0][changed].tolist()


def test_a_mutation_keeps_or_mends_the_size() -> None:
    for seed in range(30):
        for size in range(1, 9):
            group = np.zeros(8, dtype=bool)
            group[chance(seed).choice(8, size, replace=False)] = True
            before = group.copy()
            mutate(group, 4, chance(seed + 1))
            if size < 8:
                assert group.sum() == 4
            assert (group != before).sum() in ((0, 2) if size == 4 else (abs(size - 4), 0))


def test_the_published_mutation_changes_nothing() -> None:
    problem = random_problem(0)
    switched_off = Genetic(mutation=1.0, mutation_effective=False, generations=20)
    assert switched_off.pick(problem, chance()) == Genetic(mutation=0.0, mutation_effective=False, generations=20).pick(
        problem, chance()
    )


# Bayesian


@pytest.mark.parametrize(("candidates", "choose"), [(33, 8), (30, 11), (12, 4), (5, 5), (7, 1), (49, 20)])
def test_one_device_of_every_interval(candidates: int, choose: int) -> None:
    """Of 33 and 8: intervals of 4, 4, 4, 4, 4, 4, 4 and 5. In floating point, 30 / 11 * 11 may fall short of 30."""
    problem = random_problem(0, candidates=candidates, choose=choose)
    picked = np.array([Bayesian(first=1, steps=0).pick(problem, chance(seed)) for seed in range(300)])
    starts = [i * candidates // choose for i in range(choose + 1)]
    for place, (start, stop) in enumerate(pairwise(starts)):
        assert set(picked[:, place].tolist()) == set(range(start, stop))
    assert (starts[0], starts[-1]) == (0, candidates)


def test_the_process_finds_what_chance_does_not() -> None:
    """30 trials, 25 of them where improvement is expected, against 30 at random; both on one device per interval."""
    informed, blind = [], []
    for seed, problem in enumerate(random_problems(3, candidates=33, choose=8, size=32, classes=10)):
        informed.append(groups.divergence(problem, Bayesian().pick(problem, chance(seed))))
        blind.append(groups.divergence(problem, Bayesian(first=30, steps=0).pick(problem, chance(seed))))
    assert np.mean(informed) < np.mean(blind)


def test_more_steps_are_never_worse() -> None:
    problem = random_problem(1, equal=False)
    values = [groups.divergence(problem, Bayesian(steps=n).pick(problem, chance())) for n in (0, 2, 4)]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(values))


# What they share: who is drawn at random, too few candidates


DEVICES = range(10, 22)  # numbers of devices need not begin with 0


def offers(seed: int = 0, empty: Sequence[int] = (), steady: int = 0) -> Offers:
    counts = chance(seed).multinomial(8, [0.25] * 4, size=len(DEVICES))
    counts[list(empty)] = 0
    return Offers(counts, counts.sum(1), np.array([40, 30, 20, 10]), chance(steady))


@BY_COUNTS
@pytest.mark.parametrize("random", [0, 2, 5, 9])
def test_so_many_are_chosen(selector: ByCounts, random: int) -> None:
    selector = type(selector)(**{**SHORT.get(selector.name, {}), "random": random})
    chosen = selector.choose(DEVICES, 5, chance(), offers())
    assert chosen == sorted(set(chosen))
    assert len(chosen) == 5
    assert set(chosen) <= set(DEVICES)
    assert chosen == selector.choose(DEVICES, 5, chance(), offers())


@BY_COUNTS
def test_too_few_are_all_taken(selector: ByCounts) -> None:
    for count in (12, 13, 100):
        assert selector.choose(DEVICES, count, chance(), offers()) == list(DEVICES)
    assert selector.choose(DEVICES, 0, chance(), offers()) == []


@BY_COUNTS
def test_everyone_or_nobody_in_a_problem(selector: ByCounts) -> None:
    """Also among those left by the random draw."""
    for equal in (True, False):
        assert selector.pick(random_problem(0, choose=12, equal=equal), chance()) == list(range(12))
    for seed in range(30):
        assert len(selector.choose(DEVICES, 11, chance(seed), offers())) == 11


@BY_COUNTS
def test_whoever_has_no_data_is_no_candidate(selector: ByCounts) -> None:
    """A group without a sample has no mix to compare."""
    empty = [0, 3, 4, 7, 8, 9, 11]
    with np.errstate(divide="raise", invalid="raise"):
        chosen = selector.choose(DEVICES, 3, chance(), offers(empty=empty))
    assert len(chosen) == 3
    assert not {device - 10 for device in chosen} & set(empty)
    assert selector.choose(DEVICES, 7, chance(), offers(empty=empty)) == [11, 12, 15, 16, 20]
    assert selector.choose(DEVICES, 3, chance(), offers(empty=range(12))) == []


@pytest.mark.parametrize("seed", range(6))
def test_the_others_make_up_for_those_drawn(seed: int) -> None:
    """y = n L P_real - b: the best complement of two who were drawn uniformly."""
    told = offers(seed)
    drawn = chance(seed).choice(12, 2, replace=False)
    left = [k for k in range(12) if k not in drawn]
    rest = groups.problem(np.vstack([told.counts[drawn], told.counts[left]]), told.whole, 3, drawn=2)
    best = [left[k] for k in naive(rest)]
    chosen = Exact(random=2).choose(DEVICES, 5, chance(seed), told)
    assert set(drawn + 10) <= set(chosen)
    others = [left.index(device - 10) for device in chosen if device - 10 not in drawn]
    assert groups.scaled_distance(rest, others) == groups.scaled_distance(rest, [left.index(k) for k in best])


def test_the_same_are_drawn_in_a_whole_round() -> None:
    """`random_per_round`: by a generator that all exchanges of a round share."""
    steady, fresh = Exact(random=2, random_per_round=True), Exact(random=2)
    rounds = [{tuple(steady.choose(DEVICES, 5, chance(t), offers(steady=r))) for t in range(6)} for r in range(4)]
    assert [len(found) for found in rounds] == [1, 1, 1, 1]
    assert len(set.union(*rounds)) > 1
    assert len({tuple(fresh.choose(DEVICES, 5, chance(t), offers())) for t in range(6)}) > 1


def test_random_members_are_uniform() -> None:
    turns = np.zeros(12)
    for seed in range(1500):
        chosen = BestSwap(starts=0, random=5).choose(DEVICES, 5, chance(seed), offers())
        turns[[device - 10 for device in chosen]] += 1
    assert turns / 1500 == pytest.approx(np.full(12, 5 / 12), abs=5 * (35 / 144 / 1500) ** 0.5)


# Noise on what devices tell


def noise(epsilon: float, number: int = 200_000) -> Vector:
    """On counts so large that nothing is cut off at zero."""
    counts = np.full(number, 10**6)
    return GbpCs(epsilon=epsilon).protect(counts, chance()) - counts


def test_without_epsilon_counts_are_exact() -> None:
    counts = chance().integers(0, 9, (3, 5))
    assert GbpCs().protect(counts, chance()) is counts
    assert GbpCs().exact
    assert not GbpCs(epsilon=1).exact


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_noise_is_discrete_laplace(epsilon: float) -> None:
    """P(k) = (1 - q) / (1 + q) q^|k|, q = exp(-epsilon / 2): one record changes two counts by one each."""
    drawn, q = noise(epsilon), np.exp(-epsilon / 2)
    variance = 2 * q / (1 - q) ** 2
    assert drawn.mean() == pytest.approx(0, abs=5 * (variance / len(drawn)) ** 0.5)
    assert drawn.var() == pytest.approx(variance, rel=0.05)
    for k in range(-4, 5):
        share = (1 - q) / (1 + q) * q ** abs(k)
        assert (drawn == k).mean() == pytest.approx(share, abs=5 * (share / len(drawn)) ** 0.5)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_what_is_told_is_unbiased_but_for_the_cut_at_zero(count: int) -> None:
    """E max(c + X, 0) = c + sum over k > c of (k - c) P(k) = c + q^(c+1) / (1 - q^2)."""
    q = np.exp(-1 / 2)
    told = GbpCs(epsilon=1.0).protect(np.full(200_000, count), chance())
    assert told.min() == 0
    assert told.mean() == pytest.approx(count + q ** (count + 1) / (1 - q**2), abs=0.03)


def test_noise_depends_on_its_generator_alone() -> None:
    counts = chance().integers(0, 9, (3, 5))
    told = [GbpCs(epsilon=1).protect(counts, numpy_generator(4, "offer", 2, moment)) for moment in (7, 7, 8)]
    assert (told[0] == told[1]).all()
    assert (told[0] != told[2]).any()
    assert (GbpCs(epsilon=2).protect(counts, numpy_generator(4, "offer", 2, 7)) != told[0]).any()


class Looking(Select):
    """Notes what it is told."""

    reports = True

    def __init__(self) -> None:
        self.seen: list[Vector] = []

    def protect(self, counts: Vector, generator: np.random.Generator) -> Vector:
        return GbpCs(epsilon=0.5).protect(counts, generator)

    def choose(
        self, candidates: Sequence[int], count: int, generator: np.random.Generator, offers: Offers | None = None
    ) -> list[int]:
        assert offers is not None
        self.seen.append(offers.counts)
        return list(candidates[:count])


def test_asking_again_tells_nothing_new() -> None:
    """The same data, the same noise: it cannot be averaged away."""
    devices = [(torch.zeros(6, 1), torch.arange(6) % 3) for _ in range(4)]
    looking = Looking()
    chooser = Chooser(looking, TensorFleet(devices, 3), range(4), 2, seed=1, whole=np.ones(3, dtype=np.int64))
    for tick in range(1, 4):
        chooser.choose(tick, 1, {})
    first, *later = looking.seen
    assert all((counts == first).all() for counts in later)
    assert len({tuple(row) for row in first.tolist()}) > 1


@pytest.mark.parametrize("epsilon", [1e-300, 9e-7])
def test_noise_without_bounds_is_refused(epsilon: float) -> None:
    """So much of it would not fit into whole numbers."""
    with pytest.raises(UserError, match=r"select\.epsilon: .* is not allowed: must be 0 or at least 1e-06"):
        planned(**world({"name": "gbp-cs", "epsilon": epsilon}))


def test_the_most_noise_fits_a_report() -> None:
    assert np.abs(noise(1e-6)).max() < 2**30


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_people_are_told_what_is_disclosed(epsilon: float) -> None:
    select = {"name": "best-swap", "random": 1, "epsilon": epsilon}
    (note,) = planned(**world(select)).notes()
    assert note.startswith("best-swap: devices tell the class counts")
    assert ("with noise" in note) == bool(epsilon)
    weights = [remanence.simulate(**world(select)).weights for _ in range(2)]
    assert torch.equal(*weights)


def world(select: Any) -> dict[str, Any]:
    devices = classification()
    return {"model": softmax_model(), "devices": devices, "rounds": 2, "participation": 2, "select": select}


def test_selectors_can_be_built_by_name() -> None:
    assert {selector.name for selector in EVERY} >= {
        "bayesian", "best-swap", "exact", "gbp-cs", "genetic", "monte-carlo", "probability", "tabu",
    }  # fmt: skip
