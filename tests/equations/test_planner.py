"""The time of rounds with and without edges: the worked numbers of the FedGS card, and its formulas written out."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from remanence.planning.times import Band, Links, Scenario, below

MEGAHERTZ = 1e6


def equal_links(rho: float, external: float = 10.0, gamma: float = 1023.0) -> Links:
    one, other = external * MEGAHERTZ, rho * external * MEGAHERTZ
    return Links(Band(one, one), Band(other, other), gamma, gamma, gamma)


def scenario(rho: float = 10.0, **changes: Any) -> Scenario:
    """FEMNIST's model, 10 MHz outside, gamma = 1023: beta = 10."""
    plain = Scenario(equal_links(rho), bits=6_603_710 * 32, sites=10, devices=10, iterations=50)
    return replace(plain, **changes)


# Worked numbers


@pytest.mark.parametrize(("rho", "hierarchy", "pays"), [(10, 253.582, True), (5, 464.901, False), (100, 63.396, True)])
def test_times(rho: float, hierarchy: float, pays: bool) -> None:
    plan = scenario(rho)
    assert plan.hierarchy == pytest.approx(hierarchy, abs=5e-4)
    assert plan.flat == pytest.approx(422.637, abs=5e-4)
    assert plan.pays == pays


def test_times_with_selection_and_computing() -> None:
    plan = scenario(select_seconds=0.015, compute_seconds=0.02)
    assert plan.hierarchy == pytest.approx(255.332, abs=5e-4)
    assert plan.flat == pytest.approx(423.637, abs=5e-4)
    assert plan.least_ratio == pytest.approx(5.56653, abs=5e-6)
    assert plan.proposition == pytest.approx(5.5556, abs=5e-5)


def test_proposition() -> None:
    """T L / (M (L - 1)) = 500 / 90, which selection in no time leaves as it is."""
    assert scenario().proposition == pytest.approx(500 / 90)
    assert scenario().least_ratio == pytest.approx(500 / 90)
    assert not scenario(500 / 90).pays
    assert scenario(500 / 90 * (1 + 1e-9)).pays


def test_most_iterations_are_strictly_below_the_bound() -> None:
    """rho = 5, M = L = 10: bound 45, so 44."""
    plan = scenario(5)
    assert plan.bound == pytest.approx(45)
    assert plan.most_iterations == 44
    assert [scenario(5, iterations=T).pays for T in (44, 45, 46)] == [True, False, False]
    assert scenario(10).most_iterations == 89


@pytest.mark.parametrize("rho", [x / 10 for x in range(11, 120, 7)])
@pytest.mark.parametrize(("sites", "devices"), [(10, 10), (7, 3), (3, 9), (100, 2)])
def test_equality_is_not_cheaper_however_it_is_rounded(rho: float, sites: int, devices: int) -> None:
    """M (L - 1) rho / L in whole numbers, where it is one."""
    numerator = sites * (devices - 1) * round(10 * rho)
    plan = scenario(rho, sites=sites, devices=devices)
    assert plan.most_iterations == (numerator - 1) // (10 * devices)
    if numerator % (10 * devices) == 0 and numerator:
        assert not replace(plan, iterations=numerator // (10 * devices)).pays


def test_a_single_device_is_never_cheaper() -> None:
    for rho in (1, 10, 1e9):
        plan = scenario(rho, devices=1, iterations=1)
        assert not plan.pays
        assert plan.most_iterations == 0
        assert plan.least_ratio == plan.proposition == math.inf


def test_slow_selection_leaves_no_ratio_that_is_enough() -> None:
    """T_sel beta B_ext / 2 = S M (L - 1) / T: 7.6 s for the defaults."""
    enough = scenario().bits * 10 * 9 / 50 / (10 * 10 * MEGAHERTZ / 2)
    assert scenario(select_seconds=enough).least_ratio == math.inf
    assert scenario(select_seconds=1.01 * enough).least_ratio == math.inf
    assert not scenario(1e12, select_seconds=enough).pays
    assert scenario(1e12, select_seconds=0.99 * enough).pays
    assert math.isfinite(scenario(select_seconds=0.99 * enough).least_ratio)


def test_beta_is_ten() -> None:
    """log2(1 + 1023): 10 MHz carry 100 Mbit/s, so a model of 1e8 bits takes a second each way."""
    plan = scenario(1, bits=1e8, sites=1, devices=1, iterations=1)
    assert [plan.to_sites, plan.within_site, plan.to_devices] == pytest.approx([2, 2, 2])


# The formulas, with a term for every link


hertz = st.floats(1e3, 1e9)
gammas = st.floats(1e-3, 1e6)
counts = st.integers(1, 200)
seconds = st.sampled_from([0.0, 0.001, 0.1, 20.0])


@st.composite
def any_scenario(draw: st.DrawFn, equal: bool) -> Scenario:
    if equal:
        links = equal_links(draw(st.floats(0.01, 1000)), draw(hertz) / MEGAHERTZ, draw(gammas))
    else:
        links = Links(
            Band(draw(hertz), draw(hertz)), Band(draw(hertz), draw(hertz)), draw(gammas), draw(gammas), draw(gammas)
        )
    numbers = {name: draw(counts) for name in ("sites", "devices", "iterations")}
    return Scenario(
        links, draw(st.floats(1, 1e10)), **numbers, select_seconds=draw(seconds), compute_seconds=draw(seconds)
    )


@given(any_scenario(equal=False))
def test_times_by_link(plan: Scenario) -> None:
    S, M, L, T = plan.bits, plan.sites, plan.devices, plan.iterations
    top, station, device = (math.log2(1 + gamma) for gamma in (plan.links.cloud, plan.links.station, plan.links.device))
    outside, inside = plan.links.external, plan.links.internal
    T_ext = S * M * (1 / (outside.up * top) + 1 / (outside.down * station))
    T_int = S * L * (1 / (inside.up * station) + 1 / (inside.down * device))
    T_FedGS = T_ext + T * (plan.select_seconds + T_int + plan.compute_seconds)
    T_FedAvg = S * M * L * (1 / (outside.up * top) + 1 / (outside.down * device)) + T * plan.compute_seconds
    assert plan.hierarchy == pytest.approx(T_FedGS, rel=1e-9)
    assert plan.flat == pytest.approx(T_FedAvg, rel=1e-9)
    if not math.isclose(T_FedGS, T_FedAvg, rel_tol=1e-9):
        assert plan.pays == (T_FedGS < T_FedAvg)


@given(any_scenario(equal=True))
def test_conditions_of_equal_links(plan: Scenario) -> None:
    """Cheaper, below the largest T and above the least ratio are one and the same."""
    S, M, L, T, rho = plan.bits, plan.sites, plan.devices, plan.iterations, plan.links.ratio
    carried = plan.links.external.up * math.log2(1 + plan.links.cloud)  # beta B_ext
    bound = S * M * (L - 1) / (S * L / rho + plan.select_seconds * carried / 2)
    assert plan.links.equal
    assert plan.bound == pytest.approx(bound, rel=1e-9, abs=1e-9)
    assume(abs(T / bound - 1) > 1e-9 if bound else True)
    assert plan.pays == (plan.most_iterations >= T) == (bound > T) == below(plan.least_ratio, rho)
    if math.isfinite(plan.least_ratio):
        saved = S * M * (L - 1) / T - plan.select_seconds * carried / 2
        assert plan.least_ratio == pytest.approx(S * L / saved, rel=1e-6)


@given(any_scenario(equal=True))
def test_the_largest_number_of_iterations_pays_and_the_next_does_not(plan: Scenario) -> None:
    most = plan.most_iterations
    assert most == 0 or replace(plan, iterations=most).pays
    assert not replace(plan, iterations=most + 1).pays


@pytest.mark.parametrize("place", ["external.up", "internal.down", "cloud", "station", "device"])
def test_one_different_link_is_enough(place: str) -> None:
    links = equal_links(10)
    band, _, way = place.partition(".")
    changed = replace(getattr(links, band), **{way: 1.0}) if way else 1.0
    assert links.equal
    assert not replace(links, **{band: changed}).equal
