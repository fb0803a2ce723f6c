"""FedGA: the identities of its card, and its pitfalls."""

from typing import Any

import by_hand
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from paired import TRAINING, WITH_MOMENTUM, distance, simulated, world
from torch import Tensor, nn
from worlds import (
    ONE_BY_ONE,
    Recorded,
    Upload,
    classification,
    near,
    same_bits,
    softmax_model,
)

import remanence
from remanence.core.context import Context
from remanence.core.optimiser import Training
from remanence.core.vector import FlatModel
from remanence.data.samples import Batch
from remanence.methods.fedga import FedGA, targets
from remanence.simulation import Simulation

CONTEXT = Context(round=1, rounds=1, lr=0.1, train=Training(), devices=1, classes=3)
VARIANTS = ("code", "aligned")

# The card's batch: counts (4, 2, 0), its two samples with y = 0 and y = 1 among others.
LABELS = torch.tensor([0, 1, 0, 0, 1, 0])
LOGITS = torch.tensor([[1.0, 0.5, -0.2], [0.0, 1.0, 0.3]]).repeat(3, 1)


class RecordedFedGA(Recorded, FedGA):
    pass


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def losses_and_slopes(variant: str, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of every sample of a batch, and its gradient by the sample's logits."""
    z, net = z.clone().requires_grad_(), nn.Identity()
    losses = FedGA(variant=variant).loss(net, Batch(z, y, torch.arange(len(y))), {}, CONTEXT)  # type: ignore[arg-type]
    losses.sum().backward()
    assert z.grad is not None
    return losses.detach(), z.grad


def slopes(variant: str, z: Tensor, y: Tensor) -> Tensor:
    return losses_and_slopes(variant, z, y)[1]


def drawn(seed: int, samples: int = 12, classes: int = 5) -> tuple[Tensor, Tensor]:
    """Logits and skewed labels; the last class is absent."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes - 1, (2, samples), generator=generator).amin(0)
    return 2 * torch.randn(samples, classes, generator=generator), labels


@pytest.mark.parametrize("settings", [TRAINING, WITH_MOMENTUM], ids=["plain", "momentum-and-decay"])
def test_rounds_equal_the_equations(variant: str, settings: dict[str, Any]) -> None:
    result = simulated("fedga", {"variant": variant}, engine=ONE_BY_ONE, **settings)
    assert distance(result.weights, by_hand.fedga(world(**settings), variant)) < 2e-6
    assert distance(result.weights, by_hand.fedavg(world(**settings))) > 1e-3


def test_uniform_weights_equal_the_equations(variant: str) -> None:
    result = simulated("fedga", {"variant": variant}, merge="uniform", engine=ONE_BY_ONE)
    assert distance(result.weights, by_hand.fedga(world(uniform=True), variant)) < 2e-6
    assert distance(result.weights, by_hand.fedga(world(), variant)) > 1e-3


CARD = {
    0: {
        "p": (0.524185, 0.317934, 0.157881),
        "t": (1.0, 0.158967, 0.157881),
        "code": (-0.309728, 0.259704, 0.050024),
        "aligned": (-0.475815, 0.158967, 0.0),
    },
    1: {
        "p": (0.197311, 0.536347, 0.266342),
        "t": (-0.197311, 1.0, 0.266342),
        "code": (0.408243, -0.426628, 0.018386),
        "aligned": (0.394622, -0.463653, 0.0),
    },
}


@pytest.mark.parametrize("sample", CARD)
def test_targets_of_the_worked_samples(sample: int) -> None:
    p = LOGITS.softmax(1)
    assert near(p[sample], *CARD[sample]["p"])
    assert near(targets(p, LABELS)[sample], *CARD[sample]["t"])
    assert near(targets(p, LABELS)[0].sum(), 1.316848)


@pytest.mark.parametrize("sample", CARD)
def test_gradients_of_the_worked_samples(sample: int, variant: str) -> None:
    assert near(slopes(variant, LOGITS, LABELS)[sample], *CARD[sample][variant])


def test_the_default_is_the_published_code() -> None:
    assert FedGA().variant == "code"


@pytest.mark.parametrize("seed", range(5))
def test_gradients_equal_the_equations(seed: int, variant: str) -> None:
    """A gradient that also flowed through p inside t would be another."""
    z, y = drawn(seed)
    p = z.double().softmax(1).numpy()
    expected = by_hand.calibrated_slope(p, y.numpy(), variant)
    assert float(np.abs(slopes(variant, z, y).double().numpy() - expected).max()) < 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_the_loss_is_cross_entropy_with_the_targets(seed: int) -> None:
    """Also where targets are negative, of which a divergence would take the logarithm."""
    z, y = drawn(seed)
    t = targets(z.softmax(1), y)
    assert float(t.min()) < 0
    losses, _ = losses_and_slopes("code", z, y)
    assert near(losses, *(-(t.double() * z.double().log_softmax(1)).sum(1)).tolist(), within=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_signs_of_the_targets(seed: int) -> None:
    """t_y = 1; t_j = p_j of an absent class; negative exactly where the class has more samples than y."""
    z, y = drawn(seed)
    p, counts = z.softmax(1), torch.bincount(y, minlength=5)
    t = targets(p, y)
    others = torch.arange(5) != y.unsqueeze(1)
    assert bool((t[~others] == 1).all())
    assert same_bits(t[:, 4], p[:, 4])
    assert torch.equal((t < 0)[others], (counts > counts[y].unsqueeze(1))[others])


@pytest.mark.parametrize("seed", range(5))
def test_only_gradients_of_the_code_sum_to_zero(seed: int) -> None:
    z, y = drawn(seed)
    assert float(slopes("code", z, y).sum(1).abs().max()) < 1e-6
    assert float(slopes("aligned", z, y).sum(1).abs().max()) > 1e-2


def test_equal_counts_of_all_classes_are_fedavg(variant: str) -> None:
    z, _ = drawn(0, samples=10)
    y = torch.arange(5).repeat(2)
    assert torch.equal(targets(z.softmax(1), y), F.one_hot(y, 5).float())
    free = z.clone().requires_grad_()
    plain = F.cross_entropy(free, y, reduction="none")
    plain.sum().backward()
    losses, gradient = losses_and_slopes(variant, z, y)
    assert free.grad is not None
    assert float((gradient - free.grad).abs().max()) < 1e-6
    if variant == "code":
        assert float((losses - plain.detach()).abs().max()) < 1e-6


def test_one_class_only(variant: str) -> None:
    z, _ = drawn(1)
    y = torch.full((len(z),), 2)
    p = z.softmax(1)
    others = torch.arange(5) != 2
    assert same_bits(targets(p, y)[:, others].contiguous(), p[:, others].contiguous())
    gradient = slopes("aligned", z, y)
    assert bool((gradient[:, others] == 0).all())
    assert float((gradient[:, 2] - (p[:, 2] - 1)).abs().max()) < 1e-6


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e30])
def test_absent_classes_and_large_logits_stay_finite(scale: float, variant: str) -> None:
    z, y = drawn(2)
    losses, gradient = losses_and_slopes(variant, scale * z, y)
    assert bool(gradient.isfinite().all())
    assert bool(losses.isfinite().all())


def trained(method: str, labels: list[int], batches: list[list[int]], **options: str) -> Simulation:
    """One device with these labels and batches."""
    x = classification((len(labels),))[0][0]
    steps = [torch.tensor(ids) for ids in batches]
    return remanence.simulate(
        method, options, model=softmax_model(), devices=[(x, torch.tensor(labels))], epochs=2, lr=0.5,
        batches=lambda device, round, epoch: steps, engine=ONE_BY_ONE,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "batches", "same"),
    [
        ([0, 0, 0, 1, 2], [[0, 3, 4], [4, 1, 3]], True),  # skewed device, balanced batches
        ([0, 0, 0, 1, 2], [[0, 1, 2, 3, 4]], False),
        ([0, 1, 2, 0, 1, 2], [[0, 1, 2, 3, 4, 5]], True),  # the same balanced device in batches of 6 and of 2
        ([0, 1, 2, 0, 1, 2], [[0, 1], [2, 3], [4, 5]], False),
    ],
    ids=["skewed-balanced", "skewed-full", "balanced-full", "balanced-small"],
)
def test_the_counts_are_those_of_the_batch(
    labels: list[int], batches: list[list[int]], same: bool, variant: str
) -> None:
    calibrated, plain = trained("fedga", labels, batches, variant=variant), trained("fedavg", labels, batches)
    difference = float((calibrated.weights - plain.weights).abs().max())
    assert difference < 1e-6 if same else difference > 1e-2


def test_absent_classes_are_not_pushed_down() -> None:
    """A device with classes 0 and 1 leaves the row and the bias of class 2 as they were."""
    start, ids = FlatModel(softmax_model()).w, [[0, 1, 2, 3, 4]]
    aligned = trained("fedga", [0, 0, 0, 1, 1], ids, variant="aligned").weights
    assert same_bits(aligned[8:12], start[8:12])
    assert same_bits(aligned[14:], start[14:])
    pushed = [trained(name, [0, 0, 0, 1, 1], ids).weights for name in ("fedga", "fedavg")]
    assert all(not same_bits(w[8:12], start[8:12]) for w in pushed)


def test_devices_send_and_keep_what_they_do_in_fedavg(uploads: list[Upload]) -> None:
    """No histogram leaves a device."""
    result = simulated(RecordedFedGA(), engine=ONE_BY_ONE)
    plain = simulated("fedavg", engine=ONE_BY_ONE)
    assert {tuple(upload.content) for upload in uploads} == {("w", "n")}
    assert result.server_state == {}
    assert all(result.device_state[device] == {} for device in result.device_state)
    for one, other in zip(result.history, plain.history, strict=True):
        assert (one["bytes_down"], one["bytes_up"]) == (other["bytes_down"], other["bytes_up"])
