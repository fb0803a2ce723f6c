"""Scikit-learn's handwritten digits: 1,797 grey images of 8x8, installed with it; the default."""

import numpy as np
import sklearn
from sklearn.datasets import load_digits

from remanence.data.assemble import About, Raw, assemble_whole
from remanence.data.samples import Dataset
from remanence.registry import datasets, options


@datasets.register("digits")
@options
class Digits:
    """Every fifth image of each class is for testing."""

    def load(self) -> Dataset:
        images, labels = load_digits(return_X_y=True)
        x = np.rint(images.reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)  # stored as 0 to 16
        about = About(
            name="digits",
            origin=f"scikit-learn {sklearn.__version__}: load_digits",
            classes=10,
            class_names=tuple("0123456789"),
        )
        return assemble_whole(Raw(x, labels.astype(np.int64), "scikit-learn digits"), 0.2, about)
