"""What users bring to `remanence.simulate`, and what they are told when it does not fit."""

from typing import Any

import numpy as np
import pytest
import torch

import remanence
from remanence.methods.scaffold import Scaffold
from remanence.parts.optimise.adaptive import FedAdam
from remanence.simulation import Simulation


def devices() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(n, 4, generator=generator), torch.randint(0, 3, (n,), generator=generator)) for n in (5, 9, 7)]


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Linear(4, 3)


def simulate(**settings: Any) -> Simulation:
    return remanence.simulate(**{"model": model(), "devices": devices(), "rounds": 3, **settings})


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"batches": "half"}, "simulate.batch: 'half' is not allowed"),
        ({"rounds": 0}, "rounds: 0 is not allowed"),
        ({"devices": []}, "devices: at least one"),
        ({"devices": [3]}, "device 0: must be a pair"),
        ({"devices": [(torch.randn(0, 4), torch.zeros(0))]}, "none of them has a sample"),
        ({"devices": [*devices(), (torch.randn(2, 5), [0, 1])]}, r"device 3: samples of shape \(5,\)"),
        ({"devices": [(torch.full((2, 4), torch.nan), [0, 1])]}, "8 of 8 input values are not finite"),
        ({"devices": [(torch.randn(2, 4), [0, 3])]}, "label 3 is outside the classes 0..2"),
        ({"test": (torch.randn(3, 5), [0, 1, 2])}, "test: samples of shape"),
        ({"participation": 4}, "4 devices per round is not allowed"),
        ({"participation": [[0, 7]] * 3}, "there is no device 7"),
        ({"participation": [[0, 0]] * 3}, "named twice"),
        ({"participation": [[0]]}, "1 lists for 3 rounds"),
        ({"method": "scafold"}, "did you mean 'scaffold'"),
        ({"method": "fedadam", "options": {"beta": 1}}, "did you mean 'beta2'"),
        ({"method": "fedadam", "optimise": "fedyogi"}, "optimise: 'fedyogi' is not allowed with method 'fedadam'"),
        ({"method": Scaffold(), "options": {"eta_g": 1}}, "options: must be empty"),
        ({"method": "scaffold", "optimiser": "adam"}, "scaffold counts steps of SGD"),
        ({"method": "fednova", "options": {"mu": 10.1}}, "lr \\* mu must be at most 1"),
        ({"select": 3}, "select: 3 is not a name"),
        ({"optimise": ("fedadam", 3)}, "optimise: .* is not a name"),
        ({"participation": [0, 1]}, "participation: must be a list of devices per round"),
        ({"method": None}, "method: None is not allowed"),
        ({"options": [1]}, "options: .* is not allowed"),
        ({"model": {}}, "model: a dict is not allowed"),
        ({"devices": {}}, "devices: a dict is not allowed"),
        ({"test": (torch.randn(0, 4), [])}, "test: it has no samples"),
        ({"seed": -1}, "seed: -1 is not allowed"),
        ({"batches": lambda *_: [torch.tensor([9])]}, "batches: device . was given"),
        ({"batches": lambda *_: 3}, "batches: device . was not given a list"),
    ],
)
def test_mistakes_are_one_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(remanence.UserError, match=line) as caught:
        simulate(**settings)
    assert len(str(caught.value).splitlines()) == 1


def test_parts_may_be_named_in_four_ways() -> None:
    results = [
        simulate(method="fedadam", options={"eta": 0.02}),
        simulate(optimise={"name": "fedadam", "eta": 0.02}),
        simulate(optimise=("fedadam", {"eta": 0.02})),
        simulate(optimise=FedAdam(eta=0.02)),
    ]
    assert all(torch.equal(result.weights, results[0].weights) for result in results)


def test_arrays_lists_and_tensors_give_the_same() -> None:
    plain = simulate()
    arrays = simulate(devices=[(x.numpy(), y.numpy()) for x, y in devices()])
    lists = simulate(devices=[(x.tolist(), y.tolist()) for x, y in devices()])
    assert torch.equal(plain.weights, arrays.weights)
    assert torch.equal(plain.weights, lists.weights)


def test_the_users_model_and_random_state_are_left_alone() -> None:
    mine, before = model(), model()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    result = remanence.simulate(model=mine, devices=devices(), rounds=2)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(mine.weight, before.weight)
    assert not torch.equal(result.model.weight, before.weight)
    assert torch.equal(torch.nn.utils.parameters_to_vector(result.model.parameters()), result.weights)


def test_a_device_that_never_took_part_shows_its_start() -> None:
    result = simulate(method="scaffold", participation=[[0, 1]] * 3)
    assert not result.device_state[2]["c"].any()
    assert result.device_state[0]["c"].any()
    assert len(result.device_state) == 3


@pytest.mark.parametrize("cohort", ["on", "off"])
def test_a_device_without_a_step_is_as_if_it_had_not_taken_part(cohort: str) -> None:
    def rule(device: int, round: int, epoch: int) -> list[torch.Tensor]:
        return [] if device == 1 and round == 2 else [torch.arange(5)]

    net = torch.nn.Sequential(model())
    result = simulate(method="scaffold", model=net, batches=rule, engine={"cohort": cohort})
    assert [event["counted"] for event in result.history] == [[0, 1, 2], [0, 2], [0, 1, 2]]
    assert result.history[1]["refused"] == {"1": "no samples to train on"}


def test_a_quorum_is_counted_exactly() -> None:
    many = [(torch.randn(2, 4), torch.tensor([0, 1])) for _ in range(100)]
    result = simulate(devices=many, rounds=1, engine={"quorum": 0.07})
    assert len(result.history[0]["counted"]) == 7


def test_batch_normalisation_refuses_batches_of_one() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3))
    with pytest.raises(remanence.UserError, match=r"train\.batch: 1 is not allowed"):
        remanence.simulate(model=net, devices=devices(), batches=1)


@pytest.mark.parametrize("workers", [1, 2])
def test_batch_normalisation_refuses_a_given_step_of_one_sample(workers: int) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3))
    settings: dict[str, Any] = {"model": net, "engine": {"workers": workers, "cohort": "off"}}
    with pytest.raises(remanence.UserError, match=r"^batches: device . was given a step of one sample; batch norm"):
        simulate(batches=lambda *_: [torch.tensor([0, 1]), torch.tensor([2])], **settings)
    result = simulate(batches=lambda *_: [torch.tensor([0, 1]), torch.tensor([2, 2])], **settings)
    assert [event["counted"] for event in result.history] == [[0, 1, 2]] * 3


def test_steps_of_one_sample_are_fine_without_batch_normalisation() -> None:
    result = simulate(batches=lambda *_: [torch.tensor([0]), torch.tensor([2])])
    assert [event["counted"] for event in result.history] == [[0, 1, 2]] * 3


class Words(torch.nn.Module):
    """Looks its inputs up, for which torch wants whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors, self.head = torch.nn.Embedding(9, 5), torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.vectors(x).mean(1))


def sentences(samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Words 3c, 3c + 1 and 3c + 2 are those of class c."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(samples) % 3
    return 3 * y[:, None] + torch.randint(0, 3, (samples, 4), generator=generator), y


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedcurv", "fedawac"])
def test_a_model_may_read_token_numbers(method: str) -> None:
    torch.manual_seed(1)
    net, devices = Words(), [sentences(12, seed) for seed in range(3)]
    settings: dict[str, Any] = {"model": net, "test": sentences(30, 9), "public": sentences(5, 8)[0], "lr": 0.5}
    result = simulate(method=method, devices=devices, rounds=20, epochs=3, **settings)
    assert result.summary["accuracy"] == 1.0
    assert result.history[-1]["loss"] < 0.5 * result.history[0]["loss"]


@pytest.mark.parametrize("kind", [list, np.array, torch.Tensor.int, torch.Tensor.float], ids=str)
def test_token_numbers_may_come_in_any_usual_form(kind: Any) -> None:
    torch.manual_seed(1)
    settings: dict[str, Any] = {"model": Words(), "rounds": 2}
    devices = [sentences(12, seed) for seed in range(3)]
    plain = simulate(devices=devices, **settings)
    changed = [(kind(x.tolist()) if kind in (list, np.array) else kind(x), y) for x, y in devices]
    assert torch.equal(simulate(devices=changed, **settings).weights, plain.weights)


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_a_model_of_quantities_may_be_given_whole_numbers(kind: torch.dtype) -> None:
    whole = [(x.round().abs().to(kind), y) for x, y in devices()]
    result = simulate(devices=whole, test=whole[0])
    expected = simulate(devices=[(x.float(), y) for x, y in whole], test=(whole[0][0].float(), whole[0][1]))
    assert torch.equal(result.weights, expected.weights)
    assert result.summary == expected.summary


def test_a_model_that_reads_neither_says_what_is_wrong_with_quantities() -> None:
    with pytest.raises(remanence.UserError, match=r"^model: it does not take samples of shape \(4,\): mat1 and mat2"):
        simulate(model=torch.nn.Linear(7, 3))


def test_devices_may_be_made_on_demand() -> None:
    class Lazy:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, device: int) -> tuple[np.ndarray, np.ndarray]:
            if device not in range(3):
                raise IndexError
            x, y = devices()[device]
            return x.numpy(), y.numpy()

    assert torch.equal(simulate(devices=Lazy()).weights, simulate().weights)


@pytest.mark.parametrize(
    "steps",
    [
        [[0, 1], [2]],
        [np.array([0, 1]), np.array([2])],
        [torch.tensor([0, 1], dtype=torch.int32), torch.tensor([2])],
    ],
    ids=["lists", "arrays", "int32"],
)
@pytest.mark.parametrize("cohort", ["auto", "off"])
def test_batches_may_come_in_any_usual_form(steps: Any, cohort: str) -> None:
    plain = [torch.tensor([0, 1]), torch.tensor([2])]
    net, engine = torch.nn.Sequential(model()), {"cohort": cohort}
    given = simulate(model=net, batches=lambda *_: iter(steps), engine=engine)
    assert torch.equal(given.weights, simulate(model=net, batches=lambda *_: plain, engine=engine).weights)


def test_options_of_a_combination_may_stand_at_its_part() -> None:
    one = simulate(method="fedadam", optimise={"name": "none", "beta1": 0.5})
    assert torch.equal(one.weights, simulate(method="fedadam", options={"beta1": 0.5}).weights)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"sites": [[0, 1, 2], []]}, "a site without devices"),
        ({"public": torch.zeros(0, 4), "merge": "consistency"}, r"public: inputs of shape \(0, 4\)"),
        ({"public": torch.zeros(3, 9), "merge": "consistency"}, r"public: inputs of shape \(3, 9\)"),
        ({"select": {"name": "best-swap", "random": 3}, "participation": 2}, "select.random: 3 is not allowed"),
        ({"select": "best-swap", "participation": [[0], [1], [2]]}, "lists are not allowed with select 'best-swap'"),
        ({"engine": 3}, "engine: 3 is not allowed"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_would_train_nothing_or_fail_late_is_refused(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(remanence.UserError, match=line):
        simulate(**settings)


def test_everyone_of_unequal_sites_takes_part() -> None:
    result = simulate(topology="sites", sites=[[0, 1], [2]])
    assert all(event["counted"] == [0, 1, 2] for event in result.history)


def test_rounds_without_data_are_told() -> None:
    result = simulate(stream={"kind": "one-shot", "size": 5, "order": "file"})  # 5, 9 and 7 samples: two rounds
    assert result.summary["idle_rounds"] == 1
