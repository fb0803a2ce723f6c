"""A measured process: plays as many rounds as its standard input says, and answers how long they took."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TextIO

from benchmarks.workloads import WORKLOADS, Settings
from remanence.errors import RunError, UserError

Playing = AbstractContextManager[tuple[Callable[[int], None], dict[str, Any]]]


def player(role: str, values: dict[str, Any]) -> Playing:
    """Every role imports only what it needs: imports count as memory and as time to the first round."""
    if role == "raw":
        from benchmarks.raw_loop import raw_loop

        return raw_loop(Settings(**values))
    if role == "remanence":
        from benchmarks.federated import federated

        return federated(Settings(**values))
    if role == "bare":
        from benchmarks.bare_loop import bare_loop

        return bare_loop(Settings(**values))
    if role == "tiny":
        from benchmarks.tiny_fleet import TinyFleet, tiny_rounds

        return tiny_rounds(TinyFleet(**values))
    assert role == "data"
    return _writing(Settings(**values))


@contextmanager
def _writing(settings: Settings) -> Iterator[tuple[Callable[[int], None], dict[str, Any]]]:
    from benchmarks.synthetic import write_data

    yield lambda _: write_data(WORKLOADS[settings.workload], Path(settings.folder)), {}


def serve(role: str, values: dict[str, Any], answers: TextIO) -> None:
    try:
        with player(role, values) as (play, facts):
            for line in sys.stdin:
                started = time.perf_counter()
                play(int(line))
                _answer(answers, {"seconds": time.perf_counter() - started, **facts})
    except (UserError, RunError) as error:
        _answer(answers, {"failed": str(error), "user": isinstance(error, UserError)})


def _answer(answers: TextIO, content: dict[str, Any]) -> None:
    answers.write(json.dumps(content) + "\n")
    answers.flush()


def _answers_alone() -> TextIO:
    """The pipe to the parent; whatever a library prints goes to the error stream instead."""
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return pipe


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when it ends
    serve(sys.argv[1], json.loads(sys.argv[2]), _answers_alone())
