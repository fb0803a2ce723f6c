"""The parent's side of a measured process. The parent never loads torch, whose pages it would share."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from remanence.errors import RunError, UserError

ROOT = Path(__file__).resolve().parents[1]


class Player:
    """A process that plays rounds when it is told to, and otherwise waits."""

    def __init__(self, role: str, values: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> None:
        self.role, self.started = role, time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.child", role, json.dumps(values)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
        )

    def __enter__(self) -> "Player":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(patience=5 if error is None else 0)

    def play(self, rounds: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended: what it said before is read below
            self.process.stdin.write(f"{rounds}\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RunError(f"the process '{self.role}' ended (exit code {self.process.wait()})")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise (UserError if answer["user"] else RunError)(answer["failed"])
        return answer

    def close(self, patience: float = 5) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
