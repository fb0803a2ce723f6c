"""Public datasets of the hub."""

from typing import Literal

from pydantic import Field

from remanence.data.assemble import About, assemble
from remanence.data.hub import HubName, hub_parts
from remanence.data.samples import Dataset
from remanence.registry import datasets, options


@datasets.register("hub")
@options
class Hub:
    """Pictures or numbers by the name that the hub gives them, such as `ylecun/mnist` (extra `hub`)."""

    dataset: str = Field(min_length=1)
    config: str | None = None
    train: str = "train"  # names of the splits
    test: str = "test"
    label: str | None = None  # by default the first column of class labels
    group: str | None = None
    classes: int | None = Field(default=None, ge=1)
    normalise: Literal["training", "none"] = "training"

    def load(self) -> Dataset:
        wanted = HubName(self.dataset, self.config, self.train, self.test, self.label, self.group)
        train, test, names = hub_parts(wanted)
        name = self.dataset.rpartition("/")[2]
        about = About(name, f"hub: {self.dataset}", self.classes, names, normalise=self.normalise)
        return assemble(train, test, about)
