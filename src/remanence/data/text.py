"""Text as rows of token numbers, in a vocabulary counted in the training part alone.

Number 0 pads short texts at the end, 1 stands for every token outside the vocabulary, and the most frequent tokens
follow, those of equal frequency in alphabetical order. Rows are stored like any other table, in float32, which is
exact up to 2^24.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

import numpy as np

from remanence.data import checks
from remanence.data.assemble import About, Raw, assemble, divided
from remanence.data.samples import Dataset
from remanence.errors import UserError

PAD, UNKNOWN = 0, 1
LARGEST = 2**24  # token numbers that float32 tells apart
Unit = Literal["words", "characters"]

_UNITS: dict[Unit, re.Pattern[str]] = {"words": re.compile(r"\w+"), "characters": re.compile(r"\S")}


@dataclass(frozen=True)
class Texts:
    """Labelled texts as read; labels are not checked yet."""

    content: Sequence[str]
    y: np.ndarray
    where: str  # the file, for error lines
    group: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> "Texts":
        group = None if self.group is None else self.group[rows]
        return replace(self, content=[self.content[row] for row in rows], y=self.y[rows], group=group)


@dataclass(frozen=True)
class Form:
    """What every text is turned into."""

    vocabulary: int  # token numbers, with those for padding and for the unknown
    length: int
    unit: Unit = "words"

    def tokens(self, text: str) -> list[str]:
        return _UNITS[self.unit].findall(text.lower())


def joined(columns: Sequence[Iterable[str | None]]) -> list[str]:
    """One text per row; a missing cell is an empty one."""
    return [" ".join(part or "" for part in row) for row in zip(*columns, strict=True)]


def text_dataset(texts: Texts, form: Form, share: float, about: About) -> Dataset:
    """Divided by class in file order, then numbered."""
    if not len(texts.y):
        raise UserError(f"{texts.where}: is empty: no samples")
    numbers, classes, names = checks.class_numbers([(texts.y, texts.where)], about.classes, about.class_names)
    train, test = divided(numbers[0], share, texts.where)
    words = vocabulary((form.tokens(texts.content[row]) for row in train), form.vocabulary)
    if len(words) <= UNKNOWN + 1:
        raise UserError(f"{texts.where}: there are no {form.unit} in the texts of the training part")
    whole = Raw(numbered(texts.content, words, form), numbers[0], texts.where, texts.group)
    known = replace(about, classes=classes, class_names=(), normalise="none")
    return replace(assemble(whole.take(train), whole.take(test), known), labels=names, words=words)


def vocabulary(texts: Iterable[Sequence[str]], size: int) -> tuple[str, ...]:
    """What each number stands for; `size` numbers at most."""
    counts = Counter(chain.from_iterable(texts))
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ("<pad>", "<unknown>", *(word for word, _ in order[: size - 2]))


def numbered(texts: Sequence[str], words: Sequence[str], form: Form) -> np.ndarray:
    """The first tokens of each text as a row of numbers."""
    number = {word: place for place, word in enumerate(words) if place > UNKNOWN}
    x = np.full((len(texts), form.length), PAD, dtype=np.float32)
    for row, text in enumerate(texts):
        kept = form.tokens(text)[: form.length]
        x[row, : len(kept)] = [number.get(token, UNKNOWN) for token in kept]
    return x
