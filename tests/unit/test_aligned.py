"""Where numbers lie in memory must not depend on whether they were read from a file."""

from pathlib import Path

import numpy as np
import pytest
import torch

from remanence.core.aligned import BOUNDARY, aligned
from remanence.core.state import load, save
from remanence.data.samples import Samples


@pytest.mark.parametrize("entries", [1, 3, 16, 1000])
def test_what_was_loaded_lies_where_torch_would_have_put_it(entries: int, tmp_path: Path) -> None:
    save(tmp_path / "state", {"first": torch.ones(entries), "second": torch.ones(7, entries)})
    read = load(tmp_path / "state")
    assert all(tensor.data_ptr() % BOUNDARY == 0 for tensor in read.values())


@pytest.mark.parametrize("offset", range(1, 6))
def test_samples_of_a_numpy_array_too(offset: int) -> None:
    x = torch.from_numpy(np.ones(4 * 16 + offset, dtype=np.float32)[offset:].reshape(4, 16))
    assert Samples(x, torch.zeros(4, dtype=torch.int64), 2).stored.data_ptr() % BOUNDARY == 0
    assert aligned(x).equal(x)
