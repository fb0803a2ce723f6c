"""The report page and the result table: what they say, what they escape, and that they load nothing."""

import base64
import hashlib
import io
import json
import re
import statistics
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from remanence.errors import UserError
from remanence.report import page
from remanence.report.groups import group_runs
from remanence.report.numbers import duration, size, thin
from remanence.report.tables import COLUMNS, result_rows, result_table
from remanence.runs.record import RunRecord

pytest.importorskip("altair")
vl_convert = pytest.importorskip("vl_convert")

HOSTILE = "<script>alert('x')</script>\"&[bold]"
DEVICES, CLASSES, ROUNDS = 6, 3, 8


def event(round: int, accuracy: float, **more: Any) -> dict[str, Any]:
    chosen = [round % DEVICES, (round + 2) % DEVICES]
    classes = [accuracy, max(0.0, accuracy - 0.1), min(1.0, accuracy + 0.1)]
    return {
        "event": "round", "round": round, "lr": 0.1, "selected": chosen, "counted": chosen, "refused": {},
        "loss": 2.0 / round, "largest_weight": 0.5, "bytes_down": 2000, "bytes_up": 1000, "accuracy": accuracy,
        "test_loss": 1.0, "per_class": classes, "per_task": [accuracy],
    } | more  # fmt: skip


def run(method: str = "fedavg", seed: int = 1, top: float = 0.8, finished: bool = True, **config: Any) -> RunRecord:
    rounds = [event(number, top * number / ROUNDS) for number in range(1, ROUNDS + 1)]
    start = {
        "event": "start", "name": "line 7", "method": method, "devices": DEVICES, "per_round": 2, "rounds": ROUNDS,
        "classes": CLASSES, "labels": ["good", "scratch", "dent"], "model": "mlp", "parameters": 4810,
        "engine": "cohort: 2 devices in one stack", "notes": ["device 4 had no sample"],
        "class_mix": [[device, 10 * device, 7] for device in range(DEVICES)], "sites": [0, 0, 0, 1, 1, 1],
    }  # fmt: skip
    result = {
        "rounds": ROUNDS, "accuracy": top, "accuracy_best": top, "forgetting": -0.1, "forgetting_clamped": 0.0,
        "per_class": rounds[-1]["per_class"], "client_acc_local": 0.9, "bytes_up": 8000, "bytes_down": 16000,
        "participation": {"least": 2, "most": 4, "gini": 0.1}, "refused": 0, "diverged": False,
        "state_bytes": {"server": 0, "device_kept": 19240, "device_transient": 0, "down": 1000, "up": 500},
        "samples_per_second": 100.0, "seconds": 75.0, "weights_sha256": "00",
    }  # fmt: skip
    settings = {
        "name": "line-7",
        "seed": seed,
        "rounds": ROUNDS,
        "data": {"name": "digits"},
        "method": {"name": method},
    }
    kept = rounds if finished else rounds[:5]
    timing = [{"round": number + 1, "seconds": 2.0, "samples": 10} for number in range(len(kept))]
    folder = Path("runs") / f"{method.replace('/', '_')}-{seed}"
    return RunRecord(folder, settings | config, start, kept, result if finished else None, timing)


def comparison() -> list[RunRecord]:
    return [run("fedavg", 1, 0.8), run("fedavg", 2, 0.7), run("scaffold", 1, 0.9), run("scaffold", 2, 0.88)]


def changed(record: RunRecord, **parts: Any) -> RunRecord:
    return RunRecord(**(record.__dict__ | parts))


class Reader(HTMLParser):
    """The elements of a page, its tables by their labels, and the texts of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.scripts: list[str] = []
        self.text = ""
        self.place: list[list[str]] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.elements.append((tag, known))
        self.inside = tag
        if known.get("role") == "region":
            self.place = self.tables.setdefault(str(known["aria-label"]), [])
        elif tag == "tr":
            self.place.append([])
        elif tag in ("td", "th"):
            self.place[-1].append("")
        elif tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = "" if tag in ("script", "style", "td", "th") else self.inside
        self.place = [] if tag == "table" else self.place

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside != "style":
            self.text += data
            if self.inside in ("td", "th", "span") and self.place and self.place[-1]:
                self.place[-1][-1] += data

    def specs(self) -> dict[str, Any]:
        specs: dict[str, Any] = json.loads(self.scripts[0])["specs"]
        return specs

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


def read(runs: list[RunRecord]) -> Reader:
    return Reader(page.report_text(runs))


def lines(runs: list[RunRecord], width: int = 100) -> list[str]:
    console = Console(width=width, color_system=None, file=io.StringIO())
    with console.capture() as shown:
        console.print(result_table(runs, width))
    return shown.get().splitlines()


def test_page_of_one_run(tmp_path: Path) -> None:
    page.write_report([run()], tmp_path / "new" / "report.html")
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["report.html"]
    shown = Reader((tmp_path / "new" / "report.html").read_text(encoding="utf-8"))
    assert (shown.count("h1"), shown.elements[0][0], shown.elements[0][1]["lang"]) == (1, "html", "en")
    for text in ("line 7", "digits, 3 classes", "4,810 parameters", "cohort: 2 devices in one stack",
                 "device 4 had no sample", "6 in 2 sites, 2 per round"):  # fmt: skip
        assert text in shown.text
    assert shown.tables["Result"][1][:4] == ["fedavg", "1", "80.00", "90.00"]
    assert shown.tables["Result"][1][4:] == ["-10.00", "1.00 kB", "2.00 kB", "19.2 kB", "1 min 15 s"]
    assert set(shown.specs()) == {
        "accuracy",
        "loss",
        "class-accuracy",
        "class-forgetting",
        "class-mix",
        "participation",
    }


def test_setup_tells_data_stream_and_the_engine_of_the_evidence(tmp_path: Path) -> None:
    record = run(stream={"kind": "class-incremental", "tasks": 5})
    (tmp_path / "evidence.json").write_text('{"engine": "processes: 2 workers"}')
    start = {name: value for name, value in record.start.items() if name != "engine"}
    origin = {"dataset": "digits", "origin": "shipped", "train_samples": 1438, "test_samples": 359}
    shown = read([changed(record, folder=tmp_path, start=start | origin)])
    assert "digits (shipped), 3 classes, 1,438 training samples, 359 test samples" in shown.text
    assert "class-incremental, 5 tasks" in shown.text
    assert "processes: 2 workers" in shown.text


def test_tables_hold_the_numbers_of_the_events() -> None:
    shown, record = read([run()]), run()
    accuracy = [[str(e["round"]), f"{100 * e['accuracy']:.2f}"] for e in record.rounds]
    assert shown.tables["Accuracy: values"] == [["Round", "fedavg"], *accuracy]
    assert shown.tables["Training loss: values"][3] == ["3", "0.6667"]
    final = [[name, f"{100 * value:.2f}"] for name, value in
             zip(record.start["labels"], record.rounds[-1]["per_class"], strict=True)]  # fmt: skip
    assert shown.tables["Accuracy per class: values"][1:] == final
    earlier = [max(e["per_class"][0] for e in record.rounds[:-1]) - record.rounds[-1]["per_class"][0]]
    assert shown.tables["Forgetting per class: values"][1] == ["good", f"{100 * earlier[0]:.2f}"]
    assert shown.tables["Who holds what: values"][3] == ["2", "2", "20", "7", "29"]
    counts = [sum(device in e["counted"] for e in record.rounds) for device in range(DEVICES)]
    assert [int(row[1]) for row in shown.tables["Participation: values"][1:]] == counts


def test_comparison_gives_mean_and_deviation_over_seeds() -> None:
    shown = read(comparison())
    deviation = 100 * statistics.stdev([0.8, 0.7])
    assert shown.tables["Result"][1][:3] == ["fedavg", "2", f"75.00 ±{deviation:.2f}"]
    assert shown.tables["Result"][2][2].startswith("89.00 ±1.41★best")
    assert shown.tables["Accuracy: values"][0] == ["Round", "fedavg", "scaffold"]
    assert shown.tables["Accuracy: values"][-1] == ["8", "75.00", "89.00"]
    last = [row for row in shown.specs()["accuracy"]["datasets"]["points"] if row["round"] == 8]
    assert [(row["label"], row["low"], row["high"]) for row in last] == [("fedavg", 0.7, 0.8), ("scaffold", 0.88, 0.9)]
    assert "traffic" in shown.specs()


def test_best_is_marked_only_where_rows_differ() -> None:
    first, second = result_rows(comparison())
    marks = {column.name: (a.best, b.best) for column, a, b in zip(COLUMNS, first.cells, second.cells, strict=True)}
    assert marks["accuracy"] == (False, True)
    assert marks["own"] == marks["up"] == marks["time"] == (False, False)


def test_terminal_table_and_page_show_the_same_texts() -> None:
    shown = read(comparison()).tables["Result"]
    for row, cells in zip(result_rows(comparison()), shown[1:], strict=True):
        assert [cell.text for cell in row.cells] == [text.split("★")[0] for text in cells[2:]]
    assert any("89.00 ±1.41*" in line for line in lines(comparison()))


def test_unfinished_run_is_shown_as_far_as_it_went() -> None:
    shown = read([run(finished=False)])
    assert "Unfinished: fedavg (round 5 of 8)." in shown.text
    assert shown.tables["Result"][1][2] == "50.00"
    assert shown.tables["Result"][1][5:] == ["1.00 kB", "2.00 kB", "-", "10 s"]
    assert len(shown.tables["Accuracy: values"]) == 1 + 5


def test_unfinished_run_neither_enters_a_mean_nor_competes() -> None:
    mixed = result_rows([run("fedavg", 1), run("fedavg", 2, finished=False), run("scaffold", 1, finished=False)])
    assert (mixed[0].seeds, mixed[0].cells[0].text) == ("1", "80.00")
    assert mixed[0].notes == ("1 run left out (unfinished, or the same seed again)",)
    assert mixed[1].notes == ("unfinished: round 5 of 8",)
    assert not any(cell.best for row in mixed for cell in row.cells)


def test_run_before_its_first_round() -> None:
    empty = RunRecord(Path("runs/x"), {"seed": 1, "method": {"name": "fedavg"}}, {"event": "start"}, [], None, [])
    shown = read([empty])
    assert "No round has been played yet." in shown.text
    assert shown.tables["Result"][1][2:] == ["-"] * len(COLUMNS)
    assert shown.specs() == {}


def test_missing_and_infinite_values() -> None:
    record = run()
    nothing = dict.fromkeys(record.result or {}) | {"client_acc_local": float("nan")}
    rounds = [event(1, 0.5, loss=None, per_class=[0.5, None, 0.5]),
              event(2, 0.4, loss=float("inf"), per_class=[0.3, None, 0.6])]  # fmt: skip
    shown = read([changed(record, result=nothing, rounds=rounds)])
    assert shown.tables["Result"][1][2:] == ["-"] * len(COLUMNS)
    assert shown.tables["Accuracy per class: values"][1:] == [["good", "30.00"], ["scratch", "-"], ["dent", "60.00"]]
    assert "loss" not in shown.specs()


def test_run_without_test_set() -> None:
    record = run()
    untested = ("accuracy", "per_class", "per_task", "test_loss")
    rounds = [{name: value for name, value in e.items() if name not in untested} for e in record.rounds]
    shown = read([changed(record, rounds=rounds, result=(record.result or {}) | {"accuracy": None, "per_class": None})])
    assert "The global model was not tested in any round." in shown.text
    assert set(shown.specs()) == {"loss", "class-mix", "participation"}


def test_hostile_names_are_escaped() -> None:
    record = run(HOSTILE)
    start = record.start | {"name": HOSTILE, "labels": [HOSTILE] * 3, "model": HOSTILE, "engine": HOSTILE}
    bad = changed(record, folder=Path(HOSTILE), start=start | {"notes": [HOSTILE]},
                  rounds=[e | {"refused": {"1": HOSTILE}} for e in record.rounds])  # fmt: skip
    text = page.report_text([bad, run("scaffold")])
    shown = Reader(text)
    assert text.count("<script") == 2
    assert text.count("</script") == 2
    assert shown.tables["Result"][1][0] == HOSTILE
    assert shown.tables["Refused uploads"][1] == [HOSTILE, HOSTILE, "8", "50.00", "8 of 8"]
    assert shown.specs()["accuracy"]["datasets"]["points"][0]["label"] == HOSTILE
    # Three classes of one name stay three columns.
    assert len({cell["column"] for cell in shown.specs()["class-accuracy"]["datasets"]["cells"]}) == 3
    assert any(HOSTILE[:20] in line for line in lines([bad]))


def test_page_loads_nothing_and_runs_one_script() -> None:
    text = page.report_text(comparison())
    shown = Reader(text)
    for tag, attributes in shown.elements:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert not re.search(r"@import|url\(", text[: text.index("<script")])
    policy = next(a["content"] for _, a in shown.elements if a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(shown.scripts[1].encode()).digest()).decode()
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert policy.endswith(f"script-src 'sha256-{digest}'")


def test_charts_are_valid_and_described() -> None:
    shown = read(comparison())
    for name, spec in shown.specs().items():
        assert vl_convert.vegalite_to_vega(spec | {"width": 300})["marks"], name
        assert spec["description"].endswith(".")
    described = {a["aria-describedby"] for tag, a in shown.elements if a.get("role") == "img"}
    assert described == {f"{name}-about" for name in shown.specs()}
    assert described <= {a.get("id") for _, a in shown.elements}


def test_long_runs_and_large_fleets_are_thinned() -> None:
    record = run()
    rounds = [event(number, 0.5) for number in range(1, 2001)]
    start = record.start | {"devices": 500, "class_mix": [[1, 2, 3]] * 500, "sites": [d // 100 for d in range(500)]}
    shown = read([changed(record, rounds=rounds, start=start)])
    points = [row["round"] for row in shown.specs()["accuracy"]["datasets"]["points"]]
    assert (len(points), points[0], points[-1]) == (500, 1, 2000)
    assert len(shown.tables["Accuracy: values"]) == 1 + 100
    assert len({cell["column"] for cell in shown.specs()["class-mix"]["datasets"]["cells"]}) == 100
    taken = {row[0]: row[1] for row in shown.tables["Participation: values"]}
    assert taken["0"] == str(500 - DEVICES)  # a large fleet is counted by how often, not by device


def test_same_runs_give_the_same_page_and_replace_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    page.write_report(comparison(), path)
    first = path.read_text(encoding="utf-8")
    page.write_report(comparison(), path)
    assert path.read_text(encoding="utf-8") == first
    assert list(tmp_path.iterdir()) == [path]


def test_page_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="the report cannot be written"):
        page.write_report([run()], tmp_path / "file" / "report.html")
    with pytest.raises(UserError, match="no run was given"):
        page.write_report([], tmp_path / "report.html")


def test_missing_altair_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    monkeypatch.setattr(page, "bundle", page.bundle.__wrapped__)
    with pytest.raises(UserError, match=re.escape("altair, which is not installed: pip install 'remanence[report]'")):
        page.write_report([run()], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_groups_keep_different_settings_apart() -> None:
    runs = [run("fedavg", 1, devices={"alpha": 0.1}), run("fedavg", 2, devices={"alpha": 0.1}),
            run("fedavg", 1, devices={"alpha": 1.0}), run("fedavg", 1, label="plain")]  # fmt: skip
    groups = group_runs(runs)
    assert [(group.label, len(group.runs)) for group in groups] == [
        ("fedavg alpha=0.1", 2), ("fedavg alpha=1.0", 1), ("plain", 1)]  # fmt: skip


def test_same_seed_twice_counts_once() -> None:
    (group,) = group_runs([run(seed=3, finished=False), run(seed=3), run(seed=3)])
    assert (len(group.runs), group.left_out, group.finished) == (1, 2, True)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_terminal_table_fits(width: int) -> None:
    shown = lines([*comparison(), run("a-method-with-a-rather-long-name")], width)
    assert max(map(len, shown)) <= width
    text = "\n".join(shown)
    assert "89.00" in text
    assert "±1.41" in text
    assert "…" not in text
    assert ("no room for" in text) == (width < 100)


def test_diverged_run_is_told() -> None:
    record = run()
    rounds = [*record.rounds[:-1], event(ROUNDS, 1 / 3, diverged=True, loss=float("nan"))]
    diverged = changed(record, rounds=rounds)
    assert "Diverged: fedavg." in read([diverged]).text
    assert result_rows([diverged])[0].notes == ("diverged: the model held NaN or infinity",)


@pytest.mark.parametrize(("value", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (19240, "19.2 kB"),
                                             (999_600, "1.00 MB"), (445e9, "445 GB")])  # fmt: skip
def test_size(value: float, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.64, "0.6 s"), (59.6, "1 min 00 s"), (42, "42 s"), (80, "1 min 20 s"),
                                               (7500, "2 h 05 min")])  # fmt: skip
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_thin_keeps_the_ends() -> None:
    assert thin(5, 10) == [0, 1, 2, 3, 4]
    assert (thin(1000, 7)[0], thin(1000, 7)[-1], len(thin(1000, 7))) == (0, 999, 7)
