"""CSV, read with duckdb and without, and Parquet."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import fails, loaded, write

from remanence.core.rng import numpy_generator
from remanence.data import csv_tables, duckdb_tables

# CSV, with duckdb and without

ROWS = [f"{number},{number / 4!r},m{number % 3},{'ok' if number % 2 else 'worn'}" for number in range(20)]
TEXT = "\n".join(["hours,heat,machine,label", *ROWS]) + "\n"


@pytest.fixture(params=["duckdb", "plain"])
def reader(request, monkeypatch) -> str:
    if request.param == "duckdb":
        pytest.importorskip("duckdb")
    else:
        monkeypatch.setitem(sys.modules, "duckdb", None)
    return request.param


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv"])
def test_csv(tmp_path: Path, reader: str, name: str) -> None:
    text = TEXT.replace(",", "\t") if "tsv" in name else TEXT
    data = loaded(None, write(tmp_path / name, text), group="machine")
    assert (data.shape, data.classes, data.labels) == ((2,), 2, ("ok", "worn"))
    assert (len(data.train), len(data.test)) == (16, 4)
    hours = data.train.x[:, 0]
    assert torch.equal(data.train.x[:, 1], hours / 4)
    assert data.train.group.tolist() == [f"m{int(hour) % 3}" for hour in hours]
    assert data.train.y.tolist() == [int(hour + 1) % 2 for hour in hours]
    assert abs(float(data.prepare(data.train).x.mean())) < 1e-6


def test_csv_is_read_by_duckdb_when_it_is_there(tmp_path: Path, reader: str, monkeypatch) -> None:
    calls = []
    plain = csv_tables._csv_by_hand
    monkeypatch.setattr(csv_tables, "_csv_by_hand", lambda *given: calls.append(1) or plain(*given))
    loaded(None, write(tmp_path / "a.csv", TEXT), drop=["machine"])
    assert bool(calls) == (reader == "plain")


def test_both_readers_agree_to_the_bit(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("duckdb")
    draws = numpy_generator(0, "cells")
    values = np.concatenate([draws.normal(size=300), 10.0 ** draws.uniform(-40, 38, 300)])
    forms = ["{!r}", "{:.3e}", " {:.9f} ", "+{!r}", '"{!r}"']
    lines = [
        f"{forms[row % 5].format(float(value))},{row % 7}, é{row % 3} " for row, value in enumerate(np.abs(values))
    ]
    text = "\ufeff" + "\r\n".join(['"a ""quoted"" name",group,label', *lines]) + "\r\n"
    path = write(tmp_path / "a.csv", text)
    first = loaded(None, path, group="group")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    second = loaded(None, path, group="group")
    assert torch.equal(first.train.x, second.train.x)
    assert torch.equal(first.test.y, second.test.y)
    assert np.array_equal(first.train.group, second.train.group)
    assert first.labels == second.labels == ("é0", "é1", "é2")
    assert first.train.group.dtype == second.train.group.dtype == np.int64


def test_labels_that_are_numbers_stay_numbers(tmp_path: Path, reader: str) -> None:
    text = "a,label\n" + "".join(f"{number},{number % 3}.0\n" for number in range(12))
    data = loaded(None, write(tmp_path / "a.csv", text))
    assert (data.classes, data.labels) == (3, ())
    assert data.test.y.tolist() == [1, 2]
    listed = loaded(None, tmp_path / "a.csv", class_names=["2.0", "1.0", "0.0", "9.0"])
    assert listed.classes == 4
    assert listed.train.y.tolist() == [2 - int(a) % 3 for a in listed.train.x[:, 0]]
    fails(
        "label '2.0' is not one of data.class_names, first in row 3",
        None,
        tmp_path / "a.csv",
        class_names=["0.0", "1.0"],
    )


def test_options_for_columns(tmp_path: Path, reader: str) -> None:
    path = write(tmp_path / "a.csv", TEXT.replace(",", ";"))
    data = loaded(None, path, label="machine", drop=["label"], separator=";")
    assert (data.classes, data.labels, data.shape) == (3, ("m0", "m1", "m2"), (2,))
    fails(
        r"^data\.label: .*a\.csv has no column 'lable'; did you mean 'label'",
        None,
        path,
        label="lable",
        separator=";",
    )
    fails(r"^data\.group: .* has no column 'machin'", None, path, group="machin", separator=";")
    fails(r"^data\.drop: .* has no column 'x'", None, path, drop=["x"], separator=";")
    fails(r"^data\.label: .* has no column 'label'", None, path)
    fails(r"^data\.separator: ';;' is not allowed", None, path, separator=";;")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty: no header line"),
        ("a,label\n", "is empty: no samples"),
        ("label\n1\n", "no feature columns besides label"),
        ("a,a,label\n1,2,0\n", "column 'a' is there twice"),
        ("a,label\n1,0\n2\n", "row 2 has 1 cells, the header has 2"),
        ("a,label\n1,0\n2,1,7\n", "row 2 has 3 cells, the header has 2"),
        (
            "a,b,label\n1,x,0\n2,3,1\n",
            "column 'b' has 'x' in row 1: features must be numbers; leave .* data.drop",
        ),
        ("a,b,label\n1,1,0\n,,1\n", "2 feature values are NaN, infinite or missing, the first in row 2"),
        (
            "a,label\n1,0\nnan,1\n-inf,1\n",
            "2 feature values are NaN, infinite or missing, the first in row 2",
        ),
        ("a,label\n1,0\n2,\n", "the label is missing, first in row 2"),
        ("a,label\n1,0\n2,-3\n", "1 labels are not allowed, the first is -3.0 in row 2"),
        ("a,label\n1,0\n2,0.5\n", r"the first is 0\.5 in row 2"),
        ("a,label\n1,0\n2,nan\n", "the first is nan in row 2"),
        ('a,label\n1,0\n2,"cut off', "broken or not a CSV file"),
        (b"a,label\n1,\xff\xfe\n", "broken or not a CSV file .*utf-8"),
        ("a,label\n1,0\x00\n2,1\n", r"a\.csv"),
    ],
)
def test_wrong_csv(tmp_path: Path, reader: str, text, words) -> None:
    fails(words, "csv", write(tmp_path / "a.csv", text))


def test_wrong_group_and_broken_gzip_in_csv(tmp_path: Path, reader: str) -> None:
    path = write(tmp_path / "a.csv", TEXT.replace("m2", ""))
    fails("6 samples name no group, the first in row 3", None, path, group="machine")
    packed = write(tmp_path / "b.csv.gz", TEXT)
    packed.write_bytes(packed.read_bytes()[:-20])
    fails(r"b\.csv\.gz: broken or not a CSV file", None, packed)
    fails("is empty: no header line", None, write(tmp_path / "c.csv.gz", ""))


def test_blank_lines_are_no_rows(tmp_path: Path, reader: str) -> None:
    data = loaded(None, write(tmp_path / "a.csv", TEXT.replace("\n", "\n\n")), group="machine")
    assert len(data.train) + len(data.test) == 20


# Parquet


def parquet(path: Path, query: str) -> Path:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as link:
        link.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    return path


def test_parquet(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "a.parquet",
        "SELECT i::INT AS a, i / 4.0 AS b, i % 2 = 0 AS c, (i * 1.5)::DECIMAL(8, 2) AS d, "
        "'m' || i % 3 AS machine, CASE WHEN i % 2 = 0 THEN 'worn' ELSE 'ok' END AS label, "
        "DATE '2020-01-01' AS day FROM range(20) t(i)",
    )
    data = loaded(None, path, group="machine", drop=["day"])
    assert (data.shape, data.classes, data.labels) == ((4,), 2, ("ok", "worn"))
    a = data.train.x[:, 0]
    assert torch.equal(data.train.x[:, 1], a / 4)
    assert torch.equal(data.train.x[:, 2], (a % 2 == 0).float())
    assert torch.equal(data.train.x[:, 3], a * 1.5)
    assert data.train.group.tolist() == [f"m{int(value) % 3}" for value in a]
    fails("column 'machine' is VARCHAR: features must be numbers; leave it out with data.drop", None, path)
    fails("column 'day' is DATE", None, path, drop=["machine"])
    fails(r"^data\.label: .* did you mean 'label'", None, path, label="labels")


def test_wrong_parquet(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", "SELECT i AS a, i % 3 AS label FROM range(30) t(i)")
    assert loaded(None, path).labels == ()
    path.write_bytes(path.read_bytes()[:100])
    fails(r"a\.parquet: broken or not a Parquet file", None, path)
    path = parquet(tmp_path / "b.parquet", "SELECT nullif(i, 4) AS a, i % 3 AS label FROM range(30) t(i)")
    fails("1 feature values are NaN, infinite or missing, the first in row 5", None, path)
    path = parquet(tmp_path / "c.parquet", "SELECT i AS a, nullif(i % 30, 4) AS label FROM range(30) t(i)")
    fails("the label is missing, first in row 5", None, path)
    path = parquet(tmp_path / "d.parquet", "SELECT i AS a, i AS label FROM range(0) t(i)")
    fails("is empty: no samples", None, path)


def test_parquet_needs_its_extra(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert duckdb_tables._duckdb() is None
    fails(
        r"a\.parquet: reading Parquet needs the extra 'tables': pip install 'remanence\[tables\]'",
        None,
        write(tmp_path / "a.parquet", b""),
    )
