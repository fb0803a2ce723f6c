"""The command line: parse, call, print. Exit codes: 0 fine, 1 the run failed, 2 the input is wrong."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from remanence import __version__
from remanence.errors import RunError, UserError, suggestion
from remanence.planning.arguments import add_arguments as add_plan_arguments

COMMANDS = ("run", "compare", "reproduce", "report", "plan", "list", "show", "doctor")


class Parser(argparse.ArgumentParser):
    """One line for a wrong call instead of a usage page."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message[:1].lower()}{message[1:]} (see: {self.prog} --help)")


def parser() -> Parser:
    main = Parser(prog="remanence", description="Federated learning across industrial devices that does not forget.")
    main.add_argument("--version", action="version", version=f"remanence {__version__}")
    commands = main.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    run = commands.add_parser("run", help="run an experiment file or a recipe (default: demo)")
    run.add_argument("experiment", nargs="?", default="demo", metavar="RECIPE|FILE.toml")
    _add_run_options(run)
    compare = commands.add_parser("compare", help="run several methods and seeds, paired, and print one table")
    compare.add_argument("experiments", nargs="+", metavar="RECIPE|FILE.toml")
    compare.add_argument("--methods", metavar="A,B,...", help="these methods, with their default options")
    compare.add_argument("--seeds", type=_positive, default=1, metavar="N", help="how many seeds (default 1)")
    compare.add_argument("--reference", metavar="A", help="differences are to this method (default: the first)")
    _add_run_options(compare)
    reproduce = commands.add_parser("reproduce", help="run a paper's table cell by cell and set ours beside published")
    reproduce.add_argument("table", metavar="TABLE", help="a table, or a paper for all of its tables: list tables")
    reproduce.add_argument("--cells", default="*", metavar="A,B,...", help="METHOD.SETTING, * stands for any letters")
    reproduce.add_argument("--rounds", type=_positive, metavar="N", help="only so many of the paper's rounds")
    reproduce.add_argument("--seeds", type=_positive, default=1, metavar="N", help="how many seeds (default 1)")
    reproduce.add_argument("--jobs", type=_positive, metavar="N", help="cells at a time (default: one per core)")
    reproduce.add_argument("--page-only", action="store_true", help="run nothing, write the page of what there is")
    reproduce.add_argument("--out", type=Path, metavar="DIR", help="where the page and the metrics are kept")
    reproduce.add_argument("--resume", action="store_true", help="go on in the newest folder; what is kept is not run")
    _add_settings(reproduce)
    _add_common(reproduce)
    report = commands.add_parser("report", help="write the page of a run, or of several together")
    report.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    report.add_argument("--out", type=Path, metavar="FILE.html")
    _add_common(report)
    plan = commands.add_parser("plan", help="the time of a round with and without edges, and when edges pay")
    add_plan_arguments(plan)
    _add_common(plan)
    listing = commands.add_parser("list", help="what there is")
    listing.add_argument("kind", metavar="methods|parts|models|datasets|partitions|streams|recipes|tables")
    listing.add_argument("--json", action="store_true")
    _add_common(listing)
    show = commands.add_parser("show", help="what a name means and which options it has")
    show.add_argument("name")
    show.add_argument("--json", action="store_true")
    _add_common(show)
    _add_common(commands.add_parser("doctor", help="look at this machine and say what is missing"))
    return main


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")


def _add_run_options(command: argparse.ArgumentParser) -> None:
    _add_settings(command)
    command.add_argument("--resume", action="store_true", help="go on where the newest run of this experiment stopped")
    _add_common(command)


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", dest="settings")
    command.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where run folders are made")
    command.add_argument("--json", action="store_true", help="the last line of output is one JSON object")
    command.add_argument("--quiet", action="store_true")


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    errors = Console(stderr=True, soft_wrap=True)
    try:
        code = _run(arguments)
        _flush_output()
        return code
    except KeyboardInterrupt:
        errors.print("remanence: stopped; what was written is kept, go on with --resume")
        return 1
    except BrokenPipeError:  # whoever read our output has gone
        with suppress(OSError):
            _flush_output()
        return 1
    except Exception as error:
        if "--debug" in arguments:
            raise
        errors.print(f"remanence: {_line(error)}", markup=False, highlight=False)
        with suppress(OSError):
            _flush_output()
        return 2 if isinstance(error, UserError) else 1


def _flush_output() -> None:
    """What cannot be printed is noticed here and not, with a traceback, when the interpreter ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _line(error: Exception) -> str:
    """An error in a line for people; one that nobody foresaw says how to find out more."""
    if isinstance(error, (UserError, RunError)):
        return str(error)
    text = str(error).strip().partition("\n")[0][:200]
    if isinstance(error, MemoryError) or "can't allocate memory" in text:
        return "not enough memory: try a smaller model, batch or number of devices"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'the output'}: {error.strerror.lower()}"
    return f"unexpected {type(error).__name__}: {text} (--debug shows where)"


def _run(arguments: Sequence[str]) -> int:
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        raise UserError(f"unknown command '{arguments[0]}'; {suggestion(arguments[0], COMMANDS)}")
    parsed = parser().parse_args(arguments)
    if parsed.command is None:
        parser().print_help()
        return 0
    # Each command imports what it needs: --help and errors in a call answer at once.
    from remanence import commands

    getattr(commands, parsed.command)(parsed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
