"""Streams: what a device trains on at a moment, by hand and for random sizes; and fleets that look through them."""

from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remanence.config import parse
from remanence.core.rng import numpy_generator
from remanence.data import fleet as fleets
from remanence.data.fleet import Fleet, IndexedFleet, TensorFleet
from remanence.data.samples import Dataset, Split
from remanence.data.stream import Stream
from remanence.errors import UserError
from remanence.registry import streams

SEED = 5


def make(kind: str, **options: Any) -> Stream:
    stream: Stream = streams.create(kind, options, "stream")
    return stream


def rows(stream: Stream, samples: int, tick: int = 1, used: int = 0, device: int = 0) -> list[int]:
    found = stream.rows(device, samples, tick, used, SEED)
    assert found.dtype == np.int64
    return found.tolist()


# In a circle


@given(st.integers(1, 120), st.integers(1, 50), st.integers(0, 3))
def test_every_pass_of_a_cycle_uses_each_sample_once(samples: int, size: int, device: int) -> None:
    stream = make("cycle", size=size)
    batches = [rows(stream, samples, used=used, device=device) for used in range(3 * samples // size + 1)]
    assert all(len(batch) == size for batch in batches)
    seen = list(chain.from_iterable(batches))
    for first in range(0, len(seen) - samples + 1, samples):
        assert sorted(seen[first : first + samples]) == list(range(samples))


@pytest.mark.parametrize("samples", [16, 32, 48, 96, 100])
def test_sizes_at_which_batches_and_passes_end_together_or_not(samples: int) -> None:
    """Every batch has exactly 32, goes on where the last one ended, and every pass has an order of its own."""
    stream = make("cycle", size=32)
    seen = []
    for used in range(25):
        batch = rows(stream, samples, used=used)
        assert len(batch) == 32
        seen += batch
    passes = [tuple(seen[first : first + samples]) for first in range(0, 800 - samples + 1, samples)]
    assert all(sorted(one) == list(range(samples)) for one in passes)
    assert len(set(passes)) == len(passes)


def test_a_batch_across_the_end_of_a_pass_by_hand() -> None:
    stream = make("cycle", size=4)
    orders = [numpy_generator(SEED, "stream", 2, number).permutation(6).tolist() for number in range(2)]
    assert rows(stream, 6, used=0, device=2) == orders[0][:4]
    assert rows(stream, 6, used=1, device=2) == orders[0][4:] + orders[1][:2]
    assert rows(stream, 6, used=2, device=2) == orders[1][2:]
    assert sorted(rows(make("cycle", size=12), 6, device=2)) == sorted(2 * [*range(6)])


def test_a_circle_without_samples_is_empty() -> None:
    assert rows(make("cycle"), 0, used=3) == []


# Never twice


@given(st.integers(0, 120), st.integers(1, 50), st.sampled_from(["shuffled", "file"]), st.integers(0, 3))
def test_no_sample_is_used_twice(samples: int, size: int, order: str, device: int) -> None:
    stream = make("one-shot", size=size, order=order)
    batches = [rows(stream, samples, used=used, device=device) for used in range(samples // size + 3)]
    seen = list(chain.from_iterable(batches))
    assert sorted(seen) == list(range(samples))
    assert order == "shuffled" or seen == sorted(seen)
    whole, rest = divmod(samples, size)
    assert [len(batch) for batch in batches] == [size] * whole + ([rest] if rest else []) + [0] * (3 - bool(rest))


def test_samples_that_have_not_arrived_are_waited_for() -> None:
    """Three a tick: the first batch of five is whole at tick 2, the second at 4, the rest of two at 4 as well."""
    stream = make("one-shot", size=5, rate=3.0, order="file")
    assert [len(rows(stream, 12, tick, 0)) for tick in range(1, 5)] == [0, 5, 5, 5]
    assert [len(rows(stream, 12, tick, 1)) for tick in range(1, 6)] == [0, 0, 0, 5, 5]
    assert [rows(stream, 12, tick, 2) for tick in range(3, 6)] == [[], [10, 11], [10, 11]]
    assert rows(stream, 12, 100, 3) == []


def test_rates_are_given_by_device_and_gone_through_again() -> None:
    stream = make("one-shot", size=2, rate=[0.5, 2.0, 0.0], order="file")
    ready = [next(tick for tick in range(10) if rows(stream, 8, tick, 0, device)) for device in range(6)]
    assert ready == [4, 1, 0, 4, 1, 0]
    window = make("window", size=50, rate=[1.0, 4.0])
    assert [len(rows(window, 50, 3, device=device)) for device in range(4)] == [3, 12, 3, 12]


@given(st.integers(0, 60), st.floats(0.1, 9), st.integers(1, 20), st.integers(0, 5))
def test_a_batch_that_has_arrived_stays(samples: int, rate: float, size: int, used: int) -> None:
    stream = make("one-shot", size=size, rate=rate)
    found = [rows(stream, samples, tick, used) for tick in range(1, 80)]
    assert found == sorted(found, key=bool)
    assert len({tuple(batch) for batch in found if batch}) <= 1


# A window


def test_a_full_window_overwrites_its_oldest() -> None:
    stream = make("window", size=5, rate=2.0)
    held = [rows(stream, 9, tick) for tick in range(1, 8)]
    assert held == [
        [0, 1],
        [0, 1, 2, 3],
        [1, 2, 3, 4, 5],
        [3, 4, 5, 6, 7],
        [4, 5, 6, 7, 8],
        [4, 5, 6, 7, 8],
        [4, 5, 6, 7, 8],
    ]
    assert rows(stream, 9, 0) == held[0]
    assert rows(stream, 9, 3, used=7) == held[2]


def test_a_window_may_begin_anew() -> None:
    stream = make("window", size=3, rate=2.0, repeat=True)
    assert [rows(stream, 5, tick) for tick in range(1, 6)] == [[0, 1], [1, 2, 3], [3, 4, 0], [0, 1, 2], [2, 3, 4]]
    assert rows(stream, 0, 4) == []
    assert rows(make("window", rate=2.0), 0, 4) == []


@given(
    st.integers(1, 60),
    st.integers(1, 80),
    st.floats(0.1, 20),
    st.sampled_from(["shuffled", "file"]),
    st.booleans(),
)
def test_a_window_holds_the_newest_once_each(samples: int, size: int, rate: float, order: str, repeat: bool) -> None:
    stream = make("window", size=size, rate=rate, order=order, repeat=repeat)
    whole = rows(make("window", size=samples, rate=float(samples), order=order), samples)  # in order of arrival
    for tick in (1, 2, 7, 50):
        held, arrived = rows(stream, samples, tick), int(rate * tick)
        assert len(held) == len(set(held)) == min(size, samples, arrived)
        last = arrived if repeat else min(arrived, samples)
        assert held == [whole[place % samples] for place in range(last - len(held), last)]


def test_a_static_stream_is_everything() -> None:
    assert rows(make("static"), 4, 9, 3) == [0, 1, 2, 3]


# What a stream depends on


KINDS = [
    ("static", {}),
    ("cycle", {"size": 7}),
    ("one-shot", {"size": 7, "rate": 3.5}),
    ("one-shot", {"size": 4}),
    ("window", {"size": 9, "rate": 2.5, "order": "shuffled", "repeat": True}),
]


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_only_device_tick_and_use_matter(kind: str, options: dict[str, Any]) -> None:
    """Asked in any order, by any object, a stream answers the same: nothing else is needed to resume."""
    moments = [(device, tick, used) for device in range(3) for tick in (1, 4, 9) for used in (0, 1, 5)]
    one = make(kind, **options)
    first = [rows(one, 30, tick, used, device) for device, tick, used in moments]
    again = [rows(make(kind, **options), 30, tick, used, device) for device, tick, used in reversed(moments)]
    assert again[::-1] == first


@pytest.mark.parametrize(("kind", "options"), [KINDS[1], KINDS[3], KINDS[4]])
def test_devices_and_seeds_have_orders_of_their_own(kind: str, options: dict[str, Any]) -> None:
    stream = make(kind, **options)
    found = [stream.rows(device, 30, 3, 1, seed).tolist() for device, seed in ((0, 1), (1, 1), (0, 2))]
    assert len({tuple(one) for one in found}) == 3


def test_what_streams_say_of_themselves() -> None:
    said = {name: (make(name).consumes, make(name).equal) for name in streams.names()}
    assert said == {
        "static": (False, False),
        "cycle": (True, True),
        "one-shot": (True, False),
        "window": (False, False),
    }


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"kind": "circle"}, r"^stream\.kind: unknown stream 'circle'; did you mean 'cycle'"),
        ({"kind": 3}, r"^stream\.kind: 3 is not allowed"),
        ({"kind": "cycle", "size": 0}, r"^stream\.size: 0 is not allowed"),
        ({"kind": "cycle", "size": 10**12}, r"^stream\.size: 1000000000000 is not allowed"),
        ({"kind": "window", "rate": 1e308}, r"^stream\.rate"),
        ({"kind": "cycle", "rate": 1.0}, r"^stream\.rate: cycle has no such option"),
        ({"kind": "one-shot", "rate": -1.0}, r"^stream\.rate: -1\.0 is not allowed"),
        ({"kind": "window", "rate": []}, r"^stream\.rate: "),
        ({"kind": "window", "rate": [1.0, 0.0]}, r"^stream\.rate"),
        ({"kind": "window", "order": "newest"}, r"^stream\.order: 'newest' is not allowed"),
    ],
)
def test_wrong_streams(table: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        parse({"stream": table})


# Fleets


SIZES = [5, 0, 12, 7]
CLASSES = 4


def fleet(form: str, stream: Stream | None, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    generator = numpy_generator(0, "fleet")
    x = torch.from_numpy(generator.normal(size=(sum(SIZES), 3)).astype(np.float32))
    y = torch.from_numpy(generator.integers(0, CLASSES, sum(SIZES)))
    order = generator.permutation(sum(SIZES))
    indices = [np.sort(part) for part in np.split(order, np.cumsum(SIZES)[:-1])]
    if form == "read anew":
        monkeypatch.setattr(fleets, "SMALL", 0)
    if form == "tensors":
        return TensorFleet([(x[part], y[part]) for part in indices], CLASSES, stream=stream, seed=SEED)
    dataset = Dataset("random", Split(x, y), Split(x, y), CLASSES)
    return IndexedFleet(dataset, indices, stream, SEED)


@pytest.mark.parametrize("form", ["indices", "read anew", "tensors"])
@pytest.mark.parametrize(("kind", "options"), [(None, {}), *KINDS])
def test_what_a_fleet_tells_is_what_it_gives(
    form: str, kind: str | None, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes and class counts, of one device or of several together, are those of the samples that are trained on."""
    stream = None if kind is None else make(kind, **options)
    looked = fleet(form, stream, monkeypatch)
    for tick, used in ((1, 0), (1, 1), (3, 0), (4, 2), (1, 0)):
        given_out = [looked.samples(device, tick, used) for device in range(len(SIZES))]
        for device, samples in enumerate(given_out):
            assert looked.size(device, tick, used) == len(samples)
            assert looked.pending(device, tick, used).tolist() == samples.counts.tolist()
            every = looked.whole(device)
            places = stream.rows(device, SIZES[device], tick, used, SEED) if stream else np.arange(SIZES[device])
            assert torch.equal(samples.x, every.x[torch.from_numpy(places)])
            assert torch.equal(samples.y, every.y[torch.from_numpy(places)])
        counts = sum(samples.counts for samples in given_out)
        assert looked.joint(range(len(SIZES)), tick, dict.fromkeys(range(len(SIZES)), used)).tolist() == counts.tolist()
    assert looked.joint([], 1, {}).tolist() == [0] * CLASSES


def test_both_kinds_of_fleet_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (fleet(form, make("cycle", size=6), monkeypatch) for form in ("indices", "tensors"))
    assert list(one.sizes) == list(other.sizes) == SIZES
    for device, size in enumerate(SIZES):
        assert one.counts(device).tolist() == other.counts(device).tolist()
        assert one.counts(device).sum() == size
        assert torch.equal(one.samples(device, 2, 3).x, other.samples(device, 2, 3).x)
    assert one.consumes
    assert not fleet("indices", None, monkeypatch).consumes


def test_joint_counts_take_each_device_at_its_own_use(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = fleet("indices", make("one-shot", size=3), monkeypatch)
    used = {0: 1, 2: 4}
    parts = [looked.samples(0, 1, 1), looked.samples(2, 1, 4), looked.samples(3, 1, 0)]
    assert [len(part) for part in parts] == [2, 0, 3]
    assert looked.joint([0, 2, 3], 1, used).tolist() == sum(part.counts for part in parts).tolist()
