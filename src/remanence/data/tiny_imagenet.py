"""The folder of Tiny-ImageNet as published: `train/<class>/images`, `val/images` and `val/val_annotations.txt`."""

from pathlib import Path

from remanence.data.assemble import Raw
from remanence.data.files import read_bytes, reading
from remanence.data.pictures import Form, class_folders, decoded, pictures_in
from remanence.errors import UserError, suggestion

CLASSES = 200
ADVICE = "the unpacked folder tiny-imagenet-200 (train/<class>/images, val/images, val/val_annotations.txt)"
_ANNOTATIONS = "val_annotations.txt"

Files = list[tuple[Path, int]]  # pictures and their class numbers


def is_tiny_imagenet(folder: Path) -> bool:
    return (folder / "val" / _ANNOTATIONS).is_file()


def tiny_imagenet_parts(folder: Path) -> tuple[Raw, Raw, tuple[str, ...]]:
    """Training part, validation part for testing, and what the classes, in the order of their ids, are called."""
    if not folder.is_dir():
        raise UserError(f"data.path: {folder} is not a folder; give {ADVICE}, or an npz file")
    inner = folder / "tiny-imagenet-200"
    folder = inner if inner.is_dir() else folder
    ids = [inner.name for inner in class_folders(folder / "train")]
    if len(ids) != CLASSES:
        raise UserError(f"{folder}: incomplete: {len(ids)} class folders in train, expected {CLASSES} as in {ADVICE}")
    train, test = _training(folder / "train", ids), _validation(folder / "val", ids)
    parts = decoded(train, Form(), folder / "train"), decoded(test, Form(), folder / "val")
    return *parts, _names(folder / "words.txt", ids)


def _training(folder: Path, ids: list[str]) -> Files:
    files = [pictures_in(folder / name) for name in ids]
    most = max(map(len, files))
    for name, own in zip(ids, files, strict=True):
        if len(own) < most or not own:  # the published classes are equally large: some of it was not unpacked
            raise UserError(f"{folder / name}: incomplete: {len(own)} pictures, other classes have {most}")
    return [(path, number) for number, own in enumerate(files) for path in own]


def _validation(folder: Path, ids: list[str]) -> Files:
    number = {name: place for place, name in enumerate(ids)}
    present = {path.name: path for path in pictures_in(folder)}
    annotations = folder / _ANNOTATIONS
    files, missing = [], []
    for row, line in enumerate(_lines(annotations), 1):
        name, wnid = ([*line.split("\t"), ""])[:2]
        if wnid not in number:
            raise UserError(f"{annotations}: '{wnid}' in row {row} is no class of train; {_nearest(wnid, ids)}")
        if name in present:
            files.append((present.pop(name), number[wnid]))
        else:
            missing.append(name)
    if missing or not files:
        first = f", the first is {missing[0]}" if missing else ""
        raise UserError(f"{folder}: incomplete: {len(missing)} pictures of {_ANNOTATIONS} are missing{first}")
    if present:
        raise UserError(f"{annotations}: incomplete: {len(present)} pictures have no row, the first is {min(present)}")
    return files


def _nearest(name: str, ids: list[str]) -> str:
    return suggestion(name, ids).partition("Known:")[0] or "a row is the file's name, a tab, the class"


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise UserError(f"{path}: not found; expected {ADVICE}")
    data = read_bytes(path, "text")
    with reading(path, "text"):
        return [line for line in data.decode("utf-8").splitlines() if line.strip()]


def _names(path: Path, ids: list[str]) -> tuple[str, ...]:
    """The first of the words that each id stands for, where the list of words is there."""
    lines = _lines(path) if path.is_file() else []
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    return tuple(words.get(name, name).partition(",")[0].strip() for name in ids)
