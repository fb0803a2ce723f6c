"""The time that measured curves take to an accuracy: rounds of a run, times what a round of its fleet takes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from remanence.errors import UserError
from remanence.measure.target import rounds_to, series
from remanence.planning.times import Scenario
from remanence.report.numbers import count, finite
from remanence.runs.compare import read_runs
from remanence.runs.record import RunRecord


@dataclass(frozen=True)
class Reached:
    """What a run needs to the accuracy; None: it never reaches it."""

    run: str
    label: str
    seed: int
    fleet: str
    rounds: int | None
    round_seconds: float
    seconds: float | None
    best: float


def reached(folders: Sequence[Path], target: float, plan: Scenario) -> list[Reached]:
    """The links, the model and the times of `plan`; sites, devices and iterations of the runs themselves."""
    if not folders:
        raise UserError("--accuracy: is for runs, of which none is given")
    return [_reached(run, target, plan) for folder in folders for run in read_runs(folder)]


def _reached(run: RunRecord, target: float, plan: Scenario) -> Reached:
    rounds, values = series(run.rounds, "accuracy")
    known = [value for value in map(finite, values) if value is not None]
    if not known:
        raise UserError(f"{run.folder}: no accuracy was measured")
    number = rounds_to(target, rounds, values)
    fleet, seconds = _round(run, plan)
    total = None if number is None else number * seconds
    return Reached(str(run.folder), run.label, run.seed, fleet, number, seconds, total, max(known))


def _round(run: RunRecord, plan: Scenario) -> tuple[str, float]:
    """The fleet in words, and the seconds that a round of it takes."""
    table, topology = run.config.get("devices") or {}, run.config.get("topology") or {}
    devices = int(table.get("per_round", plan.devices))
    if topology.get("name") != "sites":
        return f"{count(devices, 'device')} a round", replace(plan, sites=1, devices=devices).flat
    sites, iterations = int(table.get("sites", 1)), int(topology.get("iterations", 1))
    own = replace(plan, sites=sites, devices=devices, iterations=iterations)
    return fleet_text(own), own.hierarchy


def fleet_text(plan: Scenario) -> str:
    devices, iterations = count(plan.devices, "device"), count(plan.iterations, "iteration")
    return f"{count(plan.sites, 'site')}, {devices} of each, {iterations}"
