"""What a person can get wrong ends in one or two lines that name it, with exit code 2, before anything is run."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pydantic
import pytest

from remanence import commands
from remanence.catalogue import entries
from remanence.cli import main
from remanence.config import FIXED, DataTable, DevicesTable, General
from remanence.registry import datasets, methods, models, partitions, parts
from system.conftest import ACCEPTED, Call
from system.running import refused


def setting(*settings: str) -> list[str]:
    return ["run", "good.toml", *(part for one in settings for part in ("--set", one))]


UNKNOWN = [
    (["rnu", "good.toml"], "unknown command 'rnu'", "did you mean 'run'"),
    (["run", "demoo"], "demoo: neither a file nor a recipe", "did you mean 'demo'"),
    (["run", "nothing/there.toml"], "nothing/there.toml"),
    (["run", "good.toml", "--rouns", "3"], "--rouns"),
    (["list", "methodz"], "unknown kind 'methodz'", "did you mean 'methods'"),
    (["show", "fedprx"], "'fedprx'", "did you mean 'fedprox'"),
    (["compare", "good.toml", "--methods", "fedavg,fedprx"], "--methods", "did you mean 'fedprox'"),
    (["compare", "good.toml", "--methods", "fedavg,fedavg"], "method.label", "fedavg"),
    (["compare", "good.toml", "good.toml"], "label", "fedavg"),
    (["compare", "good.toml", "--seeds", "0"], "--seeds"),
    (["compare", "good.toml", "--seeds", "two"], "--seeds"),
    (["report", "nothing-here"], "nothing-here", "not a run folder"),
    (["report", "good.toml"], "good.toml", "not a run folder"),
    (["report", "."], "not a run folder"),
    (["compare"], "compare"),
    (["show"], "name"),
    (["list"], "methods|parts"),
    (["--nonsense"], "--nonsense"),
    (["run", "good.toml", "more.toml"], "more.toml"),
    (setting("rounds"), "--set rounds"),
    (setting("=3"), "--set =3"),
    (setting("train.lr.x=3"), "--set train.lr.x=3"),
    (setting("rounds.x=3"), "--set rounds.x=3"),
    (setting("rouns=3"), "rouns", "did you mean 'rounds'"),
    (setting("trian.lr=3"), "trian", "did you mean 'train'"),
    (setting("train.lrr=3"), "train.lrr", "did you mean 'lr'"),
    (setting("devices.alhpa=3"), "devices.alhpa", "did you mean 'alpha'"),
    (setting("engine.wrkers=3"), "engine.wrkers", "did you mean 'workers'"),
    (setting("checkpoint.evry=3"), "checkpoint.evry", "did you mean 'every'"),
    (setting("measure.evry=3"), "measure.evry", "did you mean 'every'"),
    (setting("seeds.smpling=3"), "seeds.smpling", "did you mean 'sampling'"),
    (setting("model.hiden=[3]"), "model.hiden", "did you mean 'hidden'"),
    (setting("method=fedprox", "method.mmu=1"), "method.mmu", "did you mean 'mu'"),
    (setting("method=fedadam", "method.etta=1"), "etta", "did you mean 'eta'"),
    (setting("optimise=fedadam", "optimise.etta=1"), "optimise.etta", "did you mean 'eta'"),
    (setting("method=fedprx"), "method", "did you mean 'fedprox'"),
    (setting("model=mpl"), "model", "did you mean 'mlp'"),
    (setting("data.name=digit"), "data.name", "did you mean 'digits'"),
    (setting("devices.partition=dirichle"), "devices.partition", "did you mean 'dirichlet'"),
    (setting("select=unifrm"), "select", "did you mean 'uniform'"),
    (setting("merge=meen"), "merge", "did you mean 'mean'"),
    (setting("optimise=fedadm"), "optimise", "did you mean 'fedadam'"),
    (setting("privacy=none1"), "privacy", "did you mean 'none'"),
    (setting("topology=flatt"), "topology", "did you mean 'flat'"),
    (setting("attack=nune"), "attack", "did you mean 'none'"),
    (setting("data=3"), "data"),
    (setting("data.name=5"), "data.name"),
    (setting("model.name=5"), "model.name"),
    (setting("method.name=[1]"), "method.name"),
    (setting("method=[]"), "method"),
    (setting("method=[5]"), "method"),
    (setting("merge.name=true"), "merge"),
    (setting("name=../../etc"), "name"),
    (setting("name=''"), "name"),
    (setting('label="a\\u0000b"'), "label"),
]


@pytest.mark.usefixtures("plays_nothing")
@pytest.mark.parametrize(("arguments", "words"), [(a, w) for a, *w in UNKNOWN], ids=[" ".join(a) for a, *_ in UNKNOWN])
def test_unknown_names_and_wrong_calls(arguments: list[str], words: list[str], call: Call) -> None:
    refused(call(*arguments), *words)


FILES = {
    "broken.toml": b"rounds = = 3",
    "bytes.toml": b"\xff\xfe\x00name",
    "list.toml": b"[[train]]\nlr = 1\n",
    "twice.toml": b"rounds = 1\nrounds = 2\n",
    "wrong.toml": b"rounds = 'many'",
    "deep.toml": b"x = " + b"[" * 5000 + b"]" * 5000,
    "dotted.toml": b".".join([b"a"] * 5000) + b" = 1",
    "number.toml": b"rounds = " + b"9" * 5000,
    "hexadecimal.toml": b"rounds = 0x" + b"f" * 5000,
}


@pytest.mark.usefixtures("plays_nothing")
@pytest.mark.parametrize("name", FILES)
def test_broken_experiment_files(name: str, call: Call, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    refused(call("run", name), "train" if name == "list.toml" else "")


@pytest.mark.usefixtures("plays_nothing")
def test_a_folder_is_not_an_experiment(call: Call, tmp_path: Path) -> None:
    refused(call("run", tmp_path), str(tmp_path))
    refused(call("run", "x" * 5000), "xxx")
    refused(call("run", "a\0b"))


# Every option that there is, with values of every wrong kind.

Field = tuple[str, list[str], dict[str, Any]]  # key, settings that make it exist, JSON schema


def all_fields() -> Iterator[Field]:
    yield from fields(General, "", [])
    for section, cls in {**FIXED, "data": DataTable, "devices": DevicesTable}.items():
        yield from fields(cls, section, [])
    for name in partitions.names():
        yield from fields(partitions.get(name), "devices", [f"devices.partition={name}", *without_alpha(name)])
    for section, registry in {"model": models, "method": methods, **parts}.items():
        for name in registry.names():
            if name not in registry.combinations:
                yield from fields(registry.get(name), section, [f"{section}={name}"])
    for name in datasets.names():
        must = [setting for setting in MUST if setting.partition("=")[0].removeprefix("data.") in required(name)]
        yield from fields(datasets.get(name), "data", [*must, f"data.name={name}"])


MUST = ("data.path=good.toml", "data.dataset=some/thing")  # what some datasets cannot do without


def required(dataset: str) -> list[str]:
    found: list[str] = pydantic.TypeAdapter(datasets.get(dataset)).json_schema().get("required", [])
    return found


def without_alpha(partition: str) -> list[str]:
    """The good file has alpha, which only two partitions know."""
    return (
        []
        if partition.startswith("dirichlet")
        else ["devices={count=8, per_round=4}", f"devices.partition={partition}"]
    )


def fields(cls: type[Any], section: str, needs: list[str]) -> Iterator[Field]:
    for name, schema in pydantic.TypeAdapter(cls).json_schema().get("properties", {}).items():
        yield f"{section}.{name}".strip("."), needs, schema


def wrong_values(schema: dict[str, Any]) -> set[str]:
    """TOML values that no reading of the schema allows."""
    if "anyOf" in schema:
        kinds = [wrong_values(kind) for kind in schema["anyOf"] if kind.get("type") != "null"]
        return set.intersection(*kinds)
    anything = {"nan", "inf", "-inf", "[[]]", "{a = 1}", "1979-05-27", "-1", "-0.5", "1e400"}
    if "enum" in schema or "const" in schema:
        return anything | {"nonsense", "''", "5", "true", "[]"}
    kind = schema["type"]
    if kind in ("number", "integer"):
        return anything | {"text", "''", "true", "false", "[1]", "[]", "'7'"} | beyond(schema)
    if kind == "string":
        return anything | {"5", "true", "['a']", "[]"}
    if kind == "boolean":
        return anything | {"text", "'yes'", "5", "[]", "[true]"}
    assert kind == "array", schema
    inner = schema.get("items") or schema["prefixItems"][0]
    return anything | {"5", "true", "text"} | {f"[{value}]" for value in wrong_values(inner)}


def beyond(schema: dict[str, Any]) -> set[str]:
    allowed_below = -0.5 if not {"minimum", "exclusiveMinimum"} & set(schema) else None
    assert allowed_below is None, "no option may be any number, also a negative one"
    beyond_ends = {"0"} if schema.get("exclusiveMinimum") == 0 or schema.get("minimum") == 1 else set()
    if "maximum" in schema or "exclusiveMaximum" in schema:
        beyond_ends |= {"1" + "0" * 30, str(schema.get("exclusiveMaximum", schema.get("maximum", 0) + 1))}
    return beyond_ends | ({"1.5"} if schema["type"] == "integer" else set())


FIELDS = list(all_fields())


@pytest.mark.parametrize(
    ("key", "needs", "schema"), FIELDS, ids=[" ".join([key, *needs[-1:]]) for key, needs, _ in FIELDS]
)
@pytest.mark.usefixtures("plays_nothing")
def test_wrong_types_and_ranges(
    key: str, needs: list[str], schema: dict[str, Any], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    if needs and needs[-1].startswith("data.name="):
        from remanence.runs.play import play

        monkeypatch.setattr(commands, "play", play)  # a dataset's own options are looked at when it is loaded
    wrong = []
    for value in sorted(wrong_values(schema)):
        ended = call(*setting(*needs, f"{key}={value}"))
        try:
            refused(ended, key)
        except AssertionError as error:
            wrong.append(f"{key}={value}: {ended.err.strip() or error}")
    assert wrong == []


HUGE = "1" + "0" * 30


@pytest.mark.parametrize(
    ("key", "needs", "schema"),
    [f for f in FIELDS if not f[0].startswith("data.")],
    ids=[" ".join([key, *needs[-1:]]) for key, needs, _ in FIELDS if not key.startswith("data.")],
)
@pytest.mark.usefixtures("plays_nothing")
def test_huge_values_are_refused_or_understood(key: str, needs: list[str], schema: dict[str, Any], call: Call) -> None:
    """No number is too long for the answer."""
    for value in (HUGE, f"[{HUGE}, {HUGE}]", "'" + "x" * 10_000 + "'"):
        ended = call(*setting(*needs, f"{key}={value}"))
        if ended.code != ACCEPTED:
            refused(ended, key.partition(".")[0])


@pytest.mark.parametrize(
    "settings",
    [
        ["train.epochs=1000000000000"],
        ["train.epochs=1" + "0" * 30],
        ["model.hidden=[1000000000000]"],
        ["model.hidden=[1" + "0" * 30 + "]"],
        ["model=simple-cnn", "model.hidden=1000000000000"],
    ],
)
def test_what_no_memory_can_hold(settings: Sequence[str], call: Call) -> None:
    """Allowed by its range, impossible on any machine: still one line."""
    if settings[0].startswith("model=simple"):
        settings = ["model={name='simple-cnn'}", *settings[1:]]
    ended = call(*setting(*settings), "--quiet")
    refused(ended, code=ended.code)
    assert ended.code in (1, 2)


def test_many_mistakes_are_two_lines(call: Call) -> None:
    refused(call(*setting("train.lr=-1", "train.epochs=0", "train.momentum=2", "train.clip=-1")), "train.")


COMBINATIONS = [
    (["devices.per_round=9"], "devices.per_round", "8 devices"),
    (["devices.sites=9"], "devices.sites", "8 devices"),
    (["devices.count=5000"], "devices.count", "samples"),
    (["devices.count=1000"], "devices.smallest", "1438"),
    (["devices={count=7, per_round=2, partition='shards'}"], "devices.per_device", "14 shards", "10 classes"),
    (["devices={count=5, per_round=2, partition='shards', per_device=400}"], "devices.per_device"),
    (["devices={count=5, per_round=2, partition='natural'}"], "devices.partition", "data.group"),
    (["devices.sites=4", "devices.skew=sites", "devices.count=1400", "devices.smallest=1"], "devices.count"),
    (["data.public=5000"], "data.public"),
    (["method=fednova", "method.mu=0.1", "train.momentum=0.9"], "method.mu", "train.momentum"),
    (["method=fednova", "train.optimiser=adam"], "train.optimiser"),
    (["method=scaffold", "train.optimiser=adam"], "train.optimiser"),
    (["method=fedadam", "optimise=fedyogi"], "optimise", "fedyogi"),
    (["engine.cohort=on", "model={name='simple-cnn'}"], "engine.cohort"),
    (["engine.cohort=on", "engine.precision=bfloat16"], "engine.cohort", "bfloat16"),
    (["data.augment=standrd"], "data.augment", "did you mean 'standard'"),
    (["data.augment=fedntd"], "data.augment", "8x8"),
    (["data.path=nothing.npz"], "data.path", "nothing.npz"),
    (["data.path=good.toml"], "data.path", "good.toml"),
    (["data.name=npz"], "data.path", "must be given"),
    (["data.path=~nobody-of-this-name/x.npz"], "data.path"),
    (["data.path=" + "x" * 300 + ".npz"], "data.path"),
    (["data.name=digits", "data.path=good.toml"], "data.path"),
    (["data.name=hub", "data.dataset=some/thing"], "data.dataset"),
    (["model={name='vgg11'}"], "vgg11", "8"),
    (["model={name='mobilenet', norm='bn'}"], "mobilenet", "larger than 16x16"),
    (["model={name='fasttext'}"], "model.name", "fasttext", "digits", "token numbers"),
    (["data.name=ag-news", "data.path=nothing.csv"], "data.path", "nothing.csv"),
    (["data.name=text"], "data.path", "must be given"),
    (["data.name=tiny-imagenet", "data.path=good.toml"], "data.path", "good.toml", "not a folder"),
]


@pytest.mark.parametrize(
    ("settings", "words"), [(s, w) for s, *w in COMBINATIONS], ids=[" ".join(s) for s, *_ in COMBINATIONS]
)
def test_impossible_combinations(settings: list[str], words: list[str], call: Call) -> None:
    if settings[0] == "data.name=hub":
        pytest.importorskip("remanence")
        try:
            import datasets  # noqa: F401
        except ImportError:
            words = ["pip install 'remanence[hub]'"]
        else:
            pytest.skip("would ask the network")
    refused(call(*setting(*settings)), *words)


def test_nothing_is_written_for_bad_input(call: Call, tmp_path: Path) -> None:
    refused(call(*setting("devices.per_round=9")))
    refused(call(*setting("devices.count=5000")))
    refused(call("compare", "good.toml", "--methods", "fedavg,scaffold", "--set", "train.optimiser=adam"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.toml"]


def test_debug_shows_the_traceback() -> None:
    from remanence.errors import UserError

    with pytest.raises(UserError):
        main([*setting("rounds=0"), "--debug"])


def test_every_kind_that_can_be_listed_is_tried_above() -> None:
    """A new kind of thing must not escape the tables of this file."""
    tried = {"method", "model", "dataset", "partition", *parts}
    listed = {
        entry["kind"] for kind in ("methods", "parts", "models", "datasets", "partitions") for entry in entries(kind)
    }
    assert listed <= tried
