"""CIFAR-10 and CIFAR-100: 50,000 and 10,000 colour images of 32x32 in binary batches or NPZ files."""

from dataclasses import replace
from pathlib import Path

from remanence.data.assemble import About
from remanence.data.cifar import CIFAR10, CIFAR100, CIFAR100_COARSE, Batches, cifar_parts
from remanence.data.hub import HubName
from remanence.data.named import Known, Parts, Reader, load_named
from remanence.data.samples import Dataset
from remanence.registry import datasets, options

_SHAPE = (3, 32, 32)
_ADVICE = "the folder or the .tar.gz of the binary version ({}), or an npz file"
_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_TEN = Known(
    about=About("cifar10", "", 10, _NAMES, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)),
    shape=_SHAPE,
    hub=HubName("uoft-cs/cifar10", label="label"),
    advice=_ADVICE.format(CIFAR10.archive),
)
_HUNDRED = Known(
    about=About("cifar100", "", 100, mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762)),
    shape=_SHAPE,
    hub=HubName("uoft-cs/cifar100", label="fine_label"),
    advice=_ADVICE.format(CIFAR100.archive),
)


@datasets.register("cifar10")
@options
class Cifar10:
    """Ten kinds of animals and vehicles."""

    path: Path | None = None

    def load(self) -> Dataset:
        return load_named(_TEN, self.path, _reader(CIFAR10))


@datasets.register("cifar100")
@options
class Cifar100:
    """A hundred classes, or with `coarse` the twenty groups they belong to."""

    path: Path | None = None
    coarse: bool = False

    def load(self) -> Dataset:
        if not self.coarse:
            return load_named(_HUNDRED, self.path, _reader(CIFAR100))
        known = replace(
            _HUNDRED,
            about=replace(_HUNDRED.about, classes=20),
            hub=replace(_HUNDRED.hub, label="coarse_label"),
        )
        return load_named(known, self.path, _reader(CIFAR100_COARSE))


def _reader(kind: Batches) -> Reader:
    def read(path: Path) -> Parts:
        return cifar_parts(path, kind)

    return read
