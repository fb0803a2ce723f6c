"""`python -m benchmarks NAME [options]`: one measurement, one answer."""

import importlib
import sys
from collections.abc import Sequence

from benchmarks.arguments import Parser
from benchmarks.show import text_of
from benchmarks.workloads import WORKLOADS
from remanence.errors import RunError, UserError, suggestion

COMMANDS = {
    **{name: ("benchmarks.speed", f"speed: {workload.summary}") for name, workload in WORKLOADS.items()},
    "startup": ("benchmarks.startup", "seconds until the import, the help and the first round are there"),
    "memory": ("benchmarks.memory", "peak memory and disk of a large fleet with a state per device"),
    "merge": ("benchmarks.merge", "the server's average against plain ways to write it"),
    "resume": ("benchmarks.resume", "seconds to write and to read a checkpoint"),
    "selection": ("benchmarks.selection", "groups that selectors find, against the proven optimum"),
}


def main(words: Sequence[str]) -> int:
    try:
        print(_answer(words))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _answer(words: Sequence[str]) -> str:
    if words and words[0] in ("-h", "--help"):
        return "\n".join(["python -m benchmarks NAME [--help]", "", *_overview()])
    if not words:
        raise UserError(f"which benchmark? {suggestion('', COMMANDS)}")
    command = words[0]
    if command not in COMMANDS:
        raise UserError(f"unknown benchmark '{command}'; {suggestion(command, COMMANDS)}")
    place, summary = COMMANDS[command]
    module = importlib.import_module(place)  # only now: some of them load torch
    parser = Parser(prog=f"python -m benchmarks {command}", description=summary)
    module.arguments(parser)
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    given = parser.parse_args(words[1:])
    return text_of(module.measure(command, given), given.json)


def _overview() -> list[str]:
    width = max(map(len, COMMANDS))
    return [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
