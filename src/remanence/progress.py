"""What a person sees while a run goes on: a bar in a terminal, plain lines elsewhere."""

import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 5.0


class Reporter:
    """Shows the events of one or more runs; quiet shows nothing."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.bar: Progress | None = None
        self.task: TaskID | None = None
        self.label = ""
        self.last_line = 0.0

    def __enter__(self) -> "Reporter":
        if not self.quiet and self.console.is_terminal:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[facts]}"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def tell(self, kind: str, facts: dict[str, Any], label: str) -> None:
        if not self.quiet:
            getattr(self, f"_{kind}")(facts, label)

    def _line(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _start(self, facts: dict[str, Any], label: str) -> None:
        self.rounds, self.accuracy, self.last_line = facts["rounds"], None, time.monotonic()
        self._line(
            f"{label}: {facts['dataset']}, {_fleet(facts)}, "
            f"{facts['model']} ({facts['parameters']:,} parameters), {facts['rounds']} rounds"
        )
        for note in facts["notes"]:
            self._line(f"  note: {note}")
        if self.bar is not None:
            self.task = self.bar.add_task(label, total=facts["rounds"], facts="")

    def _engine(self, facts: dict[str, Any], label: str) -> None:
        self._line(f"  engine: {facts['line']}")

    def _resume(self, facts: dict[str, Any], label: str) -> None:
        self._line(f"  goes on after round {facts['round']}")
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=facts["round"])

    def _round(self, facts: dict[str, Any], label: str) -> None:
        self.accuracy = facts.get("accuracy", self.accuracy)
        text = f"accuracy {self.accuracy:.3f}" if self.accuracy is not None else ""
        if facts["refused"]:
            text += f"  refused {len(facts['refused'])}"
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=facts["round"], facts=text)
        elif time.monotonic() - self.last_line > SECONDS_BETWEEN_LINES:
            self.last_line = time.monotonic()
            self._line(f"  round {facts['round']}/{self.rounds}  {text}")

    def _finished(self, facts: dict[str, Any], label: str) -> None:
        self._line(f"{label}: already finished, in {facts['path']}")

    def _end(self, facts: dict[str, Any], label: str) -> None:
        if facts["idle_rounds"]:
            self._line(f"  note: in {facts['idle_rounds']} of {facts['rounds']} rounds no device had data to train on")
        accuracy = "not measured" if facts["accuracy"] is None else f"{facts['accuracy']:.4f}"
        self._line(f"{label}: done in {facts['seconds']:.1f} s, accuracy {accuracy}, in {facts['run']}")


def _fleet(facts: dict[str, Any]) -> str:
    if not facts["edges"]:
        return f"{facts['devices']} devices, {facts['per_round']} per round"
    sites, turns = len(set(facts["sites"])), facts["iterations"]
    return (
        f"{facts['devices']} devices in {sites} sites, {facts['per_round']} of each site in {turns} exchanges a round"
    )


class CellProgress:
    """Several runs at a time: one bar for all of their rounds, and a line when one of them moves on."""

    def __init__(self, console: Console, quiet: bool, rounds: int) -> None:
        self.console, self.quiet, self.rounds = console, quiet, rounds
        self.played: dict[str, int] = {}
        self.bar: Progress | None = None
        self.last_line = time.monotonic()

    def __enter__(self) -> "CellProgress":
        if not self.quiet and self.console.is_terminal and self.rounds:
            self.bar = Progress(
                TextColumn("rounds"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[facts]}"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self.bar.add_task("rounds", total=self.rounds, facts="")
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def say(self, text: str) -> None:
        if not self.quiet:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def tell(self, cell: str, played: int, wanted: int) -> None:
        before = self.played.get(cell)
        self.played[cell] = played
        if played >= wanted and before is not None and before < wanted:
            self.say(f"{cell}: {played} rounds played")
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=sum(self.played.values()), facts=f"{cell} {played}")
        elif time.monotonic() - self.last_line > 10 * SECONDS_BETWEEN_LINES:
            self.last_line = time.monotonic()
            self.say("  " + ", ".join(f"{name} {count}" for name, count in self.played.items()))
