"""MNIST and Fashion-MNIST: 60,000 and 10,000 grey images of 28x28 in IDX or NPZ files."""

from pathlib import Path

from remanence.data.assemble import About
from remanence.data.hub import HubName
from remanence.data.idx import idx_parts
from remanence.data.named import Known, Parts, load_named
from remanence.data.samples import Dataset
from remanence.registry import datasets, options

_MNIST = Known(
    about=About("mnist", "", 10, tuple("0123456789"), mean=(0.1307,), std=(0.3081,)),
    shape=(1, 28, 28),
    hub=HubName("ylecun/mnist"),
    advice="a folder with the four IDX files (train-images-idx3-ubyte.gz, ...) or an npz file",
)
_CLOTHES = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
_FASHION = Known(
    about=About("fashion-mnist", "", 10, _CLOTHES, mean=(0.2860,), std=(0.3530,)),
    shape=(1, 28, 28),
    hub=HubName("zalando-datasets/fashion_mnist"),
    advice="a folder with the four IDX files or an npz file; on Debian: apt install dataset-fashion-mnist",
    packaged=(Path("/usr/share/datasets/fashion-mnist"),),
)


@datasets.register("mnist")
@options
class Mnist:
    """Handwritten digits; class sizes differ a little."""

    path: Path | None = None

    def load(self) -> Dataset:
        return load_named(_MNIST, self.path, _read)


@datasets.register("fashion-mnist")
@options
class FashionMnist:
    """Clothes; the Debian package `dataset-fashion-mnist` brings it."""

    path: Path | None = None

    def load(self) -> Dataset:
        return load_named(_FASHION, self.path, _read)


def _read(folder: Path) -> Parts:
    return *idx_parts(folder), ()
