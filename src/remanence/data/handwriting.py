"""Hands that write: every one has a style of its own, and writes a given character a little differently each time."""

import math
from dataclasses import dataclass

import numpy as np

SIDE = 28


@dataclass(frozen=True)
class Style:
    """Ink on paper; characters come as ink from 0 to 1."""

    slant: float  # to the right, as a share of the height
    turn: float  # radians
    width: float  # of a character, times its own
    height: float
    across: float  # where it stands, as a share of half the picture
    down: float
    edge: float  # ink above which there is a line: low for a thick pen
    blur: float  # of the line's edge
    ink: float  # grey levels from 0 (black) to 1 (white)
    paper: float
    noise: float  # standard deviation

    @classmethod
    def drawn(cls, generator: np.random.Generator) -> "Style":
        def normal(deviation: float, mean: float = 0.0) -> float:
            return mean + deviation * float(np.clip(generator.standard_normal(), -2, 2))

        def between(low: float, high: float) -> float:
            return float(generator.uniform(low, high))

        size = math.exp(normal(0.1))
        return cls(
            slant=normal(0.25),
            turn=normal(0.08),
            width=size * math.exp(normal(0.12)),
            height=size,
            across=normal(0.06),
            down=normal(0.06),
            edge=between(0.22, 0.6),
            blur=between(0.05, 0.16),
            ink=between(0.0, 0.4),
            paper=between(0.88, 1.0),
            noise=between(0.0, 0.08),
        )


def written(characters: np.ndarray, rows: np.ndarray, style: Style, generator: np.random.Generator) -> np.ndarray:
    """Pictures (N, 1, 28, 28) uint8 of some of the characters (all, height, width) in this hand."""
    lines = _sampled(characters, rows, _places(len(rows), style, generator))
    np.exp((style.edge - lines) / style.blur, out=lines)
    bare = math.exp(style.edge / style.blur)  # what no ink at all would leave of a line
    lines = (1 / (1 + lines) - 1 / (1 + bare)).reshape(-1, 1, SIDE, SIDE)
    grey = style.paper + (style.ink - style.paper) * lines
    grey += style.noise * generator.standard_normal(grey.shape, dtype=np.float32)
    pictures: np.ndarray = np.rint(255 * grey.clip(0, 1)).astype(np.uint8)
    return pictures


def _places(count: int, style: Style, generator: np.random.Generator) -> np.ndarray:
    """Where in its character, from -1 to 1, every picture looks for each of its points; no two are drawn alike."""
    slant, turn, width, height, across, down = generator.standard_normal((6, count, 1), dtype=np.float32)
    slant, turn = style.slant + 0.05 * slant, style.turn + 0.05 * turn
    width, height = style.width * np.exp(0.04 * width), style.height * np.exp(0.04 * height)
    y, x = np.indices((SIDE, SIDE), dtype=np.float32).reshape(2, -1) * (2 / (SIDE - 1)) - 1
    x, y = x - (style.across + 0.03 * across), y - (style.down + 0.03 * down)
    x, y = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
    return np.stack([(x + slant * y) / width, y / height])


def _sampled(characters: np.ndarray, rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Between the four nearest points; characters end in a margin, which is all that lies outside."""
    height, width = characters.shape[1:]
    x, y = ((places + 1) * np.array([width - 1, height - 1], np.float32)[:, None, None] / 2).clip(0, None)
    x, y = np.minimum(x, width - 1.01), np.minimum(y, height - 1.01)
    left, top = x.astype(np.int64), y.astype(np.int64)
    x, y = x - left.astype(np.float32), y - top.astype(np.float32)
    first, ink = rows[:, None] * (height * width) + top * width + left, characters.ravel()
    above = ink[first] * (1 - x) + ink[first + 1] * x
    below = ink[first + width] * (1 - x) + ink[first + width + 1] * x
    between: np.ndarray = above * (1 - y) + below * y
    return between
