"""JSON files too large to be decoded whole: their members are read one after another."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from remanence.data.files import first_line, reading
from remanence.errors import UserError

_CHUNK = 1 << 22  # letters read at a time
_SPACE = " \t\r\n"
_NUMBER = {"", *"0123456789.eE+-"}
_DECODER = json.JSONDecoder()


class JsonText:
    """A window that moves over the text; whatever is wrong with it ends in one line that names the file."""

    def __init__(self, stream: TextIO, path: Path) -> None:
        self.stream, self.path = stream, path
        self.text, self.place = "", 0

    def members(self) -> Iterator[str]:
        """The keys of the object that comes next; each value must be taken before the next key."""
        self._take("{")
        if self._next() == "}":
            self._take("}")
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                raise self._broken("a name in quotes was expected")
            self._take(":")
            yield key
            if self._take(",}") == "}":
                return

    def value(self) -> Any:
        """What comes next, decoded."""
        self._next()
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.place)
            except json.JSONDecodeError as error:
                if not self._more():
                    raise self._broken(first_line(error)) from None
            else:
                if self.text[end : end + 1] not in _NUMBER or not self._more():  # a number may go on
                    self.place = end
                    return value

    def record(self) -> str:
        """The text of the object that comes next, which has lists and numbers in it but no further object."""
        if self._next() != "{":
            raise self._broken("an object in braces was expected")
        while (end := self.text.find("}", self.place)) < 0:
            if not self._more():
                raise self._broken("it ends too early")
        start, self.place = self.place, end + 1
        return self.text[start : self.place]

    def _take(self, signs: str) -> str:
        """The next sign, which must be one of these."""
        sign = self._next()
        if not sign or sign not in signs:
            found = f"found {sign!r}" if sign else "it ends too early"
            raise self._broken(f"expected {' or '.join(map(repr, signs))}, {found}")
        self.place += 1
        return sign

    def _next(self) -> str:
        """The next sign that is no space; empty at the end."""
        while True:
            while self.place < len(self.text) and self.text[self.place] in _SPACE:
                self.place += 1
            if self.place < len(self.text):
                return self.text[self.place]
            if not self._more():
                return ""

    def _more(self) -> bool:
        chunk = self.stream.read(_CHUNK)
        if chunk:
            self.text, self.place = self.text[self.place :] + chunk, 0
        return bool(chunk)

    def _broken(self, why: str) -> UserError:
        return UserError(f"{self.path}: broken or not a JSON file ({why})")


@contextmanager
def json_text(path: Path) -> Iterator[JsonText]:
    with reading(path, "JSON"), path.open(encoding="utf-8") as stream:
        yield JsonText(stream, path)
