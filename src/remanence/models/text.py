"""fastText: the mean of the words' vectors and one hidden layer.

An embedding and a masked mean instead of `EmbeddingBag`, which `torch.func.vmap` runs sample by sample only.
"""

from collections import OrderedDict
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from remanence.data.text import LARGEST, PAD
from remanence.errors import UserError
from remanence.models.classifier import Classifier
from remanence.registry import models, options


class MeanOfWords(nn.Module):
    """Rows of token numbers, floats or integers, to the mean of their vectors; of padding alone, to zeros."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.long()
        tokens = torch.where(tokens == x, tokens, -1)  # what is no whole number has no vector
        try:
            # A sparse gradient is added to the dense one row by row: no pass over the whole table.
            vectors = F.embedding(tokens, self.table.weight, sparse=self.training)
        except IndexError:
            raise UserError(
                f"model.vocabulary: an input is no token number of it; allowed are whole numbers from 0 to "
                f"{self.table.num_embeddings - 1}"
            ) from None
        real = (tokens != PAD).to(vectors.dtype).unsqueeze(-1)
        return torch.sum(vectors * real, 1) / real.sum(1).clamp(min=1)


@models.register("fasttext")
@options
class FastText:
    """Mean of word vectors, Linear, ReLU, head; 2,010,704 parameters at 20,002 token numbers and 4 classes."""

    name: ClassVar[str]

    vocabulary: int = Field(20_002, ge=3, le=LARGEST, description="token numbers, at least those of the dataset")
    embedding: PositiveInt = 100
    hidden: PositiveInt = 100

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        if len(shape) != 1 or shape[0] < 1:
            raise UserError(f"model '{self.name}' needs rows of token numbers (length,); got shape {tuple(shape)}")
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            words=MeanOfWords(self.vocabulary, self.embedding),
            fc1=nn.Linear(self.embedding, self.hidden),
            relu1=nn.ReLU(inplace=True),
        )
        return Classifier(nn.Sequential(layers), self.hidden, classes)
