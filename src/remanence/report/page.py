"""One self-contained page per run or comparison: it opens from a file, offline, on a phone, and on paper."""

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from remanence import __version__
from remanence.errors import UserError
from remanence.report import markup, paired
from remanence.report.groups import Group, flat, group_runs
from remanence.report.numbers import MISSING, joined
from remanence.report.script import SCRIPT
from remanence.report.style import STYLE
from remanence.report.tables import COLUMNS, group_rows
from remanence.runs.record import RunRecord

_PARTS = ("select", "merge", "optimise", "topology", "privacy", "attack")
_MOST_VALUES = 3  # of one fact, where runs differ


def write_report(runs: Sequence[RunRecord], path: Path) -> None:
    """Write the page to `path`; what stood there before is replaced in one step."""
    text = report_text(runs)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(text, path)
    except OSError as error:
        raise UserError(f"{path}: the report cannot be written ({error.strerror})") from None


def _write(text: str, path: Path) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def report_text(runs: Sequence[RunRecord]) -> str:
    groups = group_runs(runs)
    code = bundle()
    from remanence.report.charts import CONFIG

    sections, figures = _sections(groups)
    title = _title(groups)
    header = _header(title, groups, [name for name, _ in sections])
    inside = "\n".join(_section(name, text) for name, text in sections)
    body = f"{header}\n<main>\n{inside}\n</main>\n{_footer()}"
    data = {"config": CONFIG, "specs": {figure.name: figure.spec for figure in figures}}
    return markup.document(title, STYLE, body, data, code)


def _section(name: str, inside: str) -> str:
    return f'<section aria-labelledby="{_anchor(name)}"><h2 id="{_anchor(name)}">{name}</h2>{inside}</section>'


@cache
def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed with our script, as one text."""
    try:
        import altair
        import vl_convert
    except ImportError as error:
        missing = f"the report needs {error.name}, which is not installed"
        raise UserError(f"{missing}: pip install 'remanence[report]'") from None
    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    return vl_convert.javascript_bundle(SCRIPT, vl_version=version).replace("</script", "<\\/script")


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def _title(groups: Sequence[Group]) -> str:
    first = groups[0].runs[0]
    return str(first.start.get("name") or first.config.get("name") or first.folder.name)


def _header(title: str, groups: Sequence[Group], sections: Sequence[str]) -> str:
    links = "".join(f'<a href="#{_anchor(name)}">{name}</a>' for name in sections)
    notices = "".join(f'<p class="notice">{markup.escape(text)}</p>' for text in _notices(groups))
    return (
        f'<header><h1>{markup.escape(title)}</h1><p class="lead">{markup.escape(_lead(groups))}</p>'
        f'<nav aria-label="Sections">{links}</nav>{notices}</header>'
    )


def _lead(groups: Sequence[Group]) -> str:
    seeds = sorted({run.seed for group in groups for run in group.runs})
    seed_text = f"seed{'s' if len(seeds) > 1 else ''} {joined([str(seed) for seed in seeds])}"
    if len(groups) == 1:
        return f"{groups[0].label}, {seed_text}"
    return f"Comparison of {joined([group.label for group in groups])}; {seed_text}"


def _notices(groups: Sequence[Group]) -> list[str]:
    unfinished = [
        f"{group.label} (round {group.rounds:,} of {group.planned:,})" for group in groups if not group.finished
    ]
    diverged = [group.label for group in groups if group.diverged]
    lines = []
    if unfinished:
        lines.append(f"Unfinished: {joined(unfinished)}. This page shows the rounds there are.")
    if diverged:
        lines.append(f"Diverged: {joined(diverged)}. The model held NaN or infinity; its accuracy counts as chance.")
    return lines


def _sections(groups: Sequence[Group]) -> tuple[list[tuple[str, str]], list[Any]]:
    from remanence.report import figures

    drawn: list[Any] = []

    def draw(*makers: Callable[[Sequence[Group]], Any]) -> str:
        made = [figure for figure in (maker(groups) for maker in makers) if figure is not None]
        drawn.extend(made)
        return "".join(map(markup.figure, made))

    parts = [
        ("Setup", _setup(groups)),
        ("Result", _result(groups)),
        ("Learning", _learning(groups, draw(figures.accuracy), draw(figures.loss, figures.traffic))),
        ("Classes", draw(figures.class_accuracy, figures.class_forgetting)),
        ("Devices", draw(figures.class_mix, figures.divergence, figures.participation) + _refused(groups)),
        ("Bytes", _bytes(groups)),
        ("Settings", _settings(groups)),
    ]
    return [(name, inside) for name, inside in parts if inside], drawn


def _learning(groups: Sequence[Group], first: str, others: str) -> str:
    if not first and not others:
        return '<p class="card">No round has been played yet.</p>' if not any(g.rounds for g in groups) else ""
    untested = "" if first else '<p class="card">The global model was not tested in any round.</p>'
    return f'{markup.legend([group.label for group in groups])}{untested}{first}<div class="pair">{others}</div>'


def _result(groups: Sequence[Group]) -> str:
    rows = group_rows(groups)
    hints = []
    if any("±" in cell.text for row in rows for cell in row.cells):
        hints.append("Mean ±sample standard deviation over seeds; bytes, state and time are means.")
    if any(cell.best for row in rows for cell in row.cells):
        hints.append("★ best of its column.")
    hint = f'<p class="hint">{" ".join(hints)}</p>' if hints else ""
    return f'<div class="card">{markup.result(rows)}{hint}{markup.column_notes(COLUMNS)}</div>{_paired(groups)}'


def _paired(groups: Sequence[Group]) -> str:
    rows = paired.rows(groups) if len(groups) > 1 else []
    if not rows:
        return ""
    table = markup.DataTable(paired.headings(), rows, paired.note(groups))
    return f'<div class="card"><h3>Paired differences</h3>{markup.data_table(table, "Paired differences")}</div>'


def _refused(groups: Sequence[Group]) -> str:
    from remanence.report import figures

    table = figures.refused_table(groups)
    if table is None:
        return ""
    about = "Uploads that were not counted; such a device is as if it had not taken part in that round."
    return (
        f'<div class="card"><h3>Refused uploads</h3><p class="hint">{about}</p>'
        f"{markup.data_table(table, 'Refused uploads')}</div>"
    )


def _bytes(groups: Sequence[Group]) -> str:
    from remanence.report import figures

    about = "Sent: in the whole run, by all devices together; the rest: for one device, and for the server."
    about += " Means over seeds." if any(len(group.runs) > 1 for group in groups) else ""
    table = markup.data_table(figures.bytes_table(groups), "Bytes")
    links = figures.links_table(groups)
    by_link = f"<h3>By link</h3>{markup.data_table(links, 'Bytes by link')}" if links else ""
    return f'<div class="card">{table}<p class="hint">{about}</p>{by_link}</div>'


def _settings(groups: Sequence[Group]) -> str:
    """The resolved experiment of every label's first run: enough to repeat it."""
    firsts = [group.runs[0] for group in groups]
    configs = [flat(run.config) | {"folder": run.folder} for run in firsts]
    names = list(dict.fromkeys(name for config in configs for name in config))
    names.sort(key=lambda name: len({str(config.get(name)) for config in configs}) == 1)
    rows = [[name, *(str(config.get(name, MISSING)) for config in configs)] for name in names]
    note = "The first run of each method; settings that differ come first." if len(groups) > 1 else ""
    table = markup.DataTable(["Setting", *(group.label for group in groups)], rows, note)
    return f'<div class="card">{markup.details("All settings", markup.data_table(table, "Settings"))}</div>'


def _setup(groups: Sequence[Group]) -> str:
    runs = [run for group in groups for run in group.runs]
    facts = [
        ("Data", _data),
        ("Devices", _devices),
        ("Stream", _stream),
        ("Rounds", _training),
        ("Model", _model),
        ("Parts", _parts),
        ("Engine", _engine),
    ]
    pairs = [(name, _each(runs, fact)) for name, fact in facts]
    notes = dict.fromkeys(str(note) for run in runs for note in run.start.get("notes") or [])
    return f'<div class="card">{markup.facts([*pairs, ("Notes", list(notes))])}</div>'


def _each(runs: Sequence[RunRecord], fact: Callable[[RunRecord], str]) -> list[str]:
    """What holds for the runs; where they differ, the first few."""
    texts = list(dict.fromkeys(text for text in map(fact, runs) if text))
    more = len(texts) - _MOST_VALUES
    return texts[:_MOST_VALUES] if more <= 0 else [*texts[: _MOST_VALUES - 1], f"and {more + 1} more"]


def _data(run: RunRecord) -> str:
    data, start = run.config.get("data") or {}, run.start
    name = str(start.get("dataset") or data.get("name") or data.get("path") or "")
    origin = f"({start['origin']})" if start.get("origin") else ""
    numbers = [("classes", "classes"), ("train_samples", "training samples"), ("test_samples", "test samples")]
    counts = [f"{start[key]:,} {text}" for key, text in numbers if start.get(key)]
    return ", ".join(filter(None, [f"{name} {origin}".strip(), *counts]))


def _stream(run: RunRecord) -> str:
    stream = run.config.get("stream") or {}
    kind = stream.get("kind", "static")
    tasks = f", {stream['tasks']} tasks" if "tasks" in stream else ""
    return "" if kind == "static" else f"{kind}{tasks}"


def _devices(run: RunRecord) -> str:
    table, sites = run.config.get("devices") or {}, set(run.start.get("sites") or [])
    number = f"{run.start.get('devices') or table.get('count') or 0:,}"
    in_sites = f" in {len(sites)} sites" if len(sites) > 1 else ""
    per_round = f", {run.start['per_round']:,} per round" if run.start.get("per_round") else ""
    partition = f"; partition {table['partition']}" if table.get("partition") else ""
    alpha = f" (alpha {table['alpha']})" if partition and "alpha" in table else ""
    return number + in_sites + per_round + partition + alpha


def _training(run: RunRecord) -> str:
    train = run.config.get("train") or {}
    words = [("epochs", "{} epochs"), ("batch", "batch {}"), ("lr", "learning rate {}"), ("optimiser", "{}")]
    texts = [pattern.format(train[name]) for name, pattern in words if name in train]
    rounds = run.start.get("rounds") or run.config.get("rounds") or len(run.rounds)
    return f"{rounds:,}" + (f"; on a device {', '.join(texts)}" if texts else "")


def _model(run: RunRecord) -> str:
    name = run.start.get("model") or (run.config.get("model") or {}).get("name") or ""
    parameters = run.start.get("parameters")
    return f"{name}, {parameters:,} parameters" if parameters else str(name)


def _parts(run: RunRecord) -> str:
    named = [(kind, (run.config.get(kind) or {}).get("name", "none")) for kind in _PARTS]
    return ", ".join(f"{kind} {name}" for kind, name in named if name != "none")


def _engine(run: RunRecord) -> str:
    """Of the first event, or of the run's evidence where that came later."""
    line = run.start.get("engine")
    if not line:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            line = json.loads((run.folder / "evidence.json").read_text(encoding="utf-8")).get("engine")
    return str(line or "")


def _footer() -> str:
    made = f"Made by remanence {__version__} from the folders of the runs."
    charts = "The charts are drawn by Vega and Vega-Lite inside this file, which loads nothing."
    without = "<noscript><p>The charts need JavaScript; the tables hold their values.</p></noscript>"
    return f"<footer><p>{made} {charts}</p>{without}</footer>"
