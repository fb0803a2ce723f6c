"""Which iterations, sites and devices make edges pay: below the line of its number of sites, a plan is cheaper."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt

from remanence.planning.times import Scenario
from remanence.report.charts import finished
from remanence.report.markup import DataTable, Figure
from remanence.report.numbers import count, thin
from remanence.report.picture import write_picture
from remanence.report.style import colour, dash

FACTORS = (4.0, 2.0, 1.0, 0.5, 0.25)  # of the plan's sites
_POINTS, _ROWS = 120, 20


def draw(plan: Scenario, path: Path) -> None:
    sites = list(dict.fromkeys(max(1, round(factor * plan.sites)) for factor in FACTORS))
    devices = _devices(plan)
    lines = [replace(plan, sites=number, devices=L) for number in sites for L in devices]
    points = [_point(each) for each in lines if each.bound >= 1]
    verdict = "cheaper" if plan.pays else "not cheaper"
    about = (
        "Below the line of its number of sites M, a round with edges is shorter than one without. The cross is this "
        f"plan: {count(plan.sites, 'site')}, {count(plan.devices, 'device')} of each, "
        f"{count(plan.iterations, 'iteration')}: {verdict}."
    )
    highest = max([plan.iterations, *(point["bound"] for point in points)])
    data = {"points": points, "plan": [{"devices": plan.devices, "iterations": plan.iterations, "verdict": verdict}]}
    spec = finished(_layers([f"M = {number:,}" for number in sites], highest), about, data, height=380)
    write_picture(Figure("plan", "When edges pay", about, spec, _table(plan, sites, devices)), path)


def _devices(plan: Scenario) -> list[int]:
    """From 2, where edges begin to make sense, well beyond the plan's own number."""
    everyone = range(2, max(20, 3 * plan.devices) + 1)
    return sorted({everyone[place] for place in thin(len(everyone), _POINTS)} | {max(2, plan.devices)})


def _point(plan: Scenario) -> dict[str, Any]:
    return {"sites": f"M = {plan.sites:,}", "devices": plan.devices, "bound": plan.bound, "most": plan.most_iterations}


def _layers(names: Sequence[str], highest: float) -> Any:
    scale = alt.Scale(type="log", domain=[1, 1.5 * highest], nice=False)
    places = [step * 10**power for power in range(math.ceil(math.log10(highest)) + 1) for step in (1, 2, 5)]
    y_axis = alt.Axis(title="Iterations in a round, T", format="~s", values=places)
    x_axis = alt.Axis(title="Devices of a site that take part, L", tickMinStep=1)
    x = alt.X("devices:Q", scale=alt.Scale(zero=False, nice=False), axis=x_axis)
    numbers = range(len(names))
    colours = alt.Scale(domain=list(names), range=[colour(number) for number in numbers])
    dashes = alt.Scale(domain=list(names), range=[list(dash(number)) for number in numbers])
    legend = alt.Legend(title=None, orient="right", labelFontSize=12, labelColor="var(--ink)", symbolSize=300)
    line = alt.Chart(alt.NamedData("points")).encode(
        x=x,
        y=alt.Y("bound:Q", scale=scale, axis=y_axis),
        color=alt.Color("sites:N", scale=colours, legend=legend),
        strokeDash=alt.StrokeDash("sites:N", scale=dashes, legend=legend),
        tooltip=[alt.Tooltip("sites:N", title="Sites"), alt.Tooltip("devices:Q", title="Devices of a site"),
                 alt.Tooltip("most:Q", title="Iterations, at most", format=",d")],
    )  # fmt: skip
    mark = alt.Chart(alt.NamedData("plan")).encode(x="devices:Q", y=alt.Y("iterations:Q", scale=scale))
    cross = mark.mark_point(shape="cross", filled=True, size=130, opacity=1, fill="var(--ink)")
    word = mark.mark_text(align="left", dx=8, dy=-12, fontSize=12, fill="var(--ink)").encode(text="verdict:N")
    return alt.layer(line.mark_line(strokeWidth=2.2), cross, word)


def _table(plan: Scenario, sites: Sequence[int], devices: Sequence[int]) -> DataTable:
    shown = [devices[place] for place in thin(len(devices), _ROWS)]
    rows = [[f"{L:,}", *(_most(replace(plan, sites=number, devices=L)) for number in sites)] for L in shown]
    return DataTable(["L", *(f"M = {number:,}" for number in sites)], rows, "The most iterations that pay; 0: none.")


def _most(plan: Scenario) -> str:
    return f"{plan.most_iterations:,}"
