"""fastText: the mean by hand, padding, what is no token number, per-sample gradients, and every method on it."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from remanence import simulate
from remanence.core.fisher import fisher_per_batch, fisher_per_sample
from remanence.core.vector import FlatModel
from remanence.data.samples import Samples
from remanence.errors import UserError
from remanence.models.classifier import Classifier
from remanence.models.text import MeanOfWords
from remanence.registry import methods, models, option_fields

VOCABULARY, LENGTH, CLASSES = 12, 5, 3


def model(seed: int = 1, **options: int) -> Classifier:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        values = {"vocabulary": VOCABULARY, "embedding": 4, "hidden": 6, **options}
        return models.create("fasttext", values).build((LENGTH,), CLASSES)


def texts(count: int, seed: int = 2) -> tuple[Tensor, Tensor]:
    """Rows whose words tell the class, padded at the end; one of them is empty."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % CLASSES
    x = (2 + 3 * y[:, None] + torch.randint(0, 3, (count, LENGTH), generator=generator)).float()
    lengths = torch.randint(1, LENGTH + 1, (count, 1), generator=generator)
    lengths[-1] = 0
    return x * (torch.arange(LENGTH) < lengths), y


def test_the_published_size() -> None:
    with torch.device("meta"):
        made = models.create("fasttext", {}).build((128,), 4)
    assert sum(p.numel() for p in made.parameters()) == 20_002 * 100 + (100 * 100 + 100) + (100 * 4 + 4) == 2_010_704


def test_the_mean_by_hand() -> None:
    words = MeanOfWords(4, 2)
    with torch.no_grad():
        words.table.weight.copy_(torch.tensor([[9.0, 9.0], [1.0, 2.0], [3.0, 6.0], [5.0, -2.0]]))
    x = torch.tensor([[2.0, 3.0, 3.0, 1.0], [2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0]])
    expected = torch.tensor([[3.5, 1.0], [2.0, 4.0], [0.0, 0.0], [5.0, -2.0]])
    assert torch.equal(words(x), expected)
    assert torch.equal(words(x.long()), expected)
    bag = F.embedding_bag(x.long(), words.table.weight, mode="mean", padding_idx=0)
    assert torch.allclose(words(x), bag)


def test_forward_is_head_of_features() -> None:
    net, (x, _) = model(), texts(7)
    features = net.features(x)
    assert torch.equal(net(x), net.head(features))
    assert features.shape == (7, 6)
    assert features.min() >= 0
    assert type(net.head) is torch.nn.Linear
    assert {key.split(".")[0] for key in net.state_dict()} == {"features", "head"}
    flat = FlatModel(net)
    assert flat.part("features").stop == flat.part("head").start == flat.size - (6 * CLASSES + CLASSES)


@pytest.mark.parametrize("training", [True, False])
def test_padding_takes_no_part(training: bool) -> None:
    net, (x, y) = model().train(training), texts(6)
    longer = F.pad(x, (0, 4))
    assert torch.allclose(net(x), net(longer))
    with torch.no_grad():
        net.features.words.table.weight[0] = 1e6
    F.cross_entropy(net(x), y).backward()
    gradient = net.features.words.table.weight.grad.to_dense()
    assert not gradient[0].any()
    assert not gradient[1].any()  # nothing unknown in these texts
    assert gradient[x[x > 0].long()].any(1).all()
    assert torch.isfinite(gradient).all()


def test_empty_texts_alone_are_no_trouble() -> None:
    net = model()
    logits = net(torch.zeros(3, LENGTH))
    logits.sum().backward()
    assert torch.isfinite(logits).all()
    assert torch.equal(logits[0], net.head(torch.relu(net.features.fc1.bias)))
    assert all(torch.isfinite(p.grad.to_dense()).all() for p in net.parameters())


def test_training_adds_to_the_flat_gradient_what_evaluation_does() -> None:
    x, y = texts(9)
    gradients = []
    for training in (True, False):
        net = FlatModel(model())
        net.train(training)
        for _ in range(2):  # the second is added to the first
            F.cross_entropy(net(x), y).backward()
        assert not net.module.features.words.table.weight.grad.is_sparse
        gradients.append(net.g)
    assert gradients[0].abs().sum() > 0
    assert torch.allclose(*gradients, atol=1e-7)


def test_gradients_are_the_slopes() -> None:
    net, (x, y) = model().double(), texts(5)
    F.cross_entropy(net(x), y).backward()
    weight, step = net.features.words.table.weight, 1e-6
    for row, column in ((2, 0), (5, 3), (9, 1)):
        losses = []
        for sign in (1, -1):
            with torch.no_grad():
                weight[row, column] += sign * step
                losses.append(float(F.cross_entropy(net(x), y)))
                weight[row, column] -= sign * step
        assert float(weight.grad.to_dense()[row, column]) == pytest.approx(
            (losses[0] - losses[1]) / (2 * step), abs=1e-8
        )


@pytest.mark.parametrize("wrong", [12.0, 1e9, -1.0, 2.5, float("nan"), float("inf")])
@pytest.mark.parametrize("training", [True, False])
def test_what_is_no_token_number_is_one_line(wrong: float, training: bool) -> None:
    x = torch.full((2, LENGTH), 2.0)
    x[1, 3] = wrong
    line = r"^model\.vocabulary: an input is no token number of it; allowed are whole numbers from 0 to 11$"
    with pytest.raises(UserError, match=line):
        model().train(training)(x)
    with pytest.raises(UserError, match=line):
        fisher_per_sample(FlatModel(model()), Samples(x, torch.tensor([0, 1]), CLASSES), torch.arange(2))


@pytest.mark.parametrize("shape", [(), (0,), (1, 28, 28), (3, 5)])
def test_other_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"model 'fasttext' needs rows of token numbers \(length,\); got shape \("):
        models.create("fasttext", {}).build(shape, 4)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"vocabulary": 2}, "model.vocabulary: 2 is not allowed: should be greater than or equal to 3"),
        (
            {"vocabulary": 2**24 + 1},
            "model.vocabulary: 16777217 is not allowed: should be less than or equal to 16777216",
        ),
        ({"embedding": 0}, "model.embedding: 0 is not allowed"),
        ({"hidden": 1.5}, "model.hidden: 1.5 is not allowed"),
    ],
)
def test_wrong_options(values: dict[str, float], text: str) -> None:
    with pytest.raises(UserError) as caught:
        models.create("fasttext", values)
    assert text in str(caught.value)


@pytest.mark.filterwarnings("error")  # an operation that vmap runs sample by sample warns
def test_fisher_information_is_the_mean_of_squared_gradients() -> None:
    net, (x, y) = FlatModel(model()), texts(20)
    data, chosen = Samples(x, y, CLASSES), torch.tensor([0, 3, 5, 8, 19])
    expected = torch.zeros(net.size)
    for row in chosen:
        net.g.zero_()
        F.cross_entropy(net(x[row : row + 1]), y[row : row + 1]).backward()
        expected += net.g.square() / len(chosen)
    assert torch.allclose(fisher_per_sample(net, data, chosen), expected, rtol=1e-4, atol=1e-9)
    assert torch.allclose(fisher_per_batch(net, data, chosen, 1), expected, rtol=1e-4, atol=1e-9)


FITTING = {"models": 2, "pretrain": 1}  # models in FedAWAC's window; rounds before CGAU's own


def play(method: str, **engine: object):
    options = {name: value for name, value in FITTING.items() if name in fields(method)}
    return simulate(
        method,
        options,
        model=model(),
        devices=[texts(12, seed) for seed in (3, 4, 5)],
        test=texts(30, 6),
        public=texts(6, 7)[0],
        rounds=4,
        epochs=4,
        lr=0.1,
        batches=4,
        engine={"cohort": "auto", "workers": 1, **engine},
    )


def fields(method: str) -> set[str]:
    if method not in methods.combinations:
        return set(option_fields(methods.get(method)))
    return {"models"} if "window" in methods.combinations[method].uses.values() else set()


FOR_IMAGES = ("fedfusion",)


@pytest.mark.parametrize("method", FOR_IMAGES)
def test_a_method_for_images_says_so(method: str) -> None:
    with pytest.raises(UserError, match="no `features` that begin with convolutions"):
        play(method)


@pytest.mark.parametrize("method", [name for name in methods.names() if name not in FOR_IMAGES])
def test_every_method_trains_it(method: str) -> None:
    run = play(method)
    losses = [event["loss"] for event in run.history]
    assert torch.isfinite(run.weights).all()
    assert losses[-1] < losses[0]
    assert run.model(torch.zeros(1, LENGTH)).shape == (1, CLASSES)
    assert "cohort" not in run.engine


@pytest.mark.parametrize("method", ["fedavg", "fedcurv", "moon"])
def test_workers_give_the_same_bits(method: str) -> None:
    assert torch.equal(play(method).weights, play(method, workers=2).weights)


def test_bfloat16_trains() -> None:
    assert torch.isfinite(play("fedavg", precision="bfloat16").weights).all()


def test_a_wrong_number_in_simulate_is_one_line() -> None:
    x, y = texts(6)
    x[2, 0] = 50
    with pytest.raises(UserError, match=r"^model\.vocabulary: an input is no token number"):
        simulate(model=model(), devices=[(x, y)], engine={"workers": 1})
