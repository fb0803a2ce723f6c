import pytest
import torch
from torch import nn

from remanence.core.optimiser import LocalOptimiser, Training
from remanence.core.vector import FlatModel, Placed
from remanence.errors import UserError


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 16, 3))


def test_parameters_are_views_in_torch_order() -> None:
    module = network()
    expected = nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    net = FlatModel(module)
    assert torch.equal(net.w[: net.size], expected)
    net.w[: net.size] = 0
    assert all(not parameter.any() for parameter in module.parameters())


def test_gradients_arrive_in_the_vector() -> None:
    net, x = FlatModel(network()), torch.randn(4, 1, 6, 6)
    net(x).sum().backward()
    reference = network()
    reference(x).sum().backward()
    assert torch.equal(net.g[: net.size], torch.cat([p.grad.flatten() for p in reference.parameters()]))
    assert not net.g[net.size :].any()


def test_buffers_live_in_the_tail_and_counters_survive() -> None:
    net = FlatModel(network())
    net.train()
    for _ in range(3):
        net(torch.randn(4, 1, 6, 6))
    kept = net.copy()
    assert len(net.w) == net.size + 2 + 2 + 1
    assert kept[net.integers].tolist() == [3.0]
    other = FlatModel(network())
    other.load(kept)
    assert int(other.module[1].num_batches_tracked) == 3
    assert torch.equal(other.module[1].running_mean, net.module[1].running_mean)


def test_frozen_parameters_have_no_gradient_and_stay() -> None:
    module = network()
    module[0].weight.requires_grad_(False)
    net = FlatModel(module)
    assert net.size == sum(p.numel() for p in module.parameters()) - 18
    net(torch.randn(4, 1, 6, 6)).sum().backward()
    assert not net.g[net.size :].any()


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(UserError, match="no trainable parameter"):
        FlatModel(nn.ReLU())


def test_parts_are_slices_of_neighbours() -> None:
    net = FlatModel(network())
    head = net.part("4")
    assert head == slice(net.size - 99, net.size)
    with pytest.raises(UserError, match="no trainable part 'head'"):
        net.part("head")


def test_places_hold_the_buffers_too() -> None:
    net = FlatModel(network())
    assert net.places("4") == [slice(net.size - 99, net.size)]
    assert net.places("0", "1") == [slice(0, 20 + 4), slice(net.size, len(net.w))]
    assert net.places("0", "4") == [slice(0, 20), slice(24, net.size)]
    assert net.places("2") == []


def test_steps_change_a_narrow_part_alone() -> None:
    net, x = FlatModel(network()), torch.randn(4, 1, 6, 6)
    before, part = net.copy(), net.part("4")
    net(x).sum().backward()
    net.narrow(part)
    LocalOptimiser(Training(weight_decay=0.5), 0.1).step(*net.trainable)
    assert torch.equal(net.w[: part.start], before[: part.start])
    assert bool((net.w[part] != before[part]).any())
    net.narrow(slice(net.size))
    assert [len(vector) for vector in net.trainable] == [net.size] * 2


def test_the_latest_logits_are_there_without_a_gradient() -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.head = nn.Linear(2, 3), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.features(x))

    net, x = FlatModel(Halves()), torch.randn(4, 2)
    first = net(x)
    assert torch.equal(net.logits, first)
    assert not net.logits.requires_grad
    features = net.features(2 * x)
    assert torch.equal(net.logits, first)
    second = net.head(features)
    assert torch.equal(net.logits, second)


def test_a_network_is_told_where_it_stands() -> None:
    class Shy(Placed):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale * x + self.device

    net = FlatModel(Shy())
    assert net(torch.zeros(1)).item() == -1
    net.stand(7)
    assert net(torch.zeros(1)).item() == 7
    plain = FlatModel(nn.Linear(1, 1))
    plain.module.device = "cpu"  # of the user's own
    plain.stand(7)
    assert plain.module.device == "cpu"


def test_layout_tells_models_apart() -> None:
    assert FlatModel(network()).layout == FlatModel(network()).layout
    assert FlatModel(network()).layout != FlatModel(nn.Linear(2, 2)).layout


def test_bfloat16_answers_in_float32_and_keeps_the_weights() -> None:
    net = FlatModel(network(), bfloat16=True)
    x = torch.randn(4, 1, 6, 6)
    answer = net(x)
    assert answer.dtype == torch.float32
    assert net.w.dtype == torch.float32
    assert torch.allclose(answer, FlatModel(network())(x), atol=0.05)
