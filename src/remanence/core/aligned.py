"""Matrix products of one and the same numbers differ in the last bit with the place of their operands in memory."""

from torch import Tensor

BOUNDARY = 64  # bytes; where torch puts the tensors that it makes itself


def aligned(tensor: Tensor) -> Tensor:
    """The tensor where torch would have put it; files and numpy arrays begin anywhere."""
    return tensor if tensor.data_ptr() % BOUNDARY == 0 else tensor.clone()
