"""The two ways a command ends badly, and the sentence that helps a mistyped name."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """What the user gave is wrong: one or two clear lines, exit code 2."""


class RunError(Exception):
    """A run failed while running: one or two clear lines, exit code 1."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """`did you mean ...?` and the list of valid names, for the end of an error line."""
    names = sorted(set(known))
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return f"{hint}Known: {', '.join(names) or 'none'}"
