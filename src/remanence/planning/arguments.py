"""`remanence plan`: its arguments, and what they say."""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remanence.errors import UserError
from remanence.planning.times import Band, Links, Scenario

MEGA = 1e6
BITS = 32  # of a parameter that is sent
MOST = 10**9  # sites, devices of a site, iterations


@dataclass(frozen=True)
class Range:
    low: float
    high: float
    unit: str = ""
    count: int = 1  # so many numbers between commas, or one for all of them

    def __str__(self) -> str:
        many = {1: "a number", 2: "one number or two", 3: "one number or three"}[self.count]
        return f"{many} from {self.low:g} to {self.high:g}{self.unit}"


SHARE = Range(0, 1)
SECONDS = Range(0, 1e9, " s")
MEGAHERTZ = Range(1e-9, 1e9, " MHz", 2)
RATIO = Range(1e-12, 1e12, "", 3)
DECIBEL = Range(-120, 120, " dB", 3)


def add_arguments(plan: argparse.ArgumentParser) -> None:
    plan.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="runs whose time to --accuracy is wanted")
    plan.add_argument("--accuracy", metavar="A", help="between 0 and 1")
    size = plan.add_argument_group("the model: one of").add_mutually_exclusive_group(required=True)
    size.add_argument("--model", metavar="NAME", help="with --shape and --classes: remanence list models")
    size.add_argument("--parameters", metavar="N", help="32 bits each")
    size.add_argument("--bits", metavar="N")
    plan.add_argument("--shape", metavar="C,H,W", help="of a sample, for --model")
    plan.add_argument("--classes", metavar="N", help="for --model")
    plan.add_argument(
        "--set", action="append", default=[], metavar="model.KEY=VALUE", dest="settings", help="for --model"
    )
    _add_links(plan)
    plan.add_argument("--sites", default="10", metavar="M", help="default 10")
    plan.add_argument("--devices-per-site", default="10", metavar="L", help="that take part; default 10")
    plan.add_argument("--iterations", default="50", metavar="T", help="within a site in a round; default 50")
    plan.add_argument("--select-seconds", default="0", metavar="S", help="to choose devices, before an exchange")
    plan.add_argument("--compute-seconds", default="0", metavar="S", help="for a step of a device")
    plan.add_argument("--picture", metavar="FILE", help=".svg, .png or .html: which T, M and L pay")
    plan.add_argument("--json", action="store_true", help="one JSON object instead of a table")


def _add_links(plan: argparse.ArgumentParser) -> None:
    both = "one number, or UP,DOWN"
    plan.add_argument("--external", required=True, metavar="MHZ", help=f"bandwidth between cloud and sites: {both}")
    plan.add_argument("--internal", required=True, metavar="MHZ", help=f"bandwidth within a site: {both}")
    all_three = "one number, or CLOUD,STATION,DEVICE, each where it is received"
    noise = plan.add_argument_group("signal to noise: one of").add_mutually_exclusive_group(required=True)
    noise.add_argument("--snr", metavar="RATIO", help=f"linear: {all_three}")
    noise.add_argument("--snr-db", metavar="DB", help=f"in decibel, 10 lg of the ratio: {all_three} (--snr-db=-3,0,3)")


def scenario(given: argparse.Namespace) -> Scenario:
    return Scenario(
        links=_links(given),
        bits=_bits(given),
        sites=_whole(given.sites, "--sites"),
        devices=_whole(given.devices_per_site, "--devices-per-site"),
        iterations=_whole(given.iterations, "--iterations"),
        select_seconds=_numbers(given.select_seconds, "--select-seconds", SECONDS)[0],
        compute_seconds=_numbers(given.compute_seconds, "--compute-seconds", SECONDS)[0],
    )


def accuracy(given: argparse.Namespace) -> float:
    if given.accuracy is None:
        raise UserError("--accuracy: must be given with RUN, such as 0.8")
    return _numbers(given.accuracy, "--accuracy", SHARE)[0]


def _links(given: argparse.Namespace) -> Links:
    external = _numbers(given.external, "--external", MEGAHERTZ)
    internal = _numbers(given.internal, "--internal", MEGAHERTZ)
    if given.snr is not None:
        ratios = _numbers(given.snr, "--snr", RATIO)
    else:
        ratios = [10 ** (each / 10) for each in _numbers(given.snr_db, "--snr-db", DECIBEL)]
    return Links(_band(external), _band(internal), *ratios)


def _band(megahertz: list[float]) -> Band:
    return Band(*(MEGA * each for each in megahertz))


def _bits(given: argparse.Namespace) -> float:
    if given.model is not None:
        return float(BITS * _parameters(given))
    for key, value in {"--shape": given.shape, "--classes": given.classes, "--set": given.settings}.items():
        if value:
            raise UserError(f"{key}: is for --model, which is not given")
    if given.bits is not None:
        return float(_whole(given.bits, "--bits", 10**15))
    return float(BITS * _whole(given.parameters, "--parameters", 10**13))


def _parameters(given: argparse.Namespace) -> int:
    """How many numbers a device sends, buffers included; none of them is made."""
    import torch

    from remanence.registry import models

    for key, value, example in (("--shape", given.shape, "1,28,28"), ("--classes", given.classes, "10")):
        if value is None:
            raise UserError(f"{key}: must be given with --model, such as {example}")
    shape = tuple(_whole(each, "--shape") for each in given.shape.split(","))
    classes = _whole(given.classes, "--classes")
    models.get(given.model, "--model")
    model = models.create(given.model, _model_options(given.settings), "model")
    try:
        with torch.device("meta"):
            module = model.build(shape, classes)
    except UserError as error:
        raise UserError(f"--shape: {error}") from None
    return sum(tensor.numel() for tensor in (*module.parameters(), *module.buffers()))


def _model_options(settings: list[str]) -> dict[str, Any]:
    from remanence.config import apply_settings

    tree = apply_settings({"model": {}}, settings)
    if list(tree) != ["model"] or not isinstance(tree["model"], dict):
        raise UserError("--set: must be model.KEY=VALUE; all else has an argument of its own")
    options: dict[str, Any] = tree["model"]
    return options


def _whole(text: str, key: str, most: int = MOST) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 20 or not 1 <= int(text) <= most:
        raise UserError(f"{key}: {text[:40]!r} is not allowed: must be a whole number from 1 to {most:,}")
    return int(text)


def _numbers(text: str, key: str, allowed: Range) -> list[float]:
    found = [_float(part) for part in text.split(",")]
    if len(found) not in (1, allowed.count) or not all(allowed.low <= each <= allowed.high for each in found):
        raise UserError(f"{key}: {text[:40]!r} is not allowed: must be {allowed}")
    return found * allowed.count if len(found) == 1 else found


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
