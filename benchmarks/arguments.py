"""Command lines whose mistakes end in one line."""

import argparse
from typing import Literal, NoReturn

from remanence.errors import UserError


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return int(text)


def workers(text: str) -> int | Literal["auto"]:
    return "auto" if text == "auto" else positive(text)
