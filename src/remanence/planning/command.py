"""`remanence plan`: what a round takes with and without edges, and when edges pay."""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from remanence.planning.arguments import accuracy, scenario
from remanence.planning.reached import Reached, fleet_text, reached
from remanence.planning.times import Scenario
from remanence.report.numbers import MISSING, decimal, size

NOTES = (
    "rounds are compared, not accuracies: who learns more in a round may be quicker with longer ones (RUN, --accuracy)",
    "FedAvg is charged as many steps as the hierarchy has iterations; its published baseline runs 5 local epochs",
    "FedAvg's devices talk to the cloud without a hop over an edge",
)


def plan_rounds(given: argparse.Namespace, console: Console | None) -> dict[str, Any]:
    """The answer as one object; printed to `console`, if there is one."""
    plan = scenario(given)
    picture = _picture_path(given.picture)
    target = accuracy(given) if given.runs or given.accuracy is not None else None
    curves = [] if target is None else reached(given.runs, target, plan)
    if picture is not None:
        from remanence.planning.chart import draw

        draw(plan, picture)
    if console is not None:
        _show(console, plan, curves, target)
        if picture is not None:
            console.print(f"picture: {picture}", markup=False, highlight=False, soft_wrap=True)
    return {**answer(plan), "runs": [asdict(curve) for curve in curves], "picture": picture and str(picture)}


def _picture_path(text: str | None) -> Any:
    if text is None:
        return None
    from remanence.report.picture import picture_path

    return picture_path(text)


def answer(plan: Scenario) -> dict[str, Any]:
    return {
        "bits": plan.bits,
        "sites": plan.sites,
        "devices_per_site": plan.devices,
        "iterations": plan.iterations,
        "hierarchy_seconds": plan.hierarchy,
        "fedavg_seconds": plan.flat,
        "hierarchy_to_fedavg": plan.hierarchy / plan.flat,
        "cheaper": plan.pays,
        "condition": condition(plan),
        "notes": list(NOTES),
    }


def condition(plan: Scenario) -> dict[str, Any] | None:
    """Under equal bandwidths and ratios alone; None where there is no such number."""
    if not plan.links.equal:
        return None
    enough = math.isfinite(plan.least_ratio)
    return {
        "bandwidth_ratio": plan.links.ratio,
        "must_exceed": plan.least_ratio if enough else None,
        "margin": plan.links.ratio - plan.least_ratio if enough else None,
        "most_iterations": plan.most_iterations,
        "proposition_4": plan.proposition if math.isfinite(plan.proposition) else None,
    }


def _show(console: Console, plan: Scenario, curves: Sequence[Reached], target: float | None) -> None:
    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    say(f"{fleet_text(plan)}; a model of {size(plan.bits / 8)}")
    console.print(_times(plan))
    for line in _conclusion(plan):
        say(line)
    if target is not None:
        console.print(_curves(curves, target))
    for note in NOTES:
        say(f"note: {note}")


def _times(plan: Scenario) -> Table:
    table = _table("seconds of a round", "with edges (FedGS)", "without (FedAvg)")
    T = plan.iterations
    table.add_row("links of the cloud", _seconds(plan.to_sites), _seconds(plan.to_devices))
    table.add_row("links within sites", _seconds(T * plan.within_site), MISSING)
    table.add_row("selecting", _seconds(T * plan.select_seconds), MISSING)
    table.add_row("computing", *[_seconds(T * plan.compute_seconds)] * 2)
    table.add_row("all", _seconds(plan.hierarchy), _seconds(plan.flat), style="bold")
    return table


def _conclusion(plan: Scenario) -> Iterator[str]:
    verdict = "cheaper" if plan.pays else "not cheaper"
    yield f"a round with edges is {verdict}: {decimal(plan.hierarchy / plan.flat)} of the time without"
    if not plan.links.equal:
        yield "links differ by direction or receiver: Proposition 4 does not apply"
        return
    ratio, least = plan.links.ratio, plan.least_ratio
    if math.isfinite(plan.proposition):
        yield f"T L / (M (L - 1)) = {plan.proposition:.6g} (Proposition 4, for selection in no time)"
    if math.isfinite(least):
        yield f"B_int / B_ext must exceed {least:.6g}; it is {ratio:.6g}, a margin of {ratio - least:.6g}"
    else:
        yield "no B_int / B_ext is enough"
    most = plan.most_iterations
    yield f"iterations in a round: at most {most:,}" if most else "iterations in a round: not even 1 pays"


def _curves(curves: Sequence[Reached], target: float) -> Table:
    table = _table(f"to accuracy {target:g}", "rounds", "seconds of a round", "seconds")
    for curve in curves:
        rounds = f"never (best {curve.best:.4g})" if curve.rounds is None else f"{curve.rounds:,}"
        whole = MISSING if curve.seconds is None else _seconds(curve.seconds)
        name = Text(f"{curve.label}, seed {curve.seed}: {curve.fleet}")
        table.add_row(name, rounds, _seconds(curve.round_seconds), whole)
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _seconds(value: float) -> str:
    return f"{value:,.3f}" if value >= 0.1 or value == 0 else f"{value:.4g}"
