"""The stacked table holds the same steps as each device's own plan."""

import pytest
import torch
from torch import Tensor

from remanence.core.batches import plan
from remanence.core.context import Context
from remanence.core.optimiser import Training
from remanence.data.samples import Samples
from remanence.engine.table import StepTable, step_table

SIZES = [5, 17, 1, 12, 9]


def context(epochs: int) -> Context:
    return Context(
        round=3, tick=3, rounds=9, lr=0.1, train=Training(epochs=epochs), devices=len(SIZES), classes=2, seed=4
    )


def fleet() -> list[Samples]:
    return [
        Samples(torch.arange(n * 2.0).view(n, 2) + 1000 * k, torch.zeros(n, dtype=torch.int64), 2)
        for k, n in enumerate(SIZES)
    ]


def steps_of(table: StepTable, position: int) -> list[Tensor]:
    start = sum(len(one) for one in table.data[:position])
    rows = [(rows_of(table, table.index)[step][position], weights_of(table)[step][position]) for step in steps(table)]
    return [index[weight > 0] - start for index, weight in rows[: table.counts[position]]]


def steps(table: StepTable) -> range:
    return range(len(table.widths))


def rows_of(table: StepTable, flat: Tensor) -> list[Tensor]:
    """(devices, width) of every step."""
    pieces = flat.split([width * len(table.data) for width in table.widths])
    return [piece.view(len(table.data), -1) for piece in pieces]


def weights_of(table: StepTable) -> list[Tensor]:
    return rows_of(table, table.weight)


@pytest.mark.parametrize("size", [1, 4, 5, 30])
@pytest.mark.parametrize("epochs", [1, 3])
def test_shuffled_steps_are_those_of_the_plan(size: int, epochs: int) -> None:
    ctx, data = context(epochs), fleet()
    table = step_table(size, data, range(len(SIZES)), ctx)
    for position, device in enumerate(table.order):
        alone = [ids for epoch in plan(size, SIZES[device], epochs, 4, 3, device) for ids in epoch]
        stacked = steps_of(table, position)
        assert len(stacked) == len(alone) == table.counts[position]
        for one, other in zip(stacked, alone, strict=True):
            assert one.sort().values.tolist() == other.sort().values.tolist()


def test_given_steps_are_kept() -> None:
    ctx, data = context(2), fleet()
    table = step_table(lambda device, round, epoch: [torch.arange(SIZES[device])[: epoch + 1]], data, range(5), ctx)
    for position, device in enumerate(table.order):
        assert [ids.tolist() for ids in steps_of(table, position)] == [
            [*range(min(2, SIZES[device]))],
            [*range(min(3, SIZES[device]))],
        ]


@pytest.mark.parametrize("rule", [4, "full"])
def test_weights_sum_to_one_per_device_and_step(rule: int | str) -> None:
    table = step_table(rule, fleet(), range(len(SIZES)), context(2))  # type: ignore[arg-type]
    sums = torch.stack([weight.sum(1) for weight in weights_of(table)])
    for position, count in enumerate(table.counts):
        assert torch.allclose(sums[:count, position], torch.ones(count))
        assert not sums[count:, position].any()
    assert sorted(table.counts, reverse=True) == list(table.counts)
    assert list(table.active) == [sum(count > step for count in table.counts) for step in range(table.counts[0])]


def test_batches_hold_the_samples_of_their_devices() -> None:
    table = step_table(4, fleet(), range(len(SIZES)), context(1))
    batch = table.batch(0)
    owners = (batch.x[:, 0] // 1000).view(len(SIZES), -1)[:, 0]
    assert owners.tolist() == [float(k) for k in table.order]


def test_a_step_is_as_wide_as_its_largest_batch() -> None:
    table = step_table(10, fleet()[1:2], [1], context(2))  # 17 samples: 10 and 7
    assert list(table.widths) == [10, 7, 10, 7]
    assert bool((table.weight > 0).all())
