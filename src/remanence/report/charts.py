"""The charts, as Vega-Lite specifications. Their colours are variables of the page, so that they follow its scheme."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import altair as alt

from remanence.report.numbers import thin
from remanence.report.series import Line
from remanence.report.style import colour, dash

Spec = dict[str, Any]

HEIGHT = 300
_POINTS = 500  # per line
_ALL_POINTS = 2500  # per chart: a browser draws a shape for each
_NAME_GAP = 15  # pixels between two names at the ends of lines
_NAME_LETTERS = 18
_ROW_STEP = 30
_CELL_FOR_TEXT = 27  # pixels
_STRONG = 0.79  # share of the full colour from which white text is easier to read than dark text

CONFIG: Spec = {
    "background": "transparent",
    "font": 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif',
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "gridColor": "var(--line)",
        "domainColor": "var(--edge)",
        "tickColor": "var(--edge)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelPadding": 5,
        "labelLimit": 150,
    },
    "axisX": {"grid": False},
    "axisY": {"domain": False, "ticks": False},
}


@dataclass(frozen=True)
class Axis:
    title: str
    format: str  # of its ticks, in the language of d3
    low: float
    high: float
    log: bool = False
    ticks: int = 6
    step: float = 0  # at least, between ticks
    precise: str = ".4~g"  # format of a single number

    def place(self, value: float) -> float:
        """0 at the lower end, 1 at the upper end."""
        scale = math.log if self.log else float
        return (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))

    def at(self, place: float) -> float:
        if self.log:
            return float(self.low * (self.high / self.low) ** place)
        return self.low + place * (self.high - self.low)

    def scale(self) -> Any:
        domain = [self.low, self.high]
        if self.log:
            return alt.Scale(type="log", domain=domain, nice=False)
        return alt.Scale(domain=domain, nice=False, zero=False)

    def axis(self, **more: Any) -> Any:
        return alt.Axis(title=self.title, format=self.format, tickCount=self.ticks, tickMinStep=self.step, **more)


@dataclass(frozen=True)
class Cell:
    row: str
    column: str
    value: float
    text: str  # short, for the cell itself
    note: str  # for the pointer


def line_chart(lines: Sequence[Line], x: Axis, y: Axis, about: str) -> Spec:
    """A line per label, the range of its seeds as a band, its name at its end, the point nearest to the pointer."""
    rows = [row for line in lines for row in _line_rows(line, len(lines))]
    chart = alt.Chart(alt.NamedData("points")).encode(
        x=alt.X(
            "x:Q",
            scale=x.scale(),
            axis=x.axis(labelFlush=True, labelOverlap=True, labelSeparation=5),
        ),
        color=alt.Color("label:N", scale=_colours(lines), legend=None),
    )
    stroke = chart.mark_line(strokeWidth=2.2, strokeJoin="round", aria=False).encode(
        y=_y(y, "mean"), strokeDash=alt.StrokeDash("label:N", scale=_dashes(lines), legend=None)
    )
    layers = [stroke, _nearest(chart, y, few=len(rows) <= 12 * len(lines))]
    if any(line.seeds > 1 for line in lines):
        layers.insert(0, chart.mark_area(opacity=0.17, aria=False).encode(y=_y(y, "low"), y2="high:Q"))
    if len(lines) > 1:
        layers += _names(lines, y)
    data = {"points": rows, "names": _name_rows(lines, y)}
    return finished(alt.layer(*layers), about, data, height=_height(lines), padding=_padding(8, 8))


def _height(lines: Sequence[Line]) -> int:
    return max(HEIGHT, _NAME_GAP * (len(lines) + 1))


def _line_rows(line: Line, lines: int) -> list[dict[str, Any]]:
    places = thin(len(line.points), max(50, min(_POINTS, _ALL_POINTS // lines)))
    return [
        {
            "label": line.label,
            "round": point.round,
            "x": _short(point.x),
            "mean": _short(point.mean),
            "low": _short(point.low),
            "high": _short(point.high),
        }
        for point in map(line.points.__getitem__, places)
    ]


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _y(axis: Axis, field: str) -> Any:
    return alt.Y(f"{field}:Q", scale=axis.scale(), axis=axis.axis())


def _colours(lines: Sequence[Line]) -> Any:
    return alt.Scale(domain=[line.label for line in lines], range=[colour(line.number) for line in lines])


def _dashes(lines: Sequence[Line]) -> Any:
    return alt.Scale(domain=[line.label for line in lines], range=[list(dash(line.number)) for line in lines])


def _nearest(chart: Any, y: Axis, few: bool) -> Any:
    """Points that show themselves and their numbers under the pointer; always, where there are few."""
    pointer = alt.selection_point(nearest=True, on="pointerover", clear="pointerout", empty=False)
    mark = chart.mark_point(filled=True, size=55, aria=False)
    return mark.encode(
        y=_y(y, "mean"),
        tooltip=alt.value(alt.ExprRef(_tip(y))),
        opacity=alt.condition(pointer, alt.value(1), alt.value(0.9 if few else 0)),
    ).add_params(pointer)


def _tip(y: Axis) -> str:
    """Written out, because a list of fields loses its texts on the cells around the points of a nearest selection."""
    point = "(datum.datum || datum)"
    numbers = {y.title: "mean", "Lowest seed": "low", "Highest seed": "high"}
    shown = [f'"{title}": format({point}.{name}, "{y.precise}")' for title, name in numbers.items()]
    return "{" + ", ".join([f'"Method": {point}.label', f'"Round": {point}.round', *shown]) + "}"


def _names(lines: Sequence[Line], y: Axis) -> list[Any]:
    """Names at the ends of the lines."""
    chart = alt.Chart(alt.NamedData("names")).encode(x="x:Q", y=_y(y, "at"))
    mark = chart.mark_point(shape="square", filled=True, size=45, opacity=1, xOffset=10, aria=False).encode(
        color=alt.Color("label:N", scale=_colours(lines), legend=None)
    )
    name = chart.mark_text(align="left", dx=18, fontSize=12, fill="var(--ink)", aria=False).encode(text="name:N")
    return [mark, name]


def _name_rows(lines: Sequence[Line], y: Axis) -> list[dict[str, Any]]:
    right = _short(max(line.points[-1].x for line in lines))
    places = _apart([y.place(line.points[-1].mean) for line in lines], _NAME_GAP / _height(lines))
    return [
        {"label": line.label, "x": right, "name": _cut(line.label), "at": y.at(place)}
        for line, place in zip(lines, places, strict=True)
    ]


def _cut(name: str) -> str:
    return name if len(name) <= _NAME_LETTERS else name[: _NAME_LETTERS - 1] + "…"


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """The same heights between 0 and 1, pushed apart where they are closer than `gap`."""
    upwards = sorted(range(len(places)), key=lambda number: places[number])
    apart = list(places)
    ceiling, floor = 1.0, 0.0
    for number in reversed(upwards):
        apart[number] = min(apart[number], ceiling)
        ceiling = apart[number] - gap
    for number in upwards:
        apart[number] = max(apart[number], floor)
        floor = apart[number] + gap
    return apart


def heat_map(
    cells: Sequence[Cell],
    rows: Sequence[str],
    columns: Sequence[str],
    titles: tuple[str, str],
    limits: tuple[float, float],
    about: str,
    *,
    hue: str = "heat",
    root: bool = False,
    marks: Mapping[str, str] | None = None,
) -> Spec:
    """Stronger colour, higher value; the number in a cell with room. `marks`: first column -> name of its group."""
    chart = alt.Chart(alt.NamedData("cells")).encode(
        x=alt.X("column:O", sort=list(columns), title=titles[0], axis=_names_below(columns)),
        y=alt.Y("row:O", sort=list(rows), title=titles[1], axis=alt.Axis(labelLimit=110, labelOverlap=True)),
    )
    many = len(rows) > 30 or len(columns) > 60
    fill = _fill(chart, titles, hue, 0 if many else 1.5, _strength(limits, root))
    layers = [fill, _numbers(chart, limits, root), *(_groups(marks, columns) if marks else [])]
    data = {
        "cells": [asdict(cell) | {"value": _short(cell.value)} for cell in cells],
        "groups": [{"column": column, "name": name} for column, name in (marks or {}).items()],
    }
    step = max(4, min(_ROW_STEP, 600 // max(1, len(rows))))
    return finished(alt.layer(*layers), about, data, height=step * len(rows), padding=_padding(4, 4))


def _strength(limits: tuple[float, float], root: bool) -> Any:
    return alt.Scale(type="sqrt" if root else "linear", domain=list(limits), range=[0.04, 1], clamp=True)


def _fill(chart: Any, titles: tuple[str, str], hue: str, gap: float, scale: Any) -> Any:
    tips = [
        alt.Tooltip("row:N", title=titles[1] or "Method"),
        alt.Tooltip("column:N", title=titles[0]),
        alt.Tooltip("note:N", title="Value"),
    ]
    mark = chart.mark_rect(fill=f"var(--{hue})", stroke="var(--paper)", strokeWidth=gap, aria=False)
    return mark.encode(fillOpacity=alt.FillOpacity("value:Q", scale=scale, legend=None), tooltip=tips)


def _numbers(chart: Any, limits: tuple[float, float], root: bool) -> Any:
    """Light on strong colour, dark on weak colour."""
    low, high = limits
    strong = low + _STRONG ** (2 if root else 1) * (high - low)
    room = alt.ExprRef(f"bandwidth('x') >= {_CELL_FOR_TEXT} ? 1 : 0")
    light, dark = alt.value("var(--on-heat)"), alt.value("var(--ink)")
    mark = chart.mark_text(fontSize=11.5, aria=False, opacity=room)
    return mark.encode(text="text:N", color=alt.condition(alt.datum.value > strong, light, dark))


def _groups(marks: Mapping[str, str], columns: Sequence[str]) -> list[Any]:
    """A gap before the first column of every group, and the group's name above it."""
    x = alt.X("column:O", sort=list(columns), bandPosition=0)
    chart = alt.Chart(alt.NamedData("groups")).encode(x=x)
    gap = chart.mark_rule(stroke="var(--paper)", strokeWidth=5, aria=False)
    letters = max(map(len, marks.values()))
    room = alt.ExprRef(f"width / {len(marks)} > {8 * letters} ? 1 : 0")
    name = chart.mark_text(
        align="left", baseline="bottom", dx=3, fontSize=12, fill="var(--soft)", opacity=room, aria=False
    )
    return [gap, name.encode(y=alt.value(-4), text="name:N")]


def _names_below(names: Sequence[str]) -> Any:
    """Upright where they fit, leaning where they do not."""
    letters = min(16, max(map(len, names), default=1))
    tight = f"width / {max(1, len(names))} < {7 * letters + 4}" if letters > 3 else "false"
    return alt.Axis(
        labelAngle=alt.ExprRef(f"{tight} ? -50 : 0"),
        labelAlign=alt.ExprRef(f"{tight} ? 'right' : 'center'"),
        labelBaseline=alt.ExprRef(f"{tight} ? 'middle' : 'top'"),
        labelLimit=100,
        labelOverlap=True,
        labelSeparation=5,
        ticks=False,
        domain=False,
    )


def bar_chart(names: Sequence[str], values: Sequence[int], titles: tuple[str, str], about: str) -> Spec:
    """Counts, from zero."""
    tips = [alt.Tooltip("name:N", title=titles[0]), alt.Tooltip("value:Q", title=titles[1])]
    chart = (
        alt.Chart(alt.NamedData("bars"))
        .mark_bar(fill="var(--heat)", fillOpacity=0.8, cornerRadiusEnd=2, aria=False)
        .encode(
            x=alt.X(
                "name:O",
                sort=list(names),
                title=titles[0],
                axis=_names_below(names),
                scale=alt.Scale(paddingInner=0.35),
            ),
            y=alt.Y("value:Q", title=titles[1], axis=alt.Axis(tickMinStep=1, tickCount=5, format="~s")),
            tooltip=tips,
        )
    )
    rows = [{"name": name, "value": value} for name, value in zip(names, values, strict=True)]
    return finished(chart, about, {"bars": rows}, height=170, padding=_padding(8, 4))


def _padding(top: float, right: float) -> dict[str, float]:
    return {"left": 2, "top": top, "right": right, "bottom": 2}


def finished(chart: Any, about: str, data: Mapping[str, Sequence[Any]], **properties: Any) -> Spec:
    """The specification with its data, as wide as its place on the page."""
    fit = alt.AutoSizeParams(type="fit-x", contains="padding")
    spec: Spec = chart.properties(width="container", autosize=fit, description=about, **properties).to_dict()
    kept = {name: value for name, value in spec.items() if name not in ("$schema", "config")}  # one for the page
    return kept | {"datasets": dict(data)}
