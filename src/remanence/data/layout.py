"""Which axis is which: images become (N, channels, height, width), rows stay (N, features)."""

from typing import Literal

import numpy as np

from remanence.errors import UserError

Layout = Literal["auto", "rows", "grey", "channels-first", "channels-last", "sequence"]

_RANK = {"rows": 2, "grey": 3, "sequence": 3, "channels-first": 4, "channels-last": 4}
_CHANNELS = (1, 3, 4)


def arranged(x: np.ndarray, layout: Layout, where: str) -> np.ndarray:
    """Channels become the second axis. A sequence (N, steps, channels) becomes (N, channels, steps)."""
    known = _guess(x, where) if layout == "auto" else layout
    if x.ndim != _RANK[known]:
        raise UserError(f"{where}: wrong shape {x.shape}: data.layout '{known}' has {_RANK[known]} axes")
    if known == "grey":
        return x[:, None]
    if known == "channels-last":
        return x.transpose(0, 3, 1, 2)
    return x.transpose(0, 2, 1) if known == "sequence" else x


def _guess(x: np.ndarray, where: str) -> Layout:
    if x.ndim == 2:
        return "rows"
    if x.ndim not in (3, 4):
        raise UserError(f"{where}: wrong shape {x.shape}: rows, sequences or images, the first axis counting samples")
    if x.ndim == 3:
        return "grey" if x.dtype == np.uint8 else "sequence"
    first, last = (x.shape[axis] in _CHANNELS for axis in (1, -1))
    if first == last:
        raise UserError(
            f"{where}: shape {x.shape} does not say which axis is the channels; give data.layout: "
            f"one of {', '.join(_RANK)}"
        )
    return "channels-first" if first else "channels-last"
