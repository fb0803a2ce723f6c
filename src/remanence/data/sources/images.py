"""Folders of pictures (extra `images`)."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from remanence.data.assemble import About, Raw, assemble, assemble_whole
from remanence.data.files import existing
from remanence.data.pictures import Form, picture_parts
from remanence.data.samples import Dataset
from remanence.errors import UserError
from remanence.registry import datasets, options

_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@datasets.register("images")
@options
class Images:
    """`train/<class>/...` with `test/<class>/...` (or `val`), or `<class>/...` to be divided."""

    path: Path
    size: int | None = Field(default=None, ge=1, le=4096)  # side to which every picture is resized
    channels: Literal[1, 3] = 3
    test: float = Field(default=0.2, gt=0, lt=1)
    normalise: Literal["training", "imagenet", "none"] = "training"

    def load(self) -> Dataset:
        path = existing(self.path)
        parts, names = picture_parts(path, Form(self.channels, self.size))
        about = self._about(path, names)
        if isinstance(parts, Raw):
            return assemble_whole(parts, self.test, about)
        return assemble(*parts, about)

    def _about(self, path: Path, names: tuple[str, ...]) -> About:
        if self.normalise != "imagenet":
            return About(path.name, str(path), len(names), names, normalise=self.normalise)
        if self.channels != 3:
            raise UserError("data.normalise: 'imagenet' is not allowed with data.channels = 1; use 'training'")
        return About(path.name, str(path), len(names), names, *_IMAGENET)
