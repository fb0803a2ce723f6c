"""Synthetic writers: who they are, what they write, and that they never pass for FEMNIST."""

import sys

import numpy as np
import pytest
import torch
from data_files import fails, idx_folder

from remanence.catalogue import describe
from remanence.config import parse
from remanence.core.rng import numpy_generator
from remanence.data.datasets import load_dataset
from remanence.data.handwriting import SIDE, Style, written
from remanence.data.named import cache_folder
from remanence.data.samples import Dataset
from remanence.data.sources import digit_writers
from remanence.experiment import prepare


@pytest.fixture(autouse=True)
def no_data_of_this_machine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMANENCE_DATA", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setitem(sys.modules, "datasets", None)


def made(**options: object) -> Dataset:
    return load_dataset("digit-writers", None, {"writers": 12, "size": 0.2, **options})


def of(data: Dataset, writer: int) -> tuple[torch.Tensor, torch.Tensor]:
    assert data.train.group is not None
    own = torch.from_numpy(data.train.group == writer)
    return data.train.x[own], data.train.y[own]


# What it says of itself


def test_it_says_what_it_is() -> None:
    data = made()
    assert data.name == "digit-writers"
    for word in ("synthetic stand-in", "not FEMNIST", "load_digits", "12 made-up writers"):
        assert word in data.origin
    shown = describe("digit-writers")
    assert "Stand-in" in shown["summary"]
    assert "not FEMNIST" in shown["text"]
    start = prepare(parse({"data": {"name": "digit-writers", "writers": 100, "size": 0.1}, "devices": NATURAL})).start
    assert (start["dataset"], start["train_samples"]) == ("digit-writers", len(made(writers=100, size=0.1).train))
    assert "synthetic stand-in" in start["origin"]


NATURAL = {"count": 100, "per_round": 5, "partition": "natural"}


# Who writes what


def test_shape_polarity_and_scale_are_those_of_femnist() -> None:
    data = made()
    assert (data.shape, data.train.x.dtype, data.classes, data.labels) == (
        (1, 28, 28),
        torch.uint8,
        10,
        tuple("0123456789"),
    )
    assert (data.mean, data.std) == ((), ())
    ready = data.prepare(data.train).x
    assert float(ready.min()) >= 0
    assert float(ready.max()) <= 1
    border = torch.cat([ready[:, 0, 0], ready[:, 0, -1]])
    assert 0.85 < float(border.mean()) < 1  # paper
    assert float(ready.flatten(1).min(1).values.median()) < 0.45  # ink


def test_sizes_follow_the_published_distribution() -> None:
    data = made(writers=350, size=0.02)
    counts = np.bincount(data.train.group) + np.bincount(data.test.group)
    drawn = [sizes_of(writer) for writer in range(350)]
    assert counts.tolist() == [round(0.02 * size) for size in drawn]
    assert np.mean(drawn) == pytest.approx(230, abs=12)  # 226.8 but for those below 100
    assert np.std(drawn) == pytest.approx(84, abs=8)
    assert min(drawn) == 100
    assert np.bincount(data.train.group).tolist() == [max(1, int(0.9 * count)) for count in counts]


def sizes_of(writer: int) -> float:
    generator = numpy_generator(0, "writer", writer)
    Style.drawn(generator)
    generator.dirichlet(np.full(10, 2.0))
    return max(100.0, generator.normal(226.8, 88.9))


def test_alpha_is_how_even_a_writers_classes_are() -> None:
    """The largest share of a writer's samples: of Dirichlet(100) barely above a tenth, of Dirichlet(0.05) most."""
    for alpha, low, high in ((100.0, 0.1, 0.17), (2.0, 0.17, 0.4), (0.05, 0.6, 1.0)):
        data = made(alpha=alpha, size=1.0)
        shares = [of(data, writer)[1].bincount().max() / len(of(data, writer)[1]) for writer in range(12)]
        assert low < float(np.mean(shares)) < high


def test_a_writer_is_the_same_whoever_else_writes() -> None:
    few, many, again, others = made(writers=3), made(writers=5), made(writers=3), made(writers=3, style_seed=1)
    for writer in range(3):
        assert all(torch.equal(a, b) for a, b in zip(of(few, writer), of(many, writer), strict=True))
    assert torch.equal(few.train.x, again.train.x)
    assert torch.equal(few.test.x, again.test.x)
    assert few.train.x.shape != others.train.x.shape or not torch.equal(few.train.x, others.train.x)


def test_training_and_testing_have_images_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the place of its image in place of a picture: train and test draw from the parts of the base, by label."""

    def places(characters: np.ndarray, rows: np.ndarray, *_: object) -> np.ndarray:
        pictures = np.zeros((len(rows), 1, SIDE, SIDE), np.uint8)
        pictures[:, 0, 0, 0], pictures[:, 0, 0, 1] = np.divmod(rows, 256)
        pictures[:, 0, 0, 2:4] = np.divmod(len(characters), 256)
        return pictures

    monkeypatch.setattr(digit_writers, "written", places)
    base, data = load_dataset("digits", None, {}), made(size=2.0)
    for split, part in ((data.train, base.train), (data.test, base.test)):
        numbers = split.x[:, 0, 0, :4].long()
        rows, sizes = numbers[:, 0] * 256 + numbers[:, 1], numbers[:, 2] * 256 + numbers[:, 3]
        assert sizes.unique().tolist() == [len(part)]
        assert torch.equal(part.y.sort().values[rows], split.y)
        assert len(rows.unique()) > 0.7 * min(len(rows), len(part))


# How they write


PLAIN = Style(slant=0, turn=0, width=1, height=1, across=0, down=0, edge=0.5, blur=0.05, ink=0.0, paper=1.0, noise=0.0)


def bar() -> np.ndarray:
    """An upright bar in a margin."""
    character = np.zeros((1, 30, 30), np.float32)
    character[0, 6:24, 12:18] = 1
    return character


def page(**changes: float) -> np.ndarray:
    """Mean ink of many bars: 1 - grey level."""
    style = Style(**{**vars(PLAIN), **changes})
    pictures = written(bar(), np.zeros(200, np.int64), style, numpy_generator(0, "page"))
    assert (pictures.shape, pictures.dtype) == ((200, 1, SIDE, SIDE), np.uint8)
    return 1 - pictures[:, 0].mean(0) / 255


def middle(ink: np.ndarray, axis: int) -> float:
    along = ink.sum(1 - axis)
    return float((along * np.arange(SIDE)).sum() / along.sum())


def test_a_plain_hand_writes_the_character() -> None:
    ink = page()
    assert ink[14, 14] == pytest.approx(1, abs=0.01)
    assert ink[0].max() == ink[:, 0].max() == 0
    assert ink.sum() == pytest.approx(18 * 6 * (27 / 29) ** 2, rel=0.1)
    assert middle(ink, 0) == pytest.approx(13.5, abs=0.2)
    assert middle(ink, 1) == pytest.approx(13.5, abs=0.2)


def test_what_each_trait_does() -> None:
    plain = page()
    assert page(edge=0.2).sum() > 1.05 * plain.sum() > 1.1 * page(edge=0.85).sum()
    assert page(width=1.3).sum() == pytest.approx(1.3 * plain.sum(), rel=0.05)
    assert page(height=0.8).sum() == pytest.approx(0.8 * plain.sum(), rel=0.05)
    assert middle(page(across=0.2), 1) - middle(plain, 1) == pytest.approx(2.7, abs=0.1)
    assert middle(page(down=-0.2), 0) - middle(plain, 0) == pytest.approx(-2.7, abs=0.1)
    slanted = page(slant=0.4)
    assert middle(slanted[6:10], 1) - middle(slanted[18:22], 1) == pytest.approx(0.4 * 12, rel=0.2)
    assert page(ink=0.3)[14, 14] == pytest.approx(0.7, abs=0.01)
    assert page(paper=0.9)[0, 0] == pytest.approx(0.1, abs=0.01)


def test_noise_and_small_differences() -> None:
    style = Style(**{**vars(PLAIN), "paper": 0.5, "noise": 0.1})
    one, other = written(bar(), np.zeros(2, np.int64), style, numpy_generator(0, "page"))[:, 0].astype(float) / 255
    corner = np.concatenate([one[:, :5], one[:, -5:]])
    assert corner.std() == pytest.approx(0.1, rel=0.2)
    calm = written(bar(), np.zeros(2, np.int64), PLAIN, numpy_generator(0, "page"))
    assert not np.array_equal(calm[0], calm[1])
    assert not np.array_equal(one, other)


def test_hands_differ() -> None:
    """Pages of the same characters by two writers differ more than two pages of one writer."""
    hands = [Style.drawn(numpy_generator(0, "hand", number)) for number in range(20)]
    assert len(set(hands)) == 20
    rows = np.zeros(40, np.int64)
    first, second = (
        np.stack([written(bar(), rows, hand, numpy_generator(1, "page", number)).mean(0) for hand in hands])
        for number in range(2)
    )
    assert np.abs(first[:-1] - first[1:]).mean() > 5 * np.abs(first - second).mean()


# Other bases


def test_mnist_as_base() -> None:
    idx_folder(cache_folder() / "mnist")
    data = made(base="mnist", writers=2)
    assert data.shape == (1, 28, 28)
    assert str(cache_folder()) in data.origin
    assert set(data.test.y.tolist()) <= set(range(5))  # the small test part has five images


def test_a_base_that_is_not_there() -> None:
    fails(r"^data\.base: 'mnist' not found\. .*\ndata\.base = 'digits' needs no files", "digit-writers", base="mnist")
    fails(r"^data\.base: 'emnist' is not allowed", "digit-writers", base="emnist")
    fails(r"^data\.writers: 0 is not allowed", "digit-writers", writers=0)
    fails(r"^data\.path: digit-writers has no such option", "digit-writers", "somewhere")
