"""Quality against time, a point per selector, as in Fig. 4 of the FedGS paper."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from remanence.report.charts import finished
from remanence.report.markup import Figure
from remanence.report.picture import write_picture
from remanence.report.style import colour

Rows = Sequence[Mapping[str, Any]]


def draw(rows: Rows, instances: int, path: Path) -> None:
    about = (
        "Mean excess of the divergence over the proven optimum, from the family of writers where it is least to that "
        f"where it is most; {instances} instances each."
    )
    points = [_point(row) for row in rows]
    kinds = list(dict.fromkeys(point["kind"] for point in points))
    spec = finished(_layers(kinds), about, {"points": points}, height=480)
    write_picture(Figure("selection", "Selectors: quality against time", about, spec), path)


def _point(row: Mapping[str, Any]) -> dict[str, Any]:
    excess = list(row["excess_percent"].values())
    kind, name = row["selector"].split(": ")
    mean = sum(excess) / len(excess)
    spread = {"mean": mean, "low": min(excess), "high": max(excess)}
    return {"kind": kind, "name": name, "milliseconds": row["milliseconds"], **spread}


def _layers(kinds: Sequence[str]) -> Any:
    time = alt.Axis(title="Median time of a selection, ms", format="~f", values=[0.1, 1, 10, 100, 1000])
    excess = alt.Axis(title="Above the optimum, %", format="~f", values=[0, 1, 3, 10, 30, 100])
    colours = alt.Scale(domain=kinds, range=[colour(number) for number in range(len(kinds))])
    legend = alt.Legend(title=None, orient="top", labelFontSize=12, labelColor="var(--ink)", symbolOpacity=1)
    chart = alt.Chart(alt.NamedData("points")).encode(
        x=alt.X("milliseconds:Q", scale=alt.Scale(type="log", padding=30, nice=False), axis=time),
        color=alt.Color("kind:N", scale=colours, legend=legend),
        tooltip=[alt.Tooltip("kind:N", title="Selector"), alt.Tooltip("name:N", title="Kind"),
                 _number("mean", "Excess, %"), _number("milliseconds", "ms")],
    )  # fmt: skip
    span = chart.mark_rule(strokeWidth=2, opacity=0.35).encode(y=_y("low", excess), y2="high:Q")
    point = chart.mark_point(filled=True, size=70, opacity=1).encode(y=_y("mean", excess))
    name = chart.mark_text(align="left", dx=8, dy=-3, angle=325, fontSize=11, fill="var(--ink)")
    return alt.layer(span, point, name.encode(y=_y("mean", excess), text="name:N"))


def _y(field: str, axis: Any) -> Any:
    return alt.Y(f"{field}:Q", scale=alt.Scale(type="symlog", constant=1, domainMin=0), axis=axis)


def _number(field: str, title: str) -> Any:
    return alt.Tooltip(f"{field}:Q", title=title, format=".3~g")
