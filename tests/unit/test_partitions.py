"""Partitions: who holds what."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remanence.core.rng import numpy_generator
from remanence.data.partition import Partition
from remanence.data.partitions import dirichlet, dirichlet_devices, shards
from remanence.errors import UserError
from remanence.registry import partitions

CIFAR = numpy_generator(0, "labels").permutation(np.repeat(np.arange(10), 5000))
MNIST = np.repeat(np.arange(10), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
NAMES = ("iid", "dirichlet", "dirichlet-devices", "shards", "natural")


def split(name: str, y: np.ndarray, devices: int, *, seed: int = 0, classes: int = 10, group=None, **values):
    rule = partitions.create(name, values, "devices")
    return rule.split(y, classes, devices, numpy_generator(seed, "partition"), group)


def assert_disjoint(parts: Partition, samples: int, devices: int) -> np.ndarray:
    """Every position at most once, ascending on each device; returns how often each occurs."""
    assert len(parts.indices) == devices
    for rows in parts.indices:
        assert rows.dtype == np.int64
        assert (np.diff(rows) > 0).all()
    seen = np.bincount(np.concatenate(parts.indices), minlength=samples)
    assert len(seen) == samples
    assert seen.max() <= 1
    return seen


def classes_held(parts: Partition, y: np.ndarray) -> np.ndarray:
    return np.array([len(np.unique(y[rows])) for rows in parts.indices])


def share_of_largest(parts: Partition, y: np.ndarray) -> float:
    return float(np.mean([np.bincount(y[rows]).max() / len(rows) for rows in parts.indices]))


labels = st.lists(st.integers(0, 4), min_size=20, max_size=120).map(np.array)
seeds = st.integers(0, 2**32)


def test_all_five_are_registered() -> None:
    assert set(NAMES) <= set(partitions.names())


# What holds for every draw


@settings(max_examples=40, deadline=None)
@given(labels, st.integers(1, 20), seeds)
def test_iid_is_complete_and_even(y: np.ndarray, devices: int, seed: int) -> None:
    parts = split("iid", y, devices, seed=seed, classes=5)
    assert assert_disjoint(parts, len(y), devices).all()
    assert parts.sizes.max() - parts.sizes.min() <= 1


@settings(max_examples=60, deadline=None)
@given(labels, st.integers(1, 20), seeds, st.sampled_from([1e-8, 1e-4, 0.05, 1.0, 1000.0]), st.booleans())
def test_dirichlet_is_complete_and_reaches_the_smallest_size(y, devices, seed, alpha, demanding) -> None:
    smallest = len(y) // devices if demanding else 0
    parts = split("dirichlet", y, devices, seed=seed, classes=5, alpha=alpha, smallest=smallest, redraws=5)
    assert assert_disjoint(parts, len(y), devices).all()
    assert parts.sizes.min() >= smallest


@settings(max_examples=60, deadline=None)
@given(labels, st.integers(1, 20), seeds, st.sampled_from([1e-8, 1e-4, 0.05, 1.0, 1000.0]))
def test_device_wise_dirichlet_is_exactly_even(y, devices, seed, alpha) -> None:
    parts = split("dirichlet-devices", y, devices, seed=seed, classes=5, alpha=alpha)
    seen = assert_disjoint(parts, len(y), devices)
    assert (parts.sizes == len(y) // devices).all()
    unused = int((seen == 0).sum())
    assert unused == len(y) % devices
    assert bool(parts.notes) == bool(unused)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(12, 40), min_size=4, max_size=4), st.integers(1, 6), st.integers(1, 2), seeds)
def test_shards_are_complete_and_count_right(sizes, quarter, per_device, seed) -> None:
    y = np.repeat(np.arange(4), sizes)
    devices = 4 * quarter
    parts = split("shards", y, devices, seed=seed, classes=4, per_device=per_device)
    assert assert_disjoint(parts, len(y), devices).all()
    assert classes_held(parts, y).max() <= per_device
    each = per_device * devices // 4
    assert parts.sizes.max() <= per_device * (max(sizes) // each + 1)
    assert parts.sizes.min() >= per_device * (min(sizes) // each)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=30, max_size=90).map(np.array), st.integers(1, 30), seeds)
def test_natural_never_divides_a_group(group: np.ndarray, devices: int, seed: int) -> None:
    devices = min(devices, len(np.unique(group)))
    parts = split("natural", np.zeros(len(group), int), devices, seed=seed, classes=1, group=group)
    assert assert_disjoint(parts, len(group), devices).all()
    held = [set(group[rows].tolist()) for rows in parts.indices]
    assert sum(map(len, held)) == len(set().union(*held))
    assert max(map(len, held)) - min(map(len, held)) <= 1


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_partition_and_another_seed_another(name: str) -> None:
    y, group = CIFAR[:2000], np.arange(2000) % 77
    first, again, other = (split(name, y, 20, seed=seed, group=group) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first.indices, again.indices, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first.indices, other.indices, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_one_device_takes_everything(name: str) -> None:
    parts = split(name, CIFAR[:200], 1, group=np.zeros(200), **({"per_device": 10} if name == "shards" else {}))
    assert np.array_equal(parts.indices[0], np.arange(200))


# The statistics of the definitions


@pytest.mark.parametrize(
    ("alpha", "smallest", "median", "largest", "held"),
    [
        (0.1, (10, 40), (400, 500), (1500, 2900), (3.8, 4.8)),
        (0.3, (25, 125), (470, 530), (950, 1700), (6.5, 7.5)),
        (0.5, (50, 225), (490, 540), (800, 1500), (7.6, 8.5)),
        (1.0, (120, 290), (495, 530), (700, 1300), (8.7, 9.3)),
    ],
)
def test_class_wise_statistics(alpha, smallest, median, largest, held) -> None:
    for seed in range(4):
        parts = split("dirichlet", CIFAR, 100, seed=seed, alpha=alpha)
        assert not parts.notes
        sizes = parts.sizes
        assert smallest[0] <= sizes.min() <= smallest[1]
        assert median[0] <= np.median(sizes) <= median[1]
        assert largest[0] <= sizes.max() <= largest[1]
        assert held[0] <= classes_held(parts, CIFAR).mean() <= held[1]


def test_class_wise_at_the_cap_is_repaired_and_says_so() -> None:
    parts = split("dirichlet", CIFAR, 100, alpha=0.05)
    assert assert_disjoint(parts, len(CIFAR), 100).all()
    assert parts.sizes.min() == 10
    assert 230 <= np.median(parts.sizes) <= 450
    assert 2.3 <= classes_held(parts, CIFAR).mean() <= 3.2
    assert len(parts.notes) == 1
    moved = int(parts.notes[0].split()[1])
    assert parts.notes[0].startswith(f"repaired: {moved} samples moved (no draw of 1000 ")
    assert 1 <= moved <= 40  # the best of many draws lacks little


def test_the_first_draw_that_reaches_the_smallest_size_is_taken() -> None:
    one, many = (split("dirichlet", CIFAR, 100, alpha=1, redraws=redraws) for redraws in (1, 1000))
    assert all(np.array_equal(a, b) for a, b in zip(one.indices, many.indices, strict=True))


@pytest.mark.parametrize("name", ["iid", "dirichlet", "dirichlet-devices"])
def test_samples_of_a_class_are_dealt_at_random(name: str) -> None:
    parts = split(name, np.zeros(4000, int), 4, classes=1)
    # Positions are uniform on 0..3999: the mean of n of them spreads by 1155 / sqrt(n).
    assert all(abs(rows.mean() - 2000) < 4 * 1155 / len(rows) ** 0.5 for rows in parts.indices)


def test_shards_of_a_class_are_dealt_at_random() -> None:
    parts = split("shards", np.zeros(4000, int), 40, classes=1, per_device=1)
    places = np.array([rows[0] // 100 for rows in parts.indices])
    assert sorted(places) == list(range(40))
    assert abs(np.corrcoef(places, np.arange(40))[0, 1]) < 0.4


def test_repair_takes_the_commonest_class_of_the_largest_device() -> None:
    counts = np.array([[9, 0, 1], [3, 1, 0]])
    assert dirichlet.repair(counts, 3) == 4
    assert counts.sum(0).tolist() == [8, 3, 3]
    assert counts[0].tolist() == [5, 2, 3]
    assert counts[1].tolist() == [3, 1, 0]


def test_class_wise_survives_underflow() -> None:
    for seed in range(5):
        parts = split("dirichlet", CIFAR, 100, seed=seed, alpha=1e-4, redraws=50)
        assert assert_disjoint(parts, len(CIFAR), 100).all()
        assert parts.sizes.min() >= 10


def test_a_class_without_share_goes_evenly_to_devices_with_room() -> None:
    """At alpha 1e-8 one device takes a whole class; once it is full a class falls to it only by this rule."""
    counts = dirichlet.draw_counts(np.array([40, 40]), 4, 1e-8, 200, numpy_generator(0, "draw"))
    assert (counts.sum(2) == 40).all()
    first, second = counts[:, 0], counts[:, 1]
    assert (first.max(1) == 40).all()
    fallen_back = second.max(1) < 40
    assert 20 <= fallen_back.sum() <= 85  # the same device is drawn again in one case of four
    # The last device takes what rounding leaves, even if it is the full one.
    assert set(map(tuple, np.sort(second[fallen_back], axis=1).tolist())) <= {
        (0, 13, 13, 14),
        (1, 13, 13, 13),
    }


def test_full_devices_take_no_more() -> None:
    counts = dirichlet.draw_counts(np.full(10, 5000), 100, 0.1, 20, numpy_generator(1, "draw"))
    before = counts.cumsum(1)[:, :-1] >= 500
    later = counts[:, 1:][before]
    assert np.quantile(later, 0.99) == 0
    assert later.max() <= 1  # what rounding leaves for the last device


def test_uneven_classes_as_in_mnist() -> None:
    parts = split("dirichlet", MNIST, 100, alpha=0.1)
    assert assert_disjoint(parts, len(MNIST), 100).all()
    assert parts.sizes.min() >= 10
    even = split("dirichlet-devices", MNIST, 100, alpha=0.05)
    assert (even.sizes == 600).all()
    dealt = split("shards", MNIST, 100)
    sizes = [np.bincount(MNIST[rows], minlength=10) for rows in dealt.indices]
    single = np.concatenate([row[row > 0] for row in sizes if (row > 0).sum() == 2])
    assert single.min() >= 271
    assert single.max() <= 338


@pytest.mark.parametrize(
    ("y", "classes", "alpha", "held", "top"),
    [
        (CIFAR, 10, 0.05, (4.3, 5.3), (0.64, 0.77)),
        (CIFAR, 10, 0.5, (8.7, 9.5), (0.32, 0.40)),
        (CIFAR, 10, 1.0, (9.6, 10), (0.25, 0.31)),
        (np.repeat(np.arange(4), 21000), 4, 0.05, (2.2, 3.2), (0.80, 0.90)),
        (np.repeat(np.arange(4), 21000), 4, 0.5, (3.6, 4), (0.54, 0.66)),
    ],
)
def test_device_wise_statistics(y, classes, alpha, held, top) -> None:
    parts = split("dirichlet-devices", y, 100, classes=classes, alpha=alpha)
    assert (parts.sizes == len(y) // 100).all()
    assert not parts.notes
    assert held[0] <= classes_held(parts, y).mean() <= held[1]
    assert top[0] <= share_of_largest(parts, y) <= top[1]


def test_random_turns_are_uniform_among_devices_with_room() -> None:
    counts = np.zeros((3, 3))
    for seed in range(3000):
        turns = dirichlet_devices.random_turns(3, 2, numpy_generator(seed, "turns"))
        assert np.bincount(turns).tolist() == [2, 2, 2]
        if turns[0] == turns[1]:  # that device is full: the other two are equally likely now
            counts[turns[0], turns[2]] += 1
    assert 900 <= counts.sum() <= 1100  # chance of a repeat: one third
    rest = counts[~np.eye(3, dtype=bool)]
    assert (np.diag(counts) == 0).all()
    assert rest.min() > 0.75 * rest.mean()


def test_device_wise_uses_uniform_chances_when_none_of_its_classes_is_left() -> None:
    table = dirichlet_devices.cumulative(np.array([[1.0, 0.0, 0.0], [0.2, 0.2, 0.6]]), np.array([0, 1, 1]) > 0)
    assert table[0] == [0.0, 0.5, 1.0]
    assert table[1] == pytest.approx([0.0, 0.25, 1.0])


@pytest.mark.parametrize(("per_device", "spread"), [(2, 0), (3, 3), (5, 0), (10, 0)])
def test_shards_of_cifar(per_device: int, spread: int) -> None:
    parts = split("shards", CIFAR, 100, per_device=per_device)
    assert abs(parts.sizes - 500).max() <= spread
    run = 5000 * 10 // (100 * per_device)
    held = np.stack([np.bincount(CIFAR[rows], minlength=10) for rows in parts.indices])
    assert (np.abs(held - run * np.rint(held / run)) <= spread).all()
    assert held.max(1).min() >= run


def test_shards_are_runs_in_file_order_and_the_first_take_the_remainder() -> None:
    assert shards.shard_numbers(11, 3).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 1]
    parts = split("shards", np.repeat([0, 1], 6), 4, classes=2, per_device=1)
    rows = sorted(map(tuple, (rows.tolist() for rows in parts.indices)))
    assert rows == [(0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)]


def test_a_device_may_get_a_class_twice() -> None:
    held = classes_held(split("shards", CIFAR, 100), CIFAR)
    assert set(held) == {1, 2}
    assert 1.75 <= held.mean() <= 1.99


def test_one_group_per_device_keeps_the_order_of_the_groups() -> None:
    group = np.array(["m9", "m1", "m5", "m1", "m9"])
    parts = split("natural", np.zeros(5, int), 3, classes=1, group=group)
    assert [rows.tolist() for rows in parts.indices] == [[1, 3], [2], [0, 4]]


@pytest.mark.parametrize("name", ["iid", "shards", "dirichlet", "dirichlet-devices"])
def test_a_hundred_devices_are_dealt_to_in_half_a_second(name: str) -> None:
    """On the processor, the best of three, so that other work on the machine does not count."""
    values = {"alpha": 0.1} if name.startswith("dirichlet") else {}
    seconds = []
    for seed in range(3):
        started = time.process_time()
        parts = split(name, CIFAR, 100, seed=seed, **values)
        seconds.append(time.process_time() - started)
        assert len(parts.indices) == 100
    assert min(seconds) < 0.5


# What users get wrong


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("devices", "words"), [(21, "21 devices, but only 20 training samples"), (0, "at least 1")])
def test_wrong_number_of_devices(name: str, devices: int, words: str) -> None:
    with pytest.raises(UserError, match=rf"^devices\.count: .*{words}"):
        split(name, np.arange(20) % 10, devices, group=np.arange(20))


def test_errors_name_the_key_and_the_numbers() -> None:
    with pytest.raises(UserError, match=r"^devices\.per_device: 7 devices x 2 = 14 shards .* 10 classes"):
        split("shards", CIFAR, 7)
    with pytest.raises(UserError, match=r"^devices\.per_device: class 2 has 1 samples for its 2 shards"):
        split("shards", np.array([0, 0, 1, 1, 2]), 3, classes=3)
    with pytest.raises(
        UserError, match=r"^devices\.smallest: 100 devices .* 1000, the training set has 500; at most 5"
    ):
        split("dirichlet", CIFAR[:500], 100)
    with pytest.raises(UserError, match=r"^devices\.count: 5 devices, but the data have only 3 groups"):
        split("natural", CIFAR[:30], 5, group=np.arange(30) % 3)
    with pytest.raises(UserError, match=r"^devices\.partition: 'natural' .* data\.group"):
        split("natural", CIFAR[:30], 5)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("dirichlet", {"alpha": 0}),
        ("dirichlet", {"alpha": -1}),
        ("dirichlet", {"alpha": float("inf")}),
        ("dirichlet", {"alpha": float("nan")}),
        ("dirichlet", {"smallest": -1}),
        ("dirichlet", {"redraws": 0}),
        ("dirichlet-devices", {"alpha": 0}),
        ("shards", {"per_device": 0}),
        ("shards", {"per_device": 2.5}),
    ],
)
def test_ranges_of_options(name: str, values: dict) -> None:
    with pytest.raises(UserError, match=rf"^devices\.{next(iter(values))}: .* is not allowed"):
        partitions.create(name, values, "devices")
