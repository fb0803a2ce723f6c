"""A paper's tables as a TOML suite: the experiment of every cell, and what the paper prints in it."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from remanence.config import Tree, load_toml
from remanence.errors import UserError, suggestion
from remanence.registry import explain, options

Metric = Literal[
    "accuracy",
    "test_loss",
    "client_acc_global",
    "forgetting",
    "memory",
    "links",
    "divergence",
    "selecting",
    "rounds_to_accuracy",
    "rounds_to_client_acc_global",
]


@options
class PaperTable:
    """One table: a row per method of `published`, a column per setting."""

    name: str
    title: str
    metric: Metric
    columns: list[str]
    published: dict[str, list[float]]  # fewer numbers than columns: the paper prints none there
    reference: str = ""  # the method whose last value is the target of rounds_to_...
    target: float | None = None  # or the target itself

    def cells(self) -> Iterator[tuple[str, str]]:
        methods = dict.fromkeys([*self.published, *filter(None, [self.reference])])
        yield from ((method, setting) for method in methods for setting in self.columns)


@options
class Reason:
    """Why ours may differ from what is published, in the cells that a pattern names."""

    cells: str
    text: str
    metric: Metric | None = None


@options
class Suite:
    source: str
    experiment: dict[str, Any]
    methods: dict[str, dict[str, Any]]
    settings: dict[str, dict[str, Any]]
    tables: list[PaperTable]
    reasons: list[Reason]

    def title(self, name: str) -> str:
        return str((self.methods.get(name) or self.settings[name])["title"])

    def cell(self, method: str, setting: str) -> Tree:
        """The experiment of one cell."""
        tree = _merged(self.experiment, _untitled(self.settings[setting]))
        tree = _merged(tree, self.methods[method].get("with", {}))
        return {**tree, "name": f"{method}.{setting}", "label": self.title(method), "method": self.own(method)}

    def own(self, method: str) -> Tree:
        """Its [method] table; what stands under "with" belongs to other tables of the experiment."""
        return {key: value for key, value in _untitled(self.methods[method]).items() if key != "with"}

    def chosen(self, tables: Sequence[PaperTable], patterns: Sequence[str]) -> list[tuple[str, str]]:
        """The cells of the tables that match a pattern, each once: tables share them."""
        cells = dict.fromkeys(cell for table in tables for cell in table.cells())
        names = [".".join(cell) for cell in cells]
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise UserError(f"--cells: no cell is called '{pattern}'; {suggestion(pattern, names)}")
        return [cell for cell in cells if any(fnmatchcase(".".join(cell), pattern) for pattern in patterns)]


def _untitled(table: Mapping[str, Any]) -> Tree:
    return {key: value for key, value in table.items() if key != "title"}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Tree:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def papers() -> dict[str, Path]:
    folder = resources.files("remanence") / "recipes" / "papers"
    files = sorted((Path(str(path)) for path in folder.iterdir()), key=lambda path: path.name)
    return {path.stem: path for path in files if path.suffix == ".toml"}


def load_suite(name: str, path: Path) -> Suite:
    try:
        suite: Suite = TypeAdapter(Suite).validate_python(load_toml(path.read_text(encoding="utf-8"), name))
    except ValidationError as error:
        raise UserError(explain(error, name)) from None
    return suite


def find_tables(name: str) -> tuple[str, Suite, list[PaperTable]]:
    """The paper, its suite and the tables meant: one by its name, or all by the paper's."""
    suites = {paper: load_suite(paper, path) for paper, path in papers().items()}
    if name in suites:
        return name, suites[name], suites[name].tables
    for paper, suite in suites.items():
        for table in suite.tables:
            if table.name == name:
                return paper, suite, [table]
    known = [*suites, *(table.name for suite in suites.values() for table in suite.tables)]
    raise UserError(f"reproduce: unknown table '{name}'; {suggestion(name, known)}")


def table_entries() -> list[dict[str, str]]:
    """For `remanence list tables`."""
    return [
        {"name": table.name, "kind": "table", "summary": table.title}
        for paper, path in papers().items()
        for table in load_suite(paper, path).tables
    ]
