"""Tiny-ImageNet: 100,000 and 10,000 colour images of 64x64 in 200 classes, from the original folder or NPZ files.

The test part is the published validation part: the labels of the published test part are not public.
"""

from pathlib import Path

from remanence.data.assemble import About
from remanence.data.hub import HubName
from remanence.data.named import Known, load_named
from remanence.data.samples import Dataset
from remanence.data.tiny_imagenet import ADVICE, CLASSES, tiny_imagenet_parts
from remanence.registry import datasets, options

_KNOWN = Known(
    about=About("tiny-imagenet", "", CLASSES, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    shape=(3, 64, 64),
    hub=HubName("zh-plus/tiny-imagenet", test="valid", label="label"),
    advice=f"{ADVICE}, or an npz file",
)


@datasets.register("tiny-imagenet")
@options
class TinyImagenet:
    """Objects and animals in 200 classes; pictures need the extra `images`, an NPZ file does not."""

    path: Path | None = None

    def load(self) -> Dataset:
        return load_named(_KNOWN, self.path, tiny_imagenet_parts)
