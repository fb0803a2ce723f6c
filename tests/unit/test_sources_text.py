"""Text: tokens, vocabulary and rows by hand; CSV and Parquet; AG News in all its forms, and what can be wrong."""

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_files import fails, loaded, write

from remanence.config import parse
from remanence.data.datasets import load_dataset
from remanence.data.named import cache_folder
from remanence.data.samples import Dataset
from remanence.data.text import Form, joined, numbered, vocabulary
from remanence.errors import UserError
from remanence.experiment import prepare


@pytest.fixture(autouse=True)
def no_data_of_this_machine(tmp_path_factory, monkeypatch) -> None:
    monkeypatch.setenv("REMANENCE_DATA", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setitem(sys.modules, "datasets", None)


def rows(data: Dataset, part: str) -> list[list[int]]:
    return getattr(data, part).x.int().tolist()


# The share 0.5 takes every second item of a class for testing.
SMALL = """label,text
pet,The cat saw: the dog.
pet,DOGS saw the mouse
wild,"A cat, a bird!"
wild,
"""


def test_rows_of_a_small_table_by_hand(tmp_path: Path) -> None:
    data = loaded("text", write(tmp_path / "a.csv", SMALL), test=0.5, vocabulary=7, length=6)
    # training: the 2, cat 2, a 2, then saw, dog, bird once each; five numbers are left for words
    assert data.words == ("<pad>", "<unknown>", "a", "cat", "the", "bird", "dog")
    assert rows(data, "train") == [[4, 3, 1, 4, 6, 0], [2, 3, 2, 5, 0, 0]]
    assert rows(data, "test") == [[1, 1, 4, 1, 0, 0], [0, 0, 0, 0, 0, 0]]
    assert (data.labels, data.classes, data.shape) == (("pet", "wild"), 2, (6,))
    assert data.train.y.tolist() == data.test.y.tolist() == [0, 1]
    assert (data.mean, data.std, data.name, data.origin) == ((), (), "a", str(tmp_path / "a.csv"))
    assert data.train.x.dtype == torch.float32
    assert torch.equal(data.prepare(data.train).x, data.train.x)


def test_long_texts_are_cut_and_the_vocabulary_counts_them_whole(tmp_path: Path) -> None:
    data = loaded("text", write(tmp_path / "a.csv", SMALL), test=0.5, length=2)
    assert rows(data, "train") == [[4, 3], [2, 3]]
    assert data.words[5:] == ("bird", "dog", "saw")


def test_vocabulary_breaks_ties_by_the_alphabet() -> None:
    texts = [["z", "b", "b", "z"], ["ä", "a", "10"]]
    assert vocabulary(texts, 100)[2:] == ("b", "z", "10", "a", "ä")
    assert vocabulary(reversed(texts), 4) == ("<pad>", "<unknown>", "b", "z")
    assert vocabulary(texts, 3)[2:] == ("b",)


def test_words_are_runs_of_letters_digits_and_underscores() -> None:
    assert Form(9, 9).tokens("It's 5%: U.S.-ÉTÉ\\new_line #39;") == [
        *("it", "s", "5", "u", "s", "été", "new_line", "39"),
    ]
    assert Form(9, 9, "characters").tokens(" 新闻 Ab\n") == ["新", "闻", "a", "b"]
    assert Form(9, 9).tokens(" ... ") == []


def test_a_word_that_looks_like_padding_is_a_word_outside_the_vocabulary() -> None:
    assert numbered(["<pad> <unknown>"], ("<pad>", "<unknown>", "x"), Form(9, 3)).tolist() == [[1, 1, 0]]


def test_missing_cells_join_as_empty_ones() -> None:
    assert joined([["a", None, ""], ["b", "c", "d"]]) == ["a b", " c", " d"]


WIDE = "\n".join(["owner,head,body,kind", *(f"m{i % 3},h{i},b{i % 2},{i % 2}" for i in range(20))]) + "\n"


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.parquet"])
def test_several_columns_and_owners(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "wide.csv", WIDE)
    if name == "a.parquet":
        path = parquet(path, tmp_path / name)
    else:
        path = write(tmp_path / name, WIDE.replace(",", "\t") if "tsv" in name else WIDE)
    data = loaded("text", path, label="kind", text=["body", "head"], group="owner", length=3)
    assert (len(data.train), len(data.test), data.classes, data.labels) == (16, 4, 2, ())
    assert [data.words[i] for i in rows(data, "train")[1]] == ["b1", "h1", "<pad>"]
    assert data.train.group is not None
    assert data.train.group[:4].tolist() == ["m0", "m1", "m2", "m0"]


def parquet(table: Path, path: Path) -> Path:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as link:
        link.execute(f"COPY (SELECT * FROM read_csv('{table}')) TO '{path}' (FORMAT parquet)")
    return path


def test_characters(tmp_path: Path) -> None:
    text = "label,text\n" + "0,体育 体\n1,新闻\n" * 5
    data = loaded("text", write(tmp_path / "a.csv", text), unit="characters", length=4)
    assert data.words[2:] == ("体", "新", "育", "闻")
    assert rows(data, "train")[0] == [2, 4, 2, 0]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", {}, "is empty: no header line"),
        ("label,text\n", {}, "is empty: no samples"),
        ("label,text\n1,a\n", {}, "1 samples are too few for a test share of 0.2"),
        ("label,text\n" + "0,...\n" * 9, {}, "there are no words in the texts of the training part"),
        ("label,text\n0,a\n1\n", {}, "row 2 has 1 cells, the header has 2"),
        ("label,text,text\n0,a,b\n", {}, "column 'text' is there twice"),
        ('label,text\n0,a\n1,"cut off', {}, "broken or not a CSV file"),
        (b"label,text\n0,\xff\xfe\n", {}, "broken or not a CSV file .*utf-8"),
        ("label,text\n0,a\n,b\n", {}, "the label is missing, first in row 2"),
        ("label,text\n0,a\n-3,b\n", {}, r"the first is -3\.0 in row 2"),
        (SMALL, {"label": "lable"}, r"^data\.label: .*a\.csv has no column 'lable'; did you mean 'label'"),
        (SMALL, {"text": ["txt"]}, r"^data\.text: .* has no column 'txt'; did you mean 'text'"),
        (SMALL, {"group": "owner"}, r"^data\.group: .* has no column 'owner'"),
        (SMALL, {"text": []}, r"^data\.text: \[\] is not allowed: .*at least 1 item"),
        (SMALL, {"vocabulary": 2}, r"^data\.vocabulary: 2 is not allowed: .*greater than or equal to 3"),
        (SMALL, {"vocabulary": 2**24 + 1}, r"^data\.vocabulary: .*less than or equal to 16777216"),
        (SMALL, {"length": 0}, r"^data\.length: 0 is not allowed"),
        (SMALL, {"test": 1.0}, r"^data\.test: 1\.0 is not allowed"),
        (SMALL, {"unit": "word"}, r"^data\.unit: 'word' is not allowed: .*'words' or 'characters'"),
        (SMALL, {"classes": 1}, "2 different labels, but data.classes is 1"),
    ],
)
def test_wrong_tables(tmp_path: Path, text: str | bytes, options: dict[str, Any], words: str) -> None:
    fails(words, "text", write(tmp_path / "a.csv", text), **options)


def test_wrong_parquet_and_packed_files(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    fails(r"a\.parquet: broken or not a Parquet file", "text", write(tmp_path / "a.parquet", b"PAR1"))
    packed = write(tmp_path / "b.csv.gz", SMALL)
    packed.write_bytes(packed.read_bytes()[:-9])
    fails(r"b\.csv\.gz: broken or not a CSV file", "text", packed)
    fails(r"^data\.path: no such file or folder", "text", tmp_path / "c.csv")


def test_parquet_needs_its_extra(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    fails(r"needs the extra 'tables'", "text", write(tmp_path / "a.parquet", b""))


# AG News


NAMES = ("World", "Sports", "Business", "Sci/Tech")
ITEMS = [(number % 4, f"Title {number}", f"about {NAMES[number % 4]}\\again") for number in range(40)]


def news(form: str) -> str:
    lines = {
        "ours": [f"train,{label},{title},{text}" for label, title, text in ITEMS] + ["test,0,x,leaked"],
        "published": [f'"{label + 1}","{title}","{text}"' for label, title, text in ITEMS],
        "class-index": [f"{label + 1},{title},{text}" for label, title, text in ITEMS],
        "names": [f"{NAMES[label]},{title},{text}" for label, title, text in ITEMS],
        "from-one": [f"{label + 1},{title},{text}" for label, title, text in ITEMS],
        "one-text": [f"{label},{title} {text}" for label, title, text in ITEMS],
    }[form]
    header = {
        "ours": "split,label,title,text",
        "class-index": "Class Index,Title,Description",
        "names": "label,title,description",
        "from-one": "label,title,description",
        "one-text": "label,text",
    }
    return "\n".join([*([header[form]] if form in header else []), *lines]) + "\n"


@pytest.mark.parametrize("form", ["ours", "published", "class-index", "names", "from-one", "one-text"])
@pytest.mark.parametrize("name", ["ag-news.csv", "ag-news.csv.gz"])
def test_ag_news_in_every_form_is_the_same(form: str, name: str, tmp_path: Path) -> None:
    data = loaded("ag-news", write(tmp_path / name, news(form)), length=6)
    assert (data.name, data.classes, data.labels, data.shape) == ("ag-news", 4, NAMES, (6,))
    assert data.train.y.bincount().tolist() == [7, 7, 7, 7]
    assert data.test.y.bincount().tolist() == [3, 3, 3, 3]
    assert data.mean == ()
    items = taken(data)
    assert len(items) == 28
    for text, label, item in zip(texts(data, "train"), data.train.y.tolist(), items, strict=True):
        about = ["sci", "tech", "again"] if label == 3 else [NAMES[label].lower(), "again", "<pad>"]
        assert text == ["title", str(item), "about", *about]
        assert label == ITEMS[item][0]
    for text, label in zip(texts(data, "test"), data.test.y.tolist(), strict=True):
        assert text[:4] == ["title", "<unknown>", "about", "sci" if label == 3 else NAMES[label].lower()]
    assert data.words[2:5] == ("about", "again", "title")
    assert "leaked" not in data.words


def texts(data: Dataset, part: str) -> list[list[str]]:
    return [[data.words[number] for number in row] for row in rows(data, part)]


def taken(data: Dataset) -> list[int]:
    """The items of the training part, by the numbers in their titles; only these are in the vocabulary."""
    found = [int(row[1]) for row in texts(data, "train")]
    assert set(found) == {int(word) for word in data.words if word.isdecimal()}
    assert len(set(found)) == len(found)
    return found


def test_ag_news_takes_the_split_of_its_card(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", news("names"))
    one, two = loaded("ag-news", path), loaded("ag-news", path)
    assert one.shape == (128,)
    assert torch.equal(one.train.x, two.train.x)
    assert torch.equal(one.test.x, two.test.x)
    assert torch.equal(one.train.y, two.train.y)
    assert one.words == two.words
    assert len(loaded("ag-news", path, test=0.5).test) == 20


def test_ag_news_draws_its_split_by_a_seed(tmp_path: Path) -> None:
    """Of every class exactly its share, whatever the seed; not the first, the last or every third of the file."""
    path = write(tmp_path / "a.csv", news("names"))
    drawn = {seed: loaded("ag-news", path, split_seed=seed) for seed in range(8)}
    assert sorted(taken(drawn[0])) == sorted(taken(loaded("ag-news", path)))
    assert sorted(taken(drawn[3])) == sorted(taken(loaded("ag-news", path, split_seed=3, length=5, vocabulary=80)))
    parts = {tuple(sorted(taken(data))) for data in drawn.values()}
    assert len(parts) == 8
    for data in drawn.values():
        assert data.train.y.bincount().tolist() == [7, 7, 7, 7]
        assert data.test.y.bincount().tolist() == [3, 3, 3, 3]
    often = np.bincount([item for part in parts for item in part], minlength=40)
    assert often.min() >= 1  # no item is for testing whatever the seed
    assert (often < 8).mean() > 0.7  # and few are for training whatever the seed


@pytest.mark.parametrize("share", [0.1, 0.25, 0.3, 0.5])
def test_ag_news_is_divided_class_by_class(tmp_path: Path, share: float) -> None:
    uneven = "".join(f"{label},title {item}\n" for label in range(4) for item in range(40 * (label + 1)))
    data = loaded("ag-news", write(tmp_path / "a.csv", "label,text\n" + uneven), test=share, split_seed=5)
    sizes = [40, 80, 120, 160]
    assert data.test.y.bincount().tolist() == [round(share * size) for size in sizes]
    assert data.train.y.bincount().tolist() == [size - round(share * size) for size in sizes]


@pytest.mark.parametrize("seed", [-1, 2**53, 0.5])
def test_ag_news_refuses_a_seed_that_is_none(tmp_path: Path, seed: float) -> None:
    fails(r"^data\.split_seed: .* is not allowed", "ag-news", write(tmp_path / "a.csv", news("names")), split_seed=seed)


def test_ag_news_from_the_cache_and_from_parquet(tmp_path: Path) -> None:
    write(cache_folder() / "ag-news.csv.gz", news("ours"))
    assert load_dataset("ag-news", None, {}).origin == str(cache_folder() / "ag-news.csv.gz")
    data = loaded("ag-news", parquet(write(tmp_path / "a.csv", news("names")), tmp_path / "a.parquet"))
    assert torch.equal(data.test.x, load_dataset("ag-news", None, {}).test.x)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "needs the columns label and text, or label, title and description; it has a, b"),
        (
            "label,title\n1,2\n",
            "needs the columns label and text, or label, title and description; it has label, title",
        ),
        ("1,title\n", "without a header line it needs class, title, description; it has 2 columns"),
        ("1,title,text\n2,title\n", "row 2 has 2 cells, the first has 3"),
        ("1,title,text\n0,title,text\n", "label '0' in row 2 is not allowed: 1 to 4, or World, Sports"),
        ("label,text\n0,a\n4,b\n", "label '4' in row 2 is not allowed: 0 to 3, or World"),
        ("label,text\n0,a\n,b\n", "label '' in row 2 is not allowed"),
        ("label,text\nworld news,a\n", "label 'world news' in row 1 is not allowed"),
        ("split,label,text\ntest,0,a\n", "no row has 'train' in the column 'split'"),
        ("label,text\n", "is empty: no samples"),
        ('label,text\n0,"cut', "broken or not a CSV file"),
        (b"\x1f\x8b\x08", "broken or not a CSV file"),
    ],
)
def test_wrong_ag_news(tmp_path: Path, text: str | bytes, words: str) -> None:
    fails(words, "ag-news", write(tmp_path / "a.csv", text))


def test_ag_news_that_cannot_be_found(tmp_path: Path) -> None:
    fails(
        r"^data\.name: 'ag-news' not found\. Looked for .*ag-news\.csv\.gz.*remanence\[hub\].*\nGive data\.path: a CSV",
        "ag-news",
    )
    fails(r"is a folder; ag-news is read from a CSV", "ag-news", tmp_path)
    fails(r"^data\.vocabulary: 2 is not allowed", "ag-news", tmp_path, vocabulary=2)


class Table(dict):
    features = {"text": object(), "label": object()}


def install_hub(monkeypatch, load) -> None:
    package = types.ModuleType("datasets")
    package.load_dataset = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", package)


def test_ag_news_from_the_hub(monkeypatch) -> None:
    asked = []

    def load(dataset: str, config: str | None, split: str) -> Table:
        asked.append((dataset, split))
        return Table(text=[f"{title} {text}" for _, title, text in ITEMS], label=[label for label, *_ in ITEMS])

    install_hub(monkeypatch, load)
    data = load_dataset("ag-news", None, {})
    assert asked == [("fancyzhx/ag_news", "train")]
    assert (len(data.train), len(data.test), data.origin) == (28, 12, "hub: fancyzhx/ag_news")
    monkeypatch.setitem(Table.features, "texts", Table.features.pop("text"))
    fails("'ag-news' not found.*has no column 'text'; did you mean 'texts'", "ag-news")


def test_ag_news_offline(monkeypatch) -> None:
    def load(dataset: str, config: str | None, split: str) -> Table:
        raise ConnectionError(f"Couldn't reach '{dataset}' on the Hub\nand much more")

    install_hub(monkeypatch, load)
    fails(r"'ag-news' not found.*Couldn't reach 'fancyzhx/ag_news' on the Hub\nGive data\.path: ", "ag-news")


# Which models read text


def experiment(tmp_path: Path, **tables: dict[str, Any]) -> dict[str, Any]:
    data = {"name": "ag-news", "path": str(write(tmp_path / "a.csv", news("names"))), "length": 6}
    return {"data": data, "devices": {"count": 4, "per_round": 2, "partition": "iid"}, **tables}


def test_text_needs_a_model_with_its_vocabulary(tmp_path: Path) -> None:
    tree = experiment(tmp_path, model={"name": "fasttext", "vocabulary": 40})
    task = prepare(parse(tree)).plan.task
    assert task.module(task.test.x).shape == (12, 4)
    used = len(loaded("ag-news", tmp_path / "a.csv").words)
    assert used == 2 + 3 + 5 + 28  # of all items, of one class's, of one item
    for model, words in (
        ({"name": "fasttext", "vocabulary": 37}, rf"^model\.vocabulary: 37 is not allowed: 'ag-news' has {used} "),
        ({"name": "mlp"}, r"^model\.name: 'mlp' is not allowed with 'ag-news', .*fasttext"),
    ):
        with pytest.raises(UserError, match=words):
            prepare(parse(experiment(tmp_path, model=model)))
    with pytest.raises(UserError, match=r"^model\.name: 'fasttext' reads token numbers, .*'digits' are quantities"):
        prepare(parse({"model": {"name": "fasttext"}}))
    with pytest.raises(UserError, match=r"^data\.augment: 'standard' is for images"):
        prepare(parse(tree | {"data": {**tree["data"], "augment": "standard"}}))


def test_rows_survive_float32() -> None:
    largest = 2**24 - 1
    assert int(np.float32(largest)) == largest
