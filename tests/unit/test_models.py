"""The models: counts worked out by hand, the two halves, gradients, memory formats, starts, errors."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from remanence.errors import UserError
from remanence.models.classifier import Classifier
from remanence.registry import models

IMAGE_MODELS = [
    ("mlp", {}),
    ("simple-cnn", {}),
    ("simple-cnn", {"padded": False}),
    ("femnist-cnn", {}),
    ("lenet5", {}),
    ("resnet10", {"norm": "bn"}),
    ("resnet10", {"norm": "bn_nostats"}),
    ("resnet10", {"norm": "gn2"}),
    ("vgg11", {}),
    ("mobilenet", {"norm": "bn"}),
    ("mobilenet", {"norm": "bn_nostats"}),
    ("mobilenet", {"norm": "gn2"}),
]
NORMS = ["bn", "bn_nostats", "gn2"]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(name: str, shape: tuple[int, ...], classes: int, seed: int = 1, **values: object) -> Classifier:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return models.create(name, values).build(shape, classes)


def noise(*shape: int, seed: int = 2) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def count(name: str, shape: tuple[int, ...], classes: int, **values: object) -> int:
    with torch.device("meta"):  # shapes without memory or time
        model = models.create(name, values).build(shape, classes)
    return sum(parameter.numel() for parameter in model.parameters())


# ---------------------------------------------------------------------------------------- parameter counts


LENET_BEHIND = 2_416 + 120 + (120 * 84 + 84) + (84 * 10 + 10)  # all but conv1 and the weights of fc1
COUNTS = [
    ("simple-cnn", (1, 28, 28), 10, {}, 1_663_370),
    ("simple-cnn", (3, 32, 32), 10, {}, 2_156_490),
    ("simple-cnn", (3, 32, 32), 100, {}, 2_202_660),
    ("simple-cnn", (3, 64, 64), 200, {}, 8_545_416),
    ("simple-cnn", (3, 32, 32), 10, {"padded": False}, 878_538),
    # conv 1*4*25+4, 4*6*25+6; 8x8 -> 2x2: 24*16+16; 16*3+3
    ("simple-cnn", (1, 8, 8), 3, {"channels": (4, 6), "hidden": 16}, 104 + 606 + 400 + 51),
    ("femnist-cnn", (1, 28, 28), 62, {}, 832 + 51_264 + 6_424_576 + 127_038),
    ("femnist-cnn", (1, 28, 28), 62, {}, 6_603_710),
    ("femnist-cnn", (1, 8, 8), 10, {}, 832 + 51_264 + (4 * 64 + 1) * 2048 + 20_490),
    ("femnist-cnn", (3, 32, 32), 10, {}, 2_432 + 51_264 + (64 * 64 + 1) * 2048 + 20_490),
    *[("resnet10", (3, 32, 32), 10, {"norm": norm}, 4_903_242) for norm in NORMS],
    *[("resnet18", (3, 32, 32), 10, {"norm": norm}, 11_173_962) for norm in NORMS],
    *[("resnet18", (3, 32, 32), 100, {"norm": norm}, 11_220_132) for norm in NORMS],
    *[("resnet18", (3, 64, 64), 200, {"norm": norm}, 11_271_432) for norm in NORMS],
    ("vgg11", (3, 32, 32), 10, {}, 9_750_922),
    ("vgg11", (3, 32, 32), 100, {}, 9_797_092),
    ("vgg11", (1, 28, 28), 10, {}, 9_750_922 - 2 * 9 * 64),  # two input channels fewer, four poolings
    ("vgg11", (3, 64, 64), 10, {}, 9_750_922 + 3 * 512 * 512),  # 2x2 pixels reach the first linear layer
    *[("mobilenet", (3, 32, 32), 10, {"norm": norm}, 3_217_226) for norm in NORMS],
    ("mobilenet", (1, 28, 28), 100, {}, 3_217_226 - 2 * 9 * 32 + 90 * 1025),
    ("mobilenet", (3, 64, 64), 200, {}, 3_217_226 + 190 * 1025),
    ("lenet5", (1, 28, 28), 10, {}, 44_426),
    ("lenet5", (1, 28, 28), 10, {"second_relu": True}, 44_426),
    ("lenet5", (3, 32, 32), 10, {}, 6 * 76 + 400 * 120 + LENET_BEHIND),
    ("lenet5", (1, 16, 16), 10, {}, 6 * 26 + 16 * 120 + LENET_BEHIND),
    ("mlp", (64,), 10, {}, 64 * 64 + 64 + 64 * 10 + 10),
    ("mlp", (1, 8, 8), 10, {"hidden": (32, 16)}, 64 * 32 + 32 + 32 * 16 + 16 + 16 * 10 + 10),
    ("mlp", (5,), 10, {"hidden": []}, 5 * 10 + 10),
]


@pytest.mark.parametrize(("name", "shape", "classes", "values", "expected"), COUNTS)
def test_parameter_count(name, shape, classes, values, expected):
    assert count(name, shape, classes, **values) == expected


def test_lenet5_halves_have_the_published_bytes():
    model = make("lenet5", (1, 28, 28), 10)
    sizes = [4 * sum(p.numel() for p in half.parameters()) for half in (model.features, model.head)]
    assert sizes == [174_304, 3_400]


@pytest.mark.parametrize(
    ("shape", "values", "expected"),
    [
        ((64,), {}, 64 * 64 + 64 + 64 * 10 + 10),
        ((1, 8, 8), {"hidden": (32, 16)}, 64 * 32 + 32 + 32 * 16 + 16 + 16 * 10 + 10),
        ((5,), {"hidden": []}, 5 * 10 + 10),
    ],
)
def test_mlp_count(shape, values, expected):
    assert count("mlp", shape, 10, **values) == expected


# ------------------------------------------------------------------------------------------ the two halves


@pytest.mark.parametrize(("name", "values"), [*IMAGE_MODELS, ("resnet18", {})])
def test_forward_is_head_of_features(name, values):
    model = make(name, (3, 32, 32), 7, **values).eval()
    x = noise(4, 3, 32, 32)
    with torch.no_grad():
        features = model.features(x)
        logits = model(x)
        assert logits.shape == (4, 7)
        assert torch.equal(logits, model.head(features))
    assert type(model.head) is nn.Linear
    assert features.shape == (4, model.head.in_features)
    assert features.min() >= 0  # behind a ReLU
    assert {key.split(".")[0] for key in model.state_dict()} == {"features", "head"}


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("mlp", 64),
        ("simple-cnn", 512),
        ("femnist-cnn", 2048),
        ("lenet5", 84),
        ("resnet10", 512),
        ("resnet18", 512),
        ("vgg11", 512),
        ("mobilenet", 1024),
    ],
)
def test_feature_width(name, width):
    assert make(name, (1, 28, 28), 10).head.in_features == width


@pytest.mark.parametrize(("name", "values"), IMAGE_MODELS)
def test_gradient_flows_to_every_parameter(name, values):
    model = make(name, (3, 32, 32), 5, **values)
    loss = nn.functional.cross_entropy(model(noise(10, 3, 32, 32)), torch.arange(10) % 5)
    loss.backward()
    silent = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert silent == []
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize(("name", "values"), IMAGE_MODELS)
def test_the_input_is_left_as_it_was(name, values):
    model = make(name, (3, 32, 32), 5, **values)
    x = noise(3, 3, 32, 32)
    before = x.clone()
    model(x).sum().backward()
    assert torch.equal(x, before)


def test_same_seed_same_bits():
    one, two, other = (make("vgg11", (3, 32, 32), 10, seed=seed) for seed in (4, 4, 5))
    for (key, first), second, third in zip(
        one.state_dict().items(), two.state_dict().values(), other.state_dict().values(), strict=True
    ):
        assert torch.equal(first, second), key
        assert torch.equal(first, third) == ("conv" in key and "bias" in key), key


# ------------------------------------------------------------------------------- ReLU behind the pooling


def usual_order(convolutions: list, kernel: int, padding: int, widths: list[int]) -> nn.Sequential:
    """Convolution, ReLU, then pooling at "M"; "bare" takes the ReLU away that stands before it."""
    layers: list[nn.Module] = []
    before = 3
    for item in convolutions:
        if item == "M":
            layers.append(nn.MaxPool2d(2))
        elif item == "bare":
            layers.pop()
        else:
            layers += [nn.Conv2d(before, item, kernel, padding=padding), nn.ReLU()]
            before = item
    layers.append(nn.Flatten())
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


VGG = [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512]


def load_in_order(reference: nn.Module, model: nn.Module) -> None:
    with torch.no_grad():
        for mine, theirs in zip(model.parameters(), reference.parameters(), strict=True):
            theirs.copy_(mine)


@pytest.mark.parametrize(
    ("name", "values", "size", "usual"),
    [
        ("simple-cnn", {}, 32, ([32, "M", 64, "M"], 5, 2, [4096, 512, 10])),
        ("simple-cnn", {"padded": False}, 32, ([32, "M", 64, "M"], 5, 0, [1600, 512, 10])),
        ("femnist-cnn", {}, 32, ([32, "M", 64, "M"], 5, 2, [4096, 2048, 10])),
        ("femnist-cnn", {}, 30, ([32, "M", 64, "M"], 5, 2, [3136, 2048, 10])),
        ("lenet5", {}, 32, ([6, "M", 16, "bare", "M"], 5, 0, [400, 120, 84, 10])),
        ("lenet5", {"second_relu": True}, 32, ([6, "M", 16, "M"], 5, 0, [400, 120, 84, 10])),
        ("vgg11", {}, 32, ([*VGG, "M"], 3, 1, [512, 512, 512, 10])),
        ("vgg11", {}, 28, (VGG, 3, 1, [512, 512, 512, 10])),
    ],
)
def test_relu_behind_pooling_is_relu_before_pooling(name, values, size, usual):
    model = make(name, (3, size, size), 10, **values)
    reference = usual_order(*usual)
    load_in_order(reference, model)
    labels = torch.arange(6)
    outputs = []
    for network in (model, reference):
        logits = network(noise(6, 3, size, size))
        nn.functional.cross_entropy(logits, labels).backward()
        outputs.append(logits.detach())
    assert torch.allclose(*outputs, rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        scale = float(theirs.grad.abs().max())
        assert (mine.grad - theirs.grad).abs().max() <= 1e-5 * scale + 1e-9


# ------------------------------------------------------------------------------------------------ ResNet


def normalise(norm: str, y: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Mean 0 and variance 1 over the batch, or over each half of a sample's channels, then scale, shift."""
    grouped = y.reshape(len(y), 2, -1) if norm == "gn2" else y.transpose(0, 1).reshape(1, y.shape[1], -1)
    variance, mean = torch.var_mean(grouped, 2, correction=0, keepdim=True)
    even = (grouped - mean) / torch.sqrt(variance + 1e-5)
    even = even.view(y.shape) if norm == "gn2" else even.view(y.shape[1], len(y), *y.shape[2:]).transpose(0, 1)
    return even * weight.view(-1, 1, 1) + bias.view(-1, 1, 1)


def written_out_block(norm: str, block: nn.Module, x: Tensor, stride: int) -> Tensor:
    weights, convolve = list(block.parameters()), nn.functional.conv2d
    y = torch.relu(normalise(norm, convolve(x, weights[0], stride=stride, padding=1), *weights[1:3]))
    y = normalise(norm, convolve(y, weights[3], padding=1), *weights[4:6])
    short = x if len(weights) == 6 else normalise(norm, convolve(x, weights[6], stride=stride), *weights[7:])
    return torch.relu(y + short)


@pytest.mark.parametrize("norm", NORMS)
def test_resnet18_in_training_is_the_written_out_function(norm):
    model = make("resnet18", (3, 16, 16), 10, norm=norm)
    x, stem = noise(4, 3, 16, 16), model.features.norm
    with torch.no_grad():
        y = nn.functional.conv2d(x, model.features.conv.weight, padding=1)
        y = torch.relu(normalise(norm, y, stem.weight, stem.bias))
        for number, stride in enumerate((1, 2, 2, 2), start=1):
            first, second = getattr(model.features, f"stage{number}")
            assert len(list(first.parameters())) == (6 if number == 1 else 9)
            y = written_out_block(norm, first, y, stride)
            y = written_out_block(norm, second, y, 1)
        assert y.shape == (4, 512, 2, 2)
        expected = nn.functional.linear(y.mean((2, 3)), model.head.weight, model.head.bias)
        assert torch.allclose(model(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", NORMS)
def test_resnet_takes_64x64(norm):
    model = make("resnet10", (3, 64, 64), 200, norm=norm).eval()
    with torch.no_grad():
        assert model(noise(2, 3, 64, 64)).shape == (2, 200)


def test_gn2_takes_tiny_images_and_one_sample():
    model = make("resnet10", (1, 8, 8), 10)
    model(noise(1, 1, 8, 8)).sum().backward()
    assert torch.isfinite(model.features.conv.weight.grad).all()


@pytest.mark.parametrize("norm", ["bn", "bn_nostats"])
def test_batch_statistics_work_on_one_sample_of_the_smallest_image_allowed(norm):
    model = make("resnet10", (3, 9, 3), 10, norm=norm)
    assert torch.isfinite(model(noise(1, 3, 9, 3))).all()


def outputs_alone_and_in_a_batch(norm: str) -> tuple[Tensor, Tensor]:
    model = make("resnet10", (3, 16, 16), 10, norm=norm)
    with torch.no_grad():
        model(noise(8, 3, 16, 16, seed=3))  # training mode: moves running statistics, if there are any
        model.eval()
        x = noise(4, 3, 16, 16)
        return model(x[:1]), model(x)[:1]


@pytest.mark.parametrize("norm", ["bn", "gn2"])
def test_evaluation_depends_on_its_sample_alone(norm):
    alone, together = outputs_alone_and_in_a_batch(norm)
    assert torch.allclose(alone, together, rtol=1e-4, atol=1e-5)


def test_bn_nostats_in_evaluation_depends_on_the_batch():
    alone, together = outputs_alone_and_in_a_batch("bn_nostats")
    assert (alone - together).abs().max() > 1e-2


@pytest.mark.parametrize(("norm", "same"), [("bn", False), ("bn_nostats", True), ("gn2", True)])
def test_training_and_evaluation_agree_unless_there_are_running_statistics(norm, same):
    model = make("resnet10", (3, 16, 16), 10, norm=norm)
    x = noise(4, 3, 16, 16)
    with torch.no_grad():
        trained = model.train()(x)
        evaluated = model.eval()(x)
    assert torch.equal(trained, evaluated) == same


@pytest.mark.parametrize(("norm", "floats"), [("bn", 2 * 4800), ("bn_nostats", 0), ("gn2", 0)])
def test_resnet18_buffers(norm, floats):
    # channels with statistics: stem 64, blocks 4 x (64 + 128 + 256 + 512), shortcuts 128 + 256 + 512
    model = make("resnet18", (3, 32, 32), 10, norm=norm)
    assert sum(b.numel() for b in model.buffers() if b.is_floating_point()) == floats


def test_bn_training_moves_its_running_statistics():
    model = make("resnet10", (3, 16, 16), 10, norm="bn")
    before = model.features.norm.running_mean.clone()
    with torch.no_grad():
        model(noise(4, 3, 16, 16))
        moved = model.features.norm.running_mean.clone()
        model.eval()(noise(4, 3, 16, 16, seed=5))
    assert not torch.equal(before, moved)
    assert torch.equal(moved, model.features.norm.running_mean)


# --------------------------------------------------------------------------------------------- MobileNet


@pytest.mark.parametrize("norm", NORMS)
def test_mobilenet_in_training_is_the_written_out_function(norm):
    model = make("mobilenet", (3, 32, 32), 10, norm=norm)
    x, convolve = noise(4, 3, 32, 32), nn.functional.conv2d
    widths = [64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024]
    with torch.no_grad():
        parameters = iter(model.features.parameters())
        y = convolve(x, next(parameters), padding=1)
        y = torch.relu(normalise(norm, y, next(parameters), next(parameters)))
        for number, width in enumerate(widths, start=1):
            stride = 2 if number in (2, 4, 6, 12) else 1
            y = convolve(y, next(parameters), stride=stride, padding=1, groups=y.shape[1])
            y = torch.relu(normalise(norm, y, next(parameters), next(parameters)))
            y = torch.relu(normalise(norm, convolve(y, next(parameters)), next(parameters), next(parameters)))
            assert y.shape[1] == width
        assert next(parameters, None) is None
        assert y.shape == (4, 1024, 2, 2)
        expected = nn.functional.linear(y.mean((2, 3)), model.head.weight, model.head.bias)
        assert torch.allclose(model(x), expected, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------ starts


def test_vgg11_convolutions_start_with_the_fan_out_deviation():
    model = make("vgg11", (3, 32, 32), 10)
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert [m.out_channels for m in convolutions] == [64, 128, 256, 256, 512, 512, 512, 512]
    for convolution in convolutions:
        weight = convolution.weight.detach()
        deviation = math.sqrt(2 / (3 * 3 * convolution.out_channels))
        # a sample deviation of n normal draws has a relative error of 1/sqrt(2n); five of them
        assert float(weight.std()) == pytest.approx(deviation, rel=5 / math.sqrt(2 * weight.numel()))
        assert abs(float(weight.mean())) < 5 * deviation / math.sqrt(weight.numel())
        assert not convolution.bias.any()


def test_lenet5_starts_he_normal():
    model = make("lenet5", (1, 28, 28), 10)
    for layer, inputs in ((model.features.conv2, 150), (model.features.fc1, 256), (model.head, 84)):
        deviation = math.sqrt(2 / inputs)
        weight = layer.weight.detach()
        assert float(weight.std()) == pytest.approx(deviation, rel=5 / math.sqrt(2 * weight.numel()))
        assert not layer.bias.any()


def test_femnist_cnn_starts_glorot_uniform():
    model = make("femnist-cnn", (1, 28, 28), 62)
    fans = ((25, 800), (800, 1600), (3136, 2048), (2048, 62))
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer, (inputs, outputs) in zip(layers, fans, strict=True):
        weight, bound = layer.weight.detach(), math.sqrt(6 / (inputs + outputs))
        assert 0.97 * bound < float(weight.abs().max()) <= bound
        assert float(weight.std()) == pytest.approx(bound / math.sqrt(3), rel=5 / math.sqrt(weight.numel()))
        assert not layer.bias.any()


def test_simple_cnn_starts_like_plain_layers():
    model = make("simple-cnn", (3, 32, 32), 10, seed=9, padded=False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(9)
        layers = [nn.Conv2d(3, 32, 5), nn.Conv2d(32, 64, 5), nn.Linear(1600, 512), nn.Linear(512, 10)]
    plain = [tensor for layer in layers for tensor in (layer.weight, layer.bias)]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain, strict=True))


# -------------------------------------------------------------------------------------- memory and tracing


@pytest.mark.parametrize(("name", "values"), IMAGE_MODELS)
@pytest.mark.parametrize(
    ("channels", "precision", "output_error", "gradient_error"),
    # single precision: a ReLU input near zero may fall on either side, and batch statistics spread it
    [(1, torch.float32, 1e-5, 1e-2), (3, torch.float32, 1e-5, 1e-2), (3, torch.float64, 1e-12, 1e-10)],
)
def test_channels_last_and_contiguous_agree(name, values, channels, precision, output_error, gradient_error):
    contiguous = make(name, (channels, 32, 32), 5, **values).to(precision)
    last = make(name, (channels, 32, 32), 5, **values).to(precision, memory_format=torch.channels_last)
    x = noise(4, channels, 32, 32).to(precision)
    results = []
    for model, batch in ((contiguous, x), (last, x.contiguous(memory_format=torch.channels_last))):
        logits = model(batch)
        logits.square().sum().backward()
        results.append(logits.detach())
    if name == "mobilenet" and "bn" in values["norm"] and precision == torch.float32:
        output_error, gradient_error = 1e-3, 0.2  # 27 layers, the last with statistics over 4 x 2 x 2 values
    assert relative_error(*results) < output_error
    for (key, mine), theirs in zip(contiguous.named_parameters(), last.parameters(), strict=True):
        assert relative_error(mine.grad, theirs.grad) < gradient_error, key


def relative_error(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / one.norm())


def test_mlp_takes_either_memory_format_bit_for_bit():
    model = make("mlp", (3, 8, 8), 5)
    x = noise(4, 3, 8, 8)
    assert torch.equal(model(x), model(x.contiguous(memory_format=torch.channels_last)))


@pytest.mark.parametrize("hidden", [(), (64,), (32, 16)])
def test_mlp_is_traced_as_a_plain_chain(hidden):
    model = make("mlp", (1, 8, 8), 10, hidden=hidden)
    graph = torch.fx.symbolic_trace(model).graph
    start, *calls, end = graph.nodes
    assert (start.op, end.op) == ("placeholder", "output")
    assert all(call.op == "call_module" and len(call.args) == 1 for call in calls)
    assert [call.args[0] for call in calls] == [start, *calls[:-1]]
    kinds = [type(model.get_submodule(call.target)) for call in calls]
    assert kinds == [nn.Flatten, *[nn.Linear, nn.ReLU] * len(hidden), nn.Linear]


@pytest.mark.parametrize(("name", "values"), [("mlp", {}), ("lenet5", {}), ("simple-cnn", {"channels": (4, 8)})])
def test_stacked_devices_have_the_gradients_of_single_ones(name, values):
    """In-place ReLU must not stand in the way of training many devices in one kernel."""
    devices = [make(name, (1, 16, 16), 3, seed=seed, **values) for seed in (1, 2)]
    x, labels = noise(2, 5, 1, 16, 16), torch.tensor([[0, 1, 2, 0, 1], [2, 2, 1, 0, 0]])
    stacked = {
        key: torch.stack([dict(device.named_parameters())[key].detach() for device in devices])
        for key, _ in devices[0].named_parameters()
    }

    def loss(weights: dict[str, Tensor], batch: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(torch.func.functional_call(devices[0], weights, (batch,)), target)

    gradients = torch.func.vmap(torch.func.grad(loss))(stacked, x, labels)
    for number, device in enumerate(devices):
        nn.functional.cross_entropy(device(x[number]), labels[number]).backward()
        for key, parameter in device.named_parameters():
            assert torch.allclose(gradients[key][number], parameter.grad, rtol=1e-4, atol=1e-6), key


# ------------------------------------------------------------------------------------------------ errors


def test_every_model_is_registered():
    known = {"mlp", "simple-cnn", "femnist-cnn", "lenet5", "resnet10", "resnet18", "vgg11", "mobilenet", "fasttext"}
    assert known <= set(models.names())


@pytest.mark.parametrize(
    ("name", "values", "shape", "needed"),
    [
        ("simple-cnn", {}, (64,), "4x4"),
        ("simple-cnn", {}, (1, 3, 8), "4x4"),
        ("simple-cnn", {"padded": False}, (3, 32, 15), "16x16"),
        ("simple-cnn", {"padded": False}, (64,), "16x16"),
        ("femnist-cnn", {}, (1, 3, 28), "4x4"),
        ("femnist-cnn", {}, (784,), "4x4"),
        ("lenet5", {}, (1, 8, 8), "16x16"),
        ("lenet5", {}, (28, 28), "16x16"),
        ("resnet10", {}, (64,), "1x1"),
        ("resnet18", {"norm": "bn"}, (1, 8, 8), "larger than 8x8"),
        ("resnet10", {"norm": "bn_nostats"}, (3, 8, 2), "larger than 8x8"),
        ("mobilenet", {}, (64,), "1x1"),
        ("mobilenet", {"norm": "bn"}, (3, 16, 16), "larger than 16x16"),
        ("vgg11", {}, (3, 15, 32), "16x16"),
        ("vgg11", {}, (0, 32, 32), "16x16"),
        ("mlp", {}, (), "at least one input value"),
        ("mlp", {}, (0,), "at least one input value"),
    ],
)
def test_an_impossible_input_is_one_line_naming_model_shape_and_need(name, values, shape, needed):
    with pytest.raises(UserError) as caught:
        make(name, shape, 10, **values)
    text = str(caught.value)
    assert "\n" not in text
    assert f"'{name}'" in text
    assert needed in text
    assert str(shape) in text


def test_the_smallest_inputs_are_taken():
    for name, values, shape in (
        ("simple-cnn", {}, (1, 4, 4)),
        ("simple-cnn", {"padded": False}, (1, 16, 16)),
        ("femnist-cnn", {}, (1, 4, 4)),
        ("lenet5", {}, (1, 16, 16)),
        ("resnet10", {}, (1, 1, 1)),
        ("mobilenet", {}, (1, 1, 1)),
        ("vgg11", {}, (1, 16, 16)),
        ("mlp", {}, (1,)),
    ):
        model = make(name, shape, 2, **values)
        assert model(noise(1, *shape)).shape == (1, 2)


def test_unpadded_error_offers_the_padding():
    with pytest.raises(UserError, match="padded = true"):
        make("simple-cnn", (1, 8, 8), 10, padded=False)


def test_no_classes():
    with pytest.raises(UserError, match="at least one class; got 0"):
        make("mlp", (4,), 0)


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("mlp", {"hidden": [64, 0]}, "model.hidden.1: 0 is not allowed"),
        ("simple-cnn", {"channels": [8]}, "model.channels.1: must be given"),
        ("simple-cnn", {"hidden": -1}, "model.hidden: -1 is not allowed"),
        ("resnet10", {"norm": "batch"}, "'bn', 'bn_nostats' or 'gn2'"),
        ("vgg11", {"norm": "bn"}, "no such option"),
        ("femnist-cnn", {"hidden": 512}, "femnist-cnn has no such option"),
    ],
)
def test_wrong_options(name, values, text):
    with pytest.raises(UserError) as caught:
        models.create(name, values)
    assert text in str(caught.value)
