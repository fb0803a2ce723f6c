"""Pieces of the page. Every text that is not ours passes through `escape`."""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from remanence.report.style import colour, dash
from remanence.report.tables import COLUMNS, Cell, Column, ResultRow

_ICON = (
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'>"
    "<rect width='16' height='16' rx='3' fill='#0b5fb4'/>"
    "<path d='M2 12C7 12 5 4 8 4s2 5 6 5' fill='none' stroke='#fff' stroke-width='2'/></svg>"
)


@dataclass(frozen=True)
class DataTable:
    """The values behind a chart, as text."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    texts: tuple[int, ...] = ()  # columns of running text


@dataclass(frozen=True)
class Ramp:
    """What weak and strong colour mean."""

    ticks: tuple[str, ...]
    hue: str = "heat"


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    about: str  # one sentence
    spec: dict[str, Any]
    table: DataTable | None = None
    ramp: Ramp | None = None


def escape(text: Any) -> str:
    return html.escape(str(text), quote=True)


def figure(shown: Figure) -> str:
    name, title = escape(shown.name), escape(shown.title)
    save = f'<button type="button" hidden data-save="{name}" aria-label="Save as SVG: {title}">Save SVG</button>'
    about = f'<p id="{name}-about">{escape(shown.about)}</p>'
    chart = (
        f'<div class="chart" id="{name}" role="img" aria-labelledby="{name}-title" '
        f'aria-describedby="{name}-about"></div>'
    )
    ramp = _ramp(shown.ramp) if shown.ramp else ""
    table = details("Values", data_table(shown.table, f"{shown.title}: values")) if shown.table else ""
    caption = f'<figcaption><h3 id="{name}-title">{title}</h3>{save}{about}</figcaption>'
    return f'<figure class="card">{caption}{chart}{ramp}{table}</figure>'


def _ramp(ramp: Ramp) -> str:
    first, *rest = (f"<span>{escape(tick)}</span>" for tick in ramp.ticks)
    return f'<p class="ramp">{first}<i class="{ramp.hue}"></i>{"".join(rest)}</p>'


def legend(labels: Sequence[str]) -> str:
    """The strokes of the lines beside their names; nothing where there is one line."""
    if len(labels) < 2:
        return ""
    items = "".join(f"<li>{_stroke(number)}<span>{escape(label)}</span></li>" for number, label in enumerate(labels))
    return f'<ul class="legend">{items}</ul>'


def _stroke(number: int) -> str:
    dashes = " ".join(map(str, dash(number)))
    return (
        f'<svg width="36" height="10" aria-hidden="true"><line x1="1" y1="5" x2="35" y2="5" stroke-width="2.5" '
        f'stroke="{colour(number)}" stroke-dasharray="{dashes}"/></svg>'
    )


def details(summary: str, inside: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{inside}</details>"


def data_table(table: DataTable, title: str) -> str:
    def cell(tag: str, place: int, text: str, scope: str) -> str:
        kind = ' class="text"' if place in table.texts else ""
        return f"<{tag}{kind}{scope}>{escape(text)}</{tag}>"

    head = "".join(cell("th", place, text, ' scope="col"') for place, text in enumerate(table.headings))
    body = "".join(
        "<tr>"
        + "".join(
            cell("td" if place else "th", place, text, "" if place else ' scope="row"')
            for place, text in enumerate(row)
        )
        + "</tr>"
        for row in table.rows
    )
    note = f'<p class="hint">{escape(table.note)}</p>' if table.note else ""
    return scrolled(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>", title) + note


def scrolled(inside: str, title: str) -> str:
    """A wide table scrolls by itself, with the keyboard too; the page does not."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">{inside}</div>'


def result(rows: Sequence[ResultRow]) -> str:
    head = "".join(f'<th scope="col" title="{escape(column.about)}">{escape(column.title)}</th>' for column in COLUMNS)
    marked = any(cell.best for row in rows for cell in row.cells)
    body = "".join(_result_row(row, marked) for row in rows)
    table = f'<table class="result"><thead><tr><th scope="col">Method</th><th scope="col">Runs</th>{head}</tr></thead>'
    return scrolled(f"{table}<tbody>{body}</tbody></table>", "Result")


def _result_row(row: ResultRow, marked: bool) -> str:
    notes = "".join(f'<span class="note">{escape(note)}</span>' for note in row.notes)
    cells = "".join(_result_cell(cell, marked) for cell in row.cells)
    return f'<tr><th scope="row">{escape(row.label)}{notes}</th><td>{escape(row.seeds)}</td>{cells}</tr>'


def _result_cell(cell: Cell, marked: bool) -> str:
    value, sign, spread = cell.text.partition(" ±")
    rest = f' <span class="spread">±{escape(spread)}</span>' if sign else ""
    star = (
        '<span class="star" aria-hidden="true">★</span><span class="aside">best</span>'
        if cell.best
        else ('<span class="star"></span>' if marked else "")
    )
    kind = ' class="best"' if cell.best else ""
    return f"<td{kind}>{escape(value)}{rest}{star}</td>"


def column_notes(columns: Iterable[Column]) -> str:
    """What the columns mean."""
    return details("What the columns mean", facts((column.title, [column.about]) for column in columns))


def facts(pairs: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Names with one line or more each; a name without lines is left out."""
    rows = "".join(
        f"<dt>{escape(name)}</dt>" + "".join(f"<dd>{escape(text)}</dd>" for text in texts)
        for name, texts in pairs
        if texts
    )
    return f"<dl>{rows}</dl>"


def json_text(value: Any) -> str:
    """JSON that may stand inside a script element: no `<` can end it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def document(title: str, style: str, body: str, data: Any, script: str) -> str:
    """The whole page. Its policy lets the browser run this one script and load nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    icon = "data:image/svg+xml;base64," + base64.b64encode(_ICON.encode()).decode()
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(title)}</title>\n'
        f'<link rel="icon" href="{icon}">\n<style>{style}</style>\n</head>\n<body>\n{body}\n'
        f'<script type="application/json" id="charts">{json_text(data)}</script>\n<script>{script}</script>\n'
        f"</body>\n</html>\n"
    )
