"""The figures of the page: a chart, its sentence, and the values behind it; None where a run holds no such values."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from remanence.report import series
from remanence.report.charts import Axis, Cell, Spec, bar_chart, heat_map, line_chart
from remanence.report.groups import Group
from remanence.report.markup import DataTable, Figure, Ramp
from remanence.report.numbers import MISSING, count, decimal, percent, size, thin, unit_of, whole
from remanence.report.series import Line, Values

_TABLE_ROWS = 100
_DEVICES = 100  # drawn one by one
_CLASSES = 200
_TABLE_CELLS = 3000
_TRAFFIC_ROWS = 25  # per method


def accuracy(groups: Sequence[Group]) -> Figure | None:
    lines = _lines(groups, lambda group: series.over_rounds(group, "accuracy"))
    if not lines:
        return None
    about = f"Accuracy of the global model on the common test set, by round{_seeds(lines)}."
    return Figure(
        "accuracy",
        "Accuracy",
        about,
        line_chart(lines, _rounds(lines), _accuracies(lines), about),
        _line_table(lines, percent, "Accuracy in %"),
    )


def loss(groups: Sequence[Group]) -> Figure | None:
    lines = _lines(groups, lambda group: series.over_rounds(group, "loss"))
    if not lines:
        return None
    axis = _losses(lines)
    scale = ", on a logarithmic scale" if axis.log else ""
    about = f"What the devices minimise, mean over the steps of a round{scale}{_seeds(lines)}."
    return Figure(
        "loss",
        "Training loss",
        about,
        line_chart(lines, _rounds(lines), axis, about),
        _line_table(lines, decimal, "Training loss"),
    )


def traffic(groups: Sequence[Group]) -> Figure | None:
    """For comparisons: what an accuracy costs in bytes."""
    lines = _lines(groups, lambda group: series.over_bytes(group, "accuracy"))
    if len(lines) < 2:
        return None
    about = f"Accuracy against all bytes sent until then, up and down{_seeds(lines)}."
    most = max(point.x for line in lines for point in line.points) or 1.0
    unit, name = unit_of(most)
    scaled = [replace(line, points=tuple(replace(point, x=point.x / unit) for point in line.points)) for line in lines]
    x = Axis(f"Sent, {name}", ".6~g", 0.0, most / unit, ticks=5)
    return Figure(
        "traffic",
        "Accuracy against traffic",
        about,
        line_chart(scaled, x, _accuracies(lines), about),
        _traffic_table(lines),
    )


def _traffic_table(lines: Sequence[Line]) -> DataTable:
    shown = [(line.label, line.points[place]) for line in lines for place in thin(len(line.points), _TRAFFIC_ROWS)]
    rows = [[label, whole(point.round), size(point.x), percent(point.mean)] for label, point in shown]
    return DataTable(["Method", "Round", "Sent", "Accuracy %"], rows, "Means over seeds; rounds evenly chosen.")


def _lines(groups: Sequence[Group], line: Callable[[Group], Line]) -> list[Line]:
    """The lines that have a point; each keeps the colour of its group."""
    lines = [replace(line(group), number=number) for number, group in enumerate(groups)]
    return [each for each in lines if each.points]


def _seeds(lines: Sequence[Line]) -> str:
    if all(line.seeds < 2 for line in lines):
        return ""
    return "; the line is the mean over seeds, the band runs from the lowest to the highest seed"


def _rounds(lines: Sequence[Line]) -> Axis:
    places = [point.x for line in lines for point in line.points]
    low, high = min(places), max(places)
    return Axis("Round", ",d", low, high if high > low else low + 1, step=1)


def _accuracies(lines: Sequence[Line]) -> Axis:
    low = math.floor(10 * min(point.low for line in lines for point in line.points)) / 10
    high = math.ceil(10 * max(point.high for line in lines for point in line.points)) / 10
    low = min(low, 0.9)
    return Axis("Accuracy", ".0%", low, min(1.0, max(high, low + 0.1)), precise=".2%")


def _losses(lines: Sequence[Line]) -> Axis:
    low = min(point.low for line in lines for point in line.points)
    high = max(point.high for line in lines for point in line.points)
    if low > 0 and high / low > 30:
        return Axis("Loss", ".4~g", low / 1.1, high * 1.1, log=True)
    return Axis("Loss", ".3~g", min(0.0, low), 1.05 * high if high > 0 else 1.0)


def _line_table(lines: Sequence[Line], text: Callable[[float], str], what: str) -> DataTable:
    values = [{point.round: text(point.mean) for point in line.points} for line in lines]
    rounds = sorted(set().union(*values))
    shown = [rounds[place] for place in thin(len(rounds), _TABLE_ROWS)]
    rows = [[whole(round), *(row.get(round, MISSING) for row in values)] for round in shown]
    mean = ", mean over seeds" if any(line.seeds > 1 for line in lines) else ""
    part = f" {len(shown)} of {len(rounds):,} rounds; events.jsonl has all." if len(shown) < len(rounds) else ""
    return DataTable(["Round", *(line.label for line in lines)], rows, f"{what}{mean}.{part}")


def class_accuracy(groups: Sequence[Group]) -> Figure | None:
    rows = {group.label: series.final_accuracy(group) for group in groups}
    about = f"Share of right answers of the final global model, class by class{_mean_of(groups)}."
    low = math.floor(10 * _least(rows, 1.0)) / 10
    return _class_figure("class-accuracy", "Accuracy per class", about, groups, rows, (min(low, 0.9), 1.0), "heat")


def class_forgetting(groups: Sequence[Group]) -> Figure | None:
    rows = {group.label: series.final_forgetting(group) for group in groups}
    about = f"Best earlier accuracy of a class minus its last one; 0 and less: nothing forgotten{_mean_of(groups)}."
    high = math.ceil(10 * max([value for row in rows.values() for value in row if value is not None], default=0.0)) / 10
    return _class_figure("class-forgetting", "Forgetting per class", about, groups, rows, (0.0, max(high, 0.1)), "loss")


def _mean_of(groups: Sequence[Group]) -> str:
    return " (mean over seeds)" if any(len(group.runs) > 1 for group in groups) else ""


def _least(rows: Mapping[str, Values], default: float) -> float:
    return min([value for row in rows.values() for value in row if value is not None], default=default)


def _class_figure(
    name: str,
    title: str,
    about: str,
    groups: Sequence[Group],
    rows: Mapping[str, Values],
    limits: tuple[float, float],
    hue: str,
) -> Figure | None:
    if not any(value is not None for row in rows.values() for value in row):
        return None
    names = series.class_names(groups)
    names += [str(number) for number in range(len(names), max(map(len, rows.values())))]
    places = thin(len(names), _CLASSES)
    cells = [
        _class_cell(label, names[place], value)
        for label, row in rows.items()
        for place in places
        if place < len(row) and (value := row[place]) is not None
    ]
    shown = [names[place] for place in places]
    spec = heat_map(cells, list(rows), shown, ("Class", ""), limits, about, hue=hue)
    ramp = Ramp((f"{100 * limits[0]:.0f} %", f"{100 * limits[1]:.0f} %"), hue)
    return Figure(name, title, _of(about, len(shown), len(names), "classes"), spec, _class_table(names, rows), ramp)


def _class_cell(label: str, name: str, value: float) -> Cell:
    return Cell(label, name, value, f"{100 * value:.0f}", f"{percent(value)} %")


def _of(about: str, shown: int, everything: int, things: str) -> str:
    return about if shown == everything else f"{about} Shown: {shown} of {everything:,} {things}, evenly spread."


def _class_table(names: Sequence[str], rows: Mapping[str, Values]) -> DataTable:
    """Classes downwards: there may be many of them."""
    table = [[name, *(_percent_at(row, place) for row in rows.values())] for place, name in enumerate(names)]
    return DataTable(["Class", *rows], table, "In %.")


def _percent_at(row: Values, place: int) -> str:
    value = row[place] if place < len(row) else None
    return MISSING if value is None else percent(value)


def class_mix(groups: Sequence[Group]) -> Figure | None:
    """From the first run: another seed may deal the samples differently."""
    run = groups[0].runs[0]
    mix, sites = run.start.get("class_mix") or [], run.start.get("sites") or []
    if not mix or not max(map(max, mix), default=0):
        return None
    sites = sites if len(sites) == len(mix) else [0] * len(mix)
    order = sorted(range(len(mix)), key=lambda device: (sites[device], device))
    devices = [order[place] for place in thin(len(mix), _DEVICES)]
    names = series.class_names(groups)
    most = float(max(map(max, mix)))
    about = _of(_mix_about(groups), len(devices), len(mix), "devices")
    cells = [
        Cell(name, str(device), number, _brief(number), f"{number:,} samples")
        for device in devices
        for name, number in zip(names, mix[device], strict=False)
    ]
    spec = heat_map(
        cells,
        names,
        [str(device) for device in devices],
        ("Device", "Class"),
        (0.0, most),
        about,
        root=True,
        marks=_site_marks(devices, sites),
    )
    table = _mix_table(names, mix) if len(mix) * len(names) <= _TABLE_CELLS else None
    return Figure("class-mix", "Who holds what", about, spec, table, Ramp(("0", f"{whole(most)} samples")))


def _mix_about(groups: Sequence[Group]) -> str:
    runs = sum(len(group.runs) for group in groups)
    which = f", in the first run (seed {groups[0].runs[0].seed})" if runs > 1 else ""
    return f"Training samples of every class on every device{which}; colour follows the square root of the number."


def _brief(number: int) -> str:
    return "" if number == 0 else str(number) if number < 1000 else f"{number / 1000:.3g}k"


def _site_marks(devices: Sequence[int], sites: Sequence[int]) -> dict[str, str]:
    """The first device of every site; nothing where there is one site."""
    marks: dict[int, str] = {}
    for device in devices:
        marks.setdefault(sites[device], str(device))
    return {device: f"site {site}" for site, device in marks.items()} if len(marks) > 1 else {}


def _mix_table(names: Sequence[str], mix: Sequence[Sequence[int]]) -> DataTable:
    rows = [[str(device), *map(whole, row), whole(sum(row))] for device, row in enumerate(mix)]
    return DataTable(["Device", *names, "All"], rows, "Samples.")


def participation(groups: Sequence[Group]) -> Figure | None:
    """Per device in a small fleet; in a large one, how many devices took part how often."""
    counts = {group.label: series.participation(group.runs[0]) for group in groups}
    if not any(map(sum, counts.values())):
        return None
    small = max(map(len, counts.values())) <= _DEVICES
    rows = counts if small else {label: _histogram(row) for label, row in counts.items()}
    titles = ("Device", "Rounds") if small else ("Rounds taken part in", "Devices")
    about = _participation_about(groups, counts)
    names = [str(place) for place in range(max(map(len, rows.values())))]
    table = _participation_table(rows, names, titles)
    if len({tuple(row) for row in rows.values()}) == 1:
        spec = bar_chart(names, next(iter(rows.values())), titles, about)
        return Figure("participation", "Participation", about, spec, table)
    most = whole(max(map(max, rows.values())))
    spec = _participation_map(rows, names, titles, about)
    return Figure("participation", "Participation", about, spec, table, Ramp(("0", f"{most} {titles[1].lower()}")))


def _participation_table(rows: Mapping[str, Sequence[int]], names: Sequence[str], titles: tuple[str, str]) -> DataTable:
    table = [
        [name, *(whole(row[place]) if place < len(row) else MISSING for row in rows.values())]
        for place, name in enumerate(names)
    ]
    return DataTable([titles[0], *rows], table, f"{titles[1]}.")


def _participation_map(
    rows: Mapping[str, Sequence[int]], names: Sequence[str], titles: tuple[str, str], about: str
) -> Spec:
    most = float(max(map(max, rows.values())))
    cells = [
        Cell(label, name, value, _brief(value) or "0", f"{value:,} {titles[1].lower()}")
        for label, row in rows.items()
        for name, value in zip(names, row, strict=False)
    ]
    return heat_map(cells, list(rows), names, (titles[0], ""), (0.0, most), about)


def _histogram(counts: Sequence[int]) -> list[int]:
    devices = [0] * (max(counts) + 1)
    for number in counts:
        devices[number] += 1
    return devices


def divergence(groups: Sequence[Group]) -> Figure | None:
    """How alike the data of those who train together are to the whole."""
    lines = _lines(groups, lambda group: series.over_rounds(group, "divergence"))
    if not lines:
        return None
    about = (
        "Distance between the class mix of the devices that train together and the fleet's, "
        f"mean over the groups of a round{_seeds(lines)}."
    )
    high = 1.05 * max(point.high for line in lines for point in line.points) or 1.0
    return Figure(
        "divergence",
        "Divergence of the groups",
        about,
        line_chart(lines, _rounds(lines), Axis("Divergence", ".3~g", 0.0, high), about),
        _line_table(lines, decimal, "Divergence"),
    )


def links_table(groups: Sequence[Group]) -> DataTable | None:
    """Bytes by link in the whole run, where there are several links."""
    totals = {group.label: series.links(group) for group in groups}
    names = list(dict.fromkeys(name for links in totals.values() for name in links))
    if not names:
        return None
    ways = [(name, way) for name in names for way in ("up", "down")]
    rows = [
        [label, *(_mean_size(links.get(name, {}).get(way)) for name, way in ways)] for label, links in totals.items()
    ]
    return DataTable(["Method", *(f"{name}, {way}" for name, way in ways)], rows)


def _participation_about(groups: Sequence[Group], counts: Mapping[str, Sequence[int]]) -> str:
    everyone = [number for row in counts.values() for number in row]
    same = len(groups) > 1 and len({tuple(row) for row in counts.values()}) == 1
    words = ["first seed"] if any(len(group.runs) > 1 for group in groups) else []
    words += ["the same for every method"] if same else []
    which = f" ({', '.join(words)})" if words else ""
    rounds = count(max(group.rounds for group in groups), "round")
    what = "Times that" if any(series.links(group) for group in groups) else "Rounds in which"
    return f"{what} a device's upload was counted{which}: from {min(everyone)} to {max(everyone)}, in {rounds}."


def refused_table(groups: Sequence[Group]) -> DataTable | None:
    refusals = series.refusals(groups)
    if not refusals:
        return None
    asked = {group.label: series.asked(group) for group in groups}
    rounds = {group.label: sum(1 for _ in group.events()) for group in groups}
    rows = [
        [
            refusal.label,
            refusal.reason,
            whole(refusal.uploads),
            _share(refusal.uploads, asked[refusal.label]),
            f"{refusal.rounds:,} of {rounds[refusal.label]:,}",
        ]
        for refusal in refusals[:_TABLE_ROWS]
    ]
    note = f"The {_TABLE_ROWS} most frequent of {len(refusals):,}." if len(refusals) > _TABLE_ROWS else ""
    return DataTable(["Method", "Reason", "Uploads", "Of all %", "In rounds"], rows, note, texts=(1,))


def _share(part: int, everything: int) -> str:
    return percent(part / everything) if everything else MISSING


def bytes_table(groups: Sequence[Group]) -> DataTable:
    """Totals over the run and what one party keeps; means over seeds."""
    names = {"bytes_up": "Sent up", "bytes_down": "Sent down"}
    states = {
        "up": "One upload",
        "down": "One download",
        "device_kept": "Kept on a device",
        "device_transient": "More while it trains",
        "server": "Kept on the server",
    }
    rows = [
        [
            group.label,
            *(_mean_size(series.totals(group, name)) for name in names),
            *(_mean_size(series.state_bytes(group, name)) for name in states),
        ]
        for group in groups
    ]
    return DataTable(["Method", *names.values(), *states.values()], rows)


def _mean_size(value: float | None) -> str:
    return MISSING if value is None else size(value)
