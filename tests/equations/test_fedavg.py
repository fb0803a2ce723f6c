"""FedAvg: the identities of its card, and its pitfalls."""

from typing import Any

import by_hand
import numpy as np
import pytest
import torch
from paired import TRAINING, WITH_MOMENTUM, distance, flat, simulated, world
from torch import Tensor, nn
from worlds import (
    ONE_BY_ONE,
    SIZES,
    RecordedFedAvg,
    SlopeFedAvg,
    Upload,
    classification,
    near,
    normalised_model,
    planned,
    played,
    same_bits,
    slope_device,
    softmax_model,
    vector_model,
)

import remanence
from remanence.measure.record import digest

SCALARS = [slope_device(-1.0), slope_device(-2.0), slope_device(-4.0, samples=2)]  # at lr 1: w = 1, 2, 4


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
def test_rounds_equal_the_equations(settings: dict[str, Any], engine: dict[str, Any]) -> None:
    result = simulated("fedavg", engine=engine, **settings)
    assert distance(result.weights, by_hand.fedavg(world(**settings))) < 1e-6


def test_uniform_weights_equal_the_equations(engine: dict[str, Any]) -> None:
    result = simulated("fedavg", merge="uniform", engine=engine)
    assert distance(result.weights, by_hand.fedavg(world(uniform=True))) < 1e-6
    assert distance(result.weights, by_hand.fedavg(world())) > 1e-3


def test_one_device_is_taken_bit_for_bit(uploads: list[Upload]) -> None:
    result = simulated(RecordedFedAvg(), **TRAINING | {"participation": [[1]]})
    assert same_bits(result.weights, uploads[0].content["w"])


def test_one_answer_of_many_is_taken_bit_for_bit(engine: dict[str, Any], uploads: list[Upload]) -> None:
    """Sample counts that are no powers of two must not round."""
    empty = (torch.empty(0, 4), torch.empty(0, dtype=torch.int64))
    devices = [empty, classification()[0], empty]
    result = remanence.simulate(RecordedFedAvg(), model=softmax_model(), devices=devices, engine=engine)
    assert result.history[0]["counted"] == [1]
    assert same_bits(result.weights, uploads[0].content["w"])


@pytest.mark.parametrize("copies", [3, 4, 7])
def test_equal_models_average_to_themselves(copies: int, uploads: list[Upload]) -> None:
    devices = [classification()[0]] * copies
    result = remanence.simulate(RecordedFedAvg(), model=softmax_model(), devices=devices, engine=ONE_BY_ONE)
    assert len({digest(upload.content["w"]) for upload in uploads}) == 1
    assert same_bits(result.weights, uploads[0].content["w"])


def test_scalars(engine: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"model": vector_model(0.0), "devices": SCALARS, "lr": 1.0, "engine": engine}
    weighted = remanence.simulate(SlopeFedAvg(), **settings)
    assert near(weighted.weights, 2.75)
    assert weighted.history[0]["largest_weight"] == 0.5
    assert near(remanence.simulate(SlopeFedAvg(), merge="uniform", **settings).weights, 7 / 3)


def test_weights_sum_to_one(engine: dict[str, Any]) -> None:
    devices = [slope_device(-1.0, samples=n) for n in (1, 3, 7, 13, 111)]
    settings: dict[str, Any] = {"model": vector_model(0.0), "devices": devices, "lr": 1.0, "engine": engine}
    for merge in ("mean", "uniform"):
        assert near(remanence.simulate(SlopeFedAvg(), merge=merge, **settings).weights, 1.0)


def test_the_average_lies_between_the_models(engine: dict[str, Any], uploads: list[Upload]) -> None:
    result = simulated(RecordedFedAvg(), **TRAINING | {"participation": [[0, 1, 2, 3]], "engine": engine})
    rows = torch.stack([upload.content["w"] for upload in uploads])
    assert bool((rows.min(0).values <= result.weights).all())
    assert bool((result.weights <= rows.max(0).values).all())


def test_one_full_step_is_gradient_descent_on_all_samples(engine: dict[str, Any]) -> None:
    devices, start = classification(), flat(*softmax_model().parameters())
    result = remanence.simulate("fedavg", model=softmax_model(), devices=devices, lr=0.1, engine=engine)
    x = torch.cat([x for x, _ in devices]).double().numpy()
    y = torch.cat([y for _, y in devices]).numpy()
    assert distance(result.weights, start - 0.1 * by_hand.gradient(start, x, y, 3)) < 1e-6


@pytest.mark.parametrize(("lr", "last"), [(0.01, 0.00135333), (0.1, 0.0135333)])
def test_rate_of_round_200(lr: float, last: float) -> None:
    result = remanence.simulate(
        SlopeFedAvg(), model=vector_model(0.0), devices=SCALARS, rounds=200, lr=lr, lr_decay=0.99
    )
    rates = [event["lr"] for event in result.history]
    assert rates[0] == lr
    assert near(rates[199], last, within=5e-9)


def test_the_rate_falls_in_rounds_without_answers_too() -> None:
    settings: dict[str, Any] = {"model": vector_model(0.0), "devices": SCALARS, "lr": 1.0, "lr_decay": 0.5}
    result = remanence.simulate(SlopeFedAvg(), rounds=3, participation=[[0], [], [0]], **settings)
    assert [event["lr"] for event in result.history] == [1.0, 0.5, 0.25]
    assert near(result.weights, 1.25)


def shuffled(**settings: Any) -> str:
    """The digest of a run that draws devices and batches."""
    chosen: dict[str, Any] = {"batches": 3, "epochs": 2, "rounds": 3, "participation": 4, "seed": 5} | settings
    result = remanence.simulate(model=softmax_model(), devices=classification(SIZES * 2), **chosen)
    return digest(result.weights)


def test_same_seed_same_bits(engine: dict[str, Any]) -> None:
    assert shuffled(engine=engine) == shuffled(engine=engine)
    assert shuffled(engine=engine) != shuffled(engine=engine, seed=6)


def test_one_and_four_workers_give_the_same_bits() -> None:
    assert shuffled(engine=ONE_BY_ONE) == shuffled(engine={"cohort": "off", "workers": 4})


def test_devices_are_summed_in_the_order_of_their_numbers(engine: dict[str, Any]) -> None:
    forth = simulated("fedavg", engine=engine, participation=[[0, 1, 2, 3], [0, 2, 3]])
    back = simulated("fedavg", engine=engine, participation=[[3, 1, 0, 2], [3, 0, 2]])
    assert same_bits(forth.weights, back.weights)


def test_the_order_of_the_sum_is_ascending(engine: dict[str, Any]) -> None:
    """1e30 and -1e30 cancel before the 1 of device 2 is added; in any other order the 1 is lost."""
    devices = [slope_device(-1e30), slope_device(1e30), slope_device(-1.0)]
    result = remanence.simulate(
        SlopeFedAvg(), model=vector_model(0.0), devices=devices, participation=[[2, 0, 1]], lr=1.0, engine=engine
    )
    assert near(result.weights, 1 / 3)


def test_selection_is_without_replacement() -> None:
    result = remanence.simulate(SlopeFedAvg(), model=vector_model(0.0), devices=SCALARS * 3, rounds=60, participation=4)
    selected = [event["selected"] for event in result.history]
    assert all(len(set(row)) == 4 for row in selected)
    counts = np.bincount(np.concatenate(selected), minlength=9)
    assert counts.min() >= 12  # 26.7 expected; five standard deviations are 19
    assert counts.max() <= 42


def test_momentum_starts_afresh_every_round(engine: dict[str, Any], uploads: list[Upload]) -> None:
    """Gradient -1, momentum 0.9: three steps move by 1 + 1.9 + 2.71 in every round, not further in the second."""
    result = remanence.simulate(
        SlopeFedAvg(), model=vector_model(0.0), devices=SCALARS[:1] * 2, rounds=2, epochs=3, lr=1.0,
        momentum=0.9, engine=engine,
    )  # fmt: skip
    assert near(uploads[0].content["w"], 5.61)
    assert near(result.weights, 11.22)


def test_weight_decay_enters_the_momentum(engine: dict[str, Any]) -> None:
    """v = 0.9 v + g + 0.5 w, from w = 2 with gradient 1: v = 2, w = 1.8; then v = 3.7, w = 1.43."""
    result = remanence.simulate(
        SlopeFedAvg(), model=vector_model(2.0), devices=[slope_device(1.0)] * 2, epochs=2, lr=0.1,
        momentum=0.9, weight_decay=0.5, engine=engine,
    )  # fmt: skip
    assert near(result.weights, 1.43)


@pytest.mark.parametrize(("samples", "steps"), [(1, 1), (3, 1), (4, 1), (5, 2), (9, 3)])
def test_small_batches_are_kept(samples: int, steps: int, engine: dict[str, Any], uploads: list[Upload]) -> None:
    """Two epochs of ceil(n / 4) steps, also for a device with fewer samples than a batch."""
    devices = [slope_device(-1.0, samples=samples), slope_device(-1.0, samples=4)]
    remanence.simulate(
        SlopeFedAvg(), model=vector_model(0.0), devices=devices, lr=1.0, epochs=2, batches=4, engine=engine
    )
    (upload,) = [upload for upload in uploads if upload.device == 0]
    assert upload.steps == 2 * steps
    assert near(upload.content["w"], 2.0 * steps)


def batch_norm_run(sizes: tuple[int, ...], uploads: list[Upload], **settings: Any) -> remanence.simulation.Simulation:
    return remanence.simulate(
        RecordedFedAvg(), model=normalised_model(), devices=classification(sizes), batches=2,
        engine=ONE_BY_ONE, **settings,
    )  # fmt: skip


def test_batch_normalisation_never_sees_one_sample(uploads: list[Upload]) -> None:
    result = batch_norm_run((5, 4, 1), uploads)
    assert {upload.device: upload.steps for upload in uploads} == {0: 2, 1: 2}
    assert result.history[0]["refused"] == {"2": "one sample: batch norm needs two"}


def test_floating_buffers_are_averaged_and_integer_buffers_take_the_maximum(uploads: list[Upload]) -> None:
    sizes = (2, 6, 4)
    result = batch_norm_run(sizes, uploads, epochs=2)
    state = result.model.state_dict()
    assert int(state["1.num_batches_tracked"]) == 6
    rows = torch.stack([upload.content["w"].double() for upload in sorted(uploads, key=lambda u: u.device)])
    average = (torch.tensor(sizes, dtype=torch.float64) / sum(sizes)) @ rows
    variance = result.model[1].running_var
    assert float((result.weights[:-1].double() - average[:-1]).abs().max()) < 1e-6
    assert float((variance - 1).abs().max()) > 0.01
    assert same_bits(result.weights[-4:-1], variance)


def test_counters_go_on_from_the_maximum(uploads: list[Upload]) -> None:
    result = batch_norm_run((2, 6, 4), uploads, rounds=2)
    assert result.model.state_dict()["1.num_batches_tracked"].dtype == torch.int64
    assert int(result.model.state_dict()["1.num_batches_tracked"]) == 6


def test_nothing_is_averaged_in_place() -> None:
    model = softmax_model()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    plan = planned("fedavg", model=model, devices=classification(), rounds=3)
    federation = played(plan)
    assert not same_bits(federation.w[:12], before[0].reshape(-1))
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


def overflowing(devices: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Device 1 ends at an infinite w."""
    return [devices[0], slope_device(-3e38), *devices[2:]]


def test_models_that_are_not_finite_are_refused_and_counted(engine: dict[str, Any]) -> None:
    result = remanence.simulate(
        SlopeFedAvg(), model=vector_model(0.0), devices=overflowing(SCALARS), epochs=2, lr=1.0, engine=engine
    )
    assert result.history[0]["counted"] == [0, 2]
    assert result.history[0]["refused"] == {"1": "'w' is not finite"}
    assert result.summary["refused"] == 1
    assert near(result.weights, 2 * (1 * 1 + 2 * 4) / 3)  # the survivors' weights: 1/3 and 2/3


def test_the_loss_of_a_round_is_over_those_who_were_counted(engine: dict[str, Any]) -> None:
    """Losses of the two steps: 0 and -1 on device 0, 0 and -16 on device 2; device 1 overflows."""
    result = remanence.simulate(
        SlopeFedAvg(), model=vector_model(0.0), devices=overflowing(SCALARS), epochs=2, lr=1.0, engine=engine
    )
    assert near(result.history[0]["loss"], -4.25)


def test_the_model_may_be_any_module() -> None:
    """Not only stackable chains: the same equations for a model with its own forward."""

    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight

    result = remanence.simulate(SlopeFedAvg(), model=Product(), devices=SCALARS, lr=1.0)
    assert near(result.weights, 2.75)
