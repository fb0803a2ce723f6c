"""The charts, as Vega-Lite specifications. Their colours are variables of the page, so that they follow its scheme."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from remanence.report.numbers import thin
from remanence.report.series import Line

Spec = dict[str, Any]

COLOURS = 8  # --series-1 .. --series-8 of the style sheet
DASHES = ((1, 0), (7, 3), (2, 2), (9, 3, 2, 3), (4, 2), (12, 3), (2, 4))
HEIGHT = 300
_POINTS = 500  # per line
_ALL_POINTS = 2500  # per chart: a browser draws a shape for each
_NAME_GAP = 15  # pixels between two names at the ends of lines
_NAME_LETTERS = 18
_ROW_STEP = 30
_CELL_FOR_TEXT = 27  # pixels

CONFIG: Spec = {
    "background": "transparent",
    "font": 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif',
    "view": {"stroke": None},
    "axis": {"labelColor": "var(--soft)", "titleColor": "var(--soft)", "gridColor": "var(--line)",
             "domainColor": "var(--edge)", "tickColor": "var(--edge)", "labelFontSize": 12, "titleFontSize": 12,
             "titleFontWeight": "normal", "titlePadding": 8, "labelPadding": 5, "labelLimit": 150},
    "axisX": {"grid": False}, "axisY": {"domain": False, "ticks": False},
}


@dataclass(frozen=True)
class Axis:
    title: str
    format: str  # of d3
    low: float
    high: float
    log: bool = False
    unit: str = ""  # put behind every number

    def place(self, value: float) -> float:
        """0 at the lower end, 1 at the upper end."""
        scale = math.log if self.log else float
        return (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))

    def at(self, place: float) -> float:
        if self.log:
            return float(self.low * (self.high / self.low) ** place)
        return self.low + place * (self.high - self.low)

    def scale(self) -> Any:
        return alt.Scale(type="log" if self.log else "linear", domain=[self.low, self.high], nice=False, zero=False)

    def axis(self, **more: Any) -> Any:
        label = f"format(datum.value, '{self.format}') + '{self.unit}'"
        return alt.Axis(title=self.title, labelExpr=label, **more)


@dataclass(frozen=True)
class Cell:
    row: str
    column: str
    value: float
    text: str  # short, for the cell itself
    note: str  # for the pointer


def colour(number: int) -> str:
    return f"var(--series-{number % COLOURS + 1})"


def dash(number: int) -> tuple[int, ...]:
    return DASHES[number % len(DASHES)]


def line_chart(lines: Sequence[Line], x: Axis, y: Axis, about: str) -> Spec:
    """A line per label, the range of its seeds as a band, its name at its end, the point nearest to the pointer."""
    rows = [row for line in lines for row in _line_rows(line, len(lines))]
    chart = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("x:Q", scale=x.scale(), axis=x.axis(tickMinStep=1, labelFlush=True, labelOverlap=True, tickCount=8)),
        color=alt.Color("label:N", scale=_colours(lines), legend=None))
    stroke = chart.mark_line(strokeWidth=2.2, strokeJoin="round", aria=False).encode(
        y=_y(y, "mean"), strokeDash=alt.StrokeDash("label:N", scale=_dashes(lines), legend=None))
    layers = [stroke, _nearest(chart, x, y, few=len(rows) <= 12 * len(lines)), *_names(lines, y)]
    if any(line.seeds > 1 for line in lines):
        layers.insert(0, chart.mark_area(opacity=0.17, aria=False).encode(y=_y(y, "low"), y2="high:Q"))
    height = max(HEIGHT, _NAME_GAP * (len(lines) + 1))
    right = 26 + 7 * min(_NAME_LETTERS, max(len(line.label) for line in lines)) if len(lines) > 1 else 14
    return _finished(alt.layer(*layers), about, height=height, padding={"left": 2, "top": 8, "right": right, "bottom": 2})


def _line_rows(line: Line, lines: int) -> list[dict[str, Any]]:
    places = thin(len(line.points), max(50, min(_POINTS, _ALL_POINTS // lines)))
    return [{"label": line.label, "round": point.round, "x": _short(point.x), "mean": _short(point.mean),
             "low": _short(point.low), "high": _short(point.high)} for point in map(line.points.__getitem__, places)]


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _y(axis: Axis, field: str) -> Any:
    return alt.Y(f"{field}:Q", scale=axis.scale(), axis=axis.axis(tickCount=6))


def _colours(lines: Sequence[Line]) -> Any:
    return alt.Scale(domain=[line.label for line in lines], range=[colour(number) for number in range(len(lines))])


def _dashes(lines: Sequence[Line]) -> Any:
    return alt.Scale(domain=[line.label for line in lines], range=[list(dash(number)) for number in range(len(lines))])


def _nearest(chart: Any, x: Axis, y: Axis, few: bool) -> Any:
    """Points that show themselves and their numbers under the pointer; always, where there are few."""
    pointer = alt.selection_point(nearest=True, on="pointerover", clear="pointerout", empty=False)
    tips = [alt.Tooltip("label:N", title="Method"), alt.Tooltip("round:Q", title="Round"),
            alt.Tooltip("mean:Q", title=y.title, format=y.format), alt.Tooltip("low:Q", title="Lowest seed", format=y.format),
            alt.Tooltip("high:Q", title="Highest seed", format=y.format)]
    return chart.mark_point(filled=True, size=55, aria=False).encode(
        y=_y(y, "mean"), tooltip=tips,
        opacity=alt.condition(pointer, alt.value(1), alt.value(0.9 if few else 0))).add_params(pointer)


def _names(lines: Sequence[Line], y: Axis) -> list[Any]:
    """Names at the ends of the lines, pushed apart where the lines end too close to each other."""
    if len(lines) < 2:
        return []
    right = max(line.points[-1].x for line in lines)
    places = _apart([y.place(line.points[-1].mean) for line in lines], len(lines))
    rows = [{"label": line.label, "x": _short(right), "name": _cut(line.label), "at": y.at(place)}
            for line, place in zip(lines, places, strict=True)]
    chart = alt.Chart(alt.Data(values=rows)).encode(x="x:Q", y=_y(y, "at"))
    mark = chart.mark_point(shape="square", filled=True, size=45, opacity=1, xOffset=10, aria=False).encode(
        color=alt.Color("label:N", scale=_colours(lines), legend=None))
    name = chart.mark_text(align="left", dx=18, fontSize=12, fill="var(--ink)", aria=False).encode(text="name:N")
    return [mark, name]


def _cut(name: str) -> str:
    return name if len(name) <= _NAME_LETTERS else name[: _NAME_LETTERS - 1] + "…"


def _apart(places: Sequence[float], lines: int) -> list[float]:
    """The same heights, at least the height of a name apart, none above the chart."""
    gap = _NAME_GAP / max(HEIGHT, _NAME_GAP * (lines + 1))
    free = 1.0
    apart = [0.0] * len(places)
    for number in sorted(range(len(places)), key=lambda number: -places[number]):
        apart[number] = min(places[number], free)
        free = apart[number] - gap
    lift = max(0.0, -min(apart))
    return [place + lift for place in apart] if lift else apart


def heat_map(cells: Sequence[Cell], rows: Sequence[str], columns: Sequence[str], titles: tuple[str, str],
             low: float, high: float, about: str, *, hue: str = "heat", root: bool = False,
             marks: Mapping[str, str] | None = None) -> Spec:
    """Stronger colour, higher value; the number in the cell where there is room. `marks`: column -> name of its group."""
    values = [{"row": cell.row, "column": cell.column, "value": _short(cell.value), "text": cell.text,
               "note": cell.note} for cell in cells]
    scale = alt.Scale(type="sqrt" if root else "linear", domain=[low, high], range=[0.05, 1], clamp=True)
    dense = len(rows) > 30
    chart = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("column:O", sort=list(columns), title=titles[0], axis=_class_axis(columns)),
        y=alt.Y("row:O", sort=list(rows), title=titles[1], axis=alt.Axis(labelLimit=110, labelOverlap=True)))
    gap = 0 if dense or len(columns) > 60 else 1.5
    fill = chart.mark_rect(fill=f"var(--{hue})", stroke="var(--paper)", strokeWidth=gap, aria=False).encode(
        fillOpacity=alt.FillOpacity("value:Q", scale=scale, legend=None),
        tooltip=[alt.Tooltip("row:N", title=titles[1] or "Row"), alt.Tooltip("column:N", title=titles[0]),
                 alt.Tooltip("note:N", title="Value")])
    layers = [fill, _cell_text(chart, low, high, root), *_group_marks(marks or {}, columns)]
    step = max(4, min(_ROW_STEP, 600 // max(1, len(rows))))
    return _finished(alt.layer(*layers), about, height={"step": step}, padding={"left": 2, "top": 4, "right": 4, "bottom": 2})


def _class_axis(columns: Sequence[str]) -> Any:
    """Names upright where they fit, leaning where they do not."""
    letters = min(16, max(map(len, columns), default=1))
    tight = f"width / {max(1, len(columns))} < {7 * letters + 4}" if letters > 3 else "false"
    return alt.Axis(labelAngle=alt.ExprRef(f"{tight} ? -50 : 0"), labelAlign=alt.ExprRef(f"{tight} ? 'right' : 'center'"),
                    labelBaseline=alt.ExprRef(f"{tight} ? 'middle' : 'top'"), labelLimit=100, labelOverlap=True, ticks=False,
                    domain=False)


def _cell_text(chart: Any, low: float, high: float, root: bool) -> Any:
    """Light on strong colour, dark on weak colour."""
    strong = low + (0.36 if root else 0.6) * (high - low)
    return chart.mark_text(fontSize=11.5, aria=False,
                           opacity=alt.ExprRef(f"bandwidth('x') >= {_CELL_FOR_TEXT} ? 1 : 0")).encode(
        text="text:N", color=alt.condition(alt.datum.value > strong, alt.value("var(--on-heat)"), alt.value("var(--ink)")))


def _group_marks(marks: Mapping[str, str], columns: Sequence[str]) -> list[Any]:
    """A gap before the first column of every group, and the group's name above it."""
    if not marks:
        return []
    rows = [{"column": column, "name": name} for column, name in marks.items()]
    chart = alt.Chart(alt.Data(values=rows)).encode(x=alt.X("column:O", sort=list(columns), bandPosition=0))
    gap = chart.mark_rule(stroke="var(--paper)", strokeWidth=5, aria=False)
    room = alt.ExprRef(f"width / {len(marks)} > {8 * max(map(len, marks.values()))} ? 1 : 0")
    name = chart.mark_text(align="left", baseline="bottom", dx=3, fontSize=12, fill="var(--soft)", opacity=room,
                           aria=False).encode(y=alt.value(-4), text="name:N")
    return [gap, name]


def bar_chart(names: Sequence[str], values: Sequence[float], titles: tuple[str, str], about: str) -> Spec:
    """Counts, from zero."""
    rows = [{"name": name, "value": value} for name, value in zip(names, values, strict=True)]
    axis = _class_axis(names)
    chart = alt.Chart(alt.Data(values=rows)).mark_bar(
        fill="var(--heat)", cornerRadiusEnd=2, aria=False).encode(
        x=alt.X("name:O", sort=list(names), title=titles[0], axis=axis, scale=alt.Scale(paddingInner=0.2)),
        y=alt.Y("value:Q", title=titles[1], axis=alt.Axis(tickMinStep=1, tickCount=5, format="~s")),
        tooltip=[alt.Tooltip("name:N", title=titles[0]), alt.Tooltip("value:Q", title=titles[1])])
    return _finished(chart, about, height=200, padding={"left": 2, "top": 8, "right": 4, "bottom": 2})


def _finished(chart: Any, about: str, **properties: Any) -> Spec:
    spec: Spec = chart.properties(width="container", description=about, **properties).to_dict()
    spec.pop("$schema", None)
    spec.pop("config", None)  # one for the page
    return spec
