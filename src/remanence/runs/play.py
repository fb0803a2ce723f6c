"""Play an experiment into its folder: events as they come, checkpoints, exact resume, the result."""

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from remanence import __version__
from remanence.config import VOLATILE, Experiment, parse
from remanence.core.federation import Federation
from remanence.core.plan import Event, Plan
from remanence.engine.memory import keep_freed_blocks, one_thread
from remanence.errors import UserError
from remanence.experiment import Prepared, prepare
from remanence.measure.memory import PeakMemory
from remanence.measure.record import digest, summary
from remanence.measure.storage import state_bytes
from remanence.runs.devices import DeviceStates
from remanence.runs.folder import RunFolder, find, fresh

Listener = Callable[[str, dict[str, Any]], None]  # ("start" | "engine" | "resume" | "round" | "end", facts)


@dataclass
class Session:
    """One stretch of a run, from its start or a resume to its end or a kill."""

    experiment: Experiment
    folder: RunFolder
    tell: Listener
    memory: PeakMemory
    history: list[Event] = field(default_factory=list)
    saved_round: int = 0
    saved_time: float = field(default_factory=time.monotonic)


def play(
    experiment: Experiment,
    parent: Path,
    resume: bool = False,
    tell: Listener = lambda kind, facts: None,
    path: Path | None = None,
    until: int | None = None,
) -> dict[str, Any]:
    """Run to the end and return the result; with `resume`, go on where the newest folder of this experiment stopped.

    `until`: stop after so many rounds, to be resumed some day; the result is then that of the rounds so far.
    """
    folder = _resumable(experiment, parent, path) if resume else None
    if folder is not None and folder.finished:
        result = finished_result(folder)
        tell("finished", {"path": str(folder.path)})
        return result
    prepared = prepare(experiment)
    place = folder.path if folder else path or fresh(parent, experiment.general.name, experiment.digest())
    memory = PeakMemory()
    keep_freed_blocks()
    with one_thread(), Federation(prepared.plan, DeviceStates(RunFolder(place).devices)) as federation:
        # Made only now that nothing can be wrong with the experiment any more.
        assert federation.engine is not None
        memory.include(federation.engine.workers)
        session = Session(experiment, folder or RunFolder.create(place, experiment.resolved()), tell, memory)
        with session.folder.locked():
            tell("start", prepared.start | {"path": str(place), "prepare_seconds": prepared.seconds})
            tell("engine", {"line": federation.engine_line})
            _restore(session, federation, prepared)
            _rounds(session, federation, until)
            return _finish(session, federation, prepared.plan)


def _resumable(experiment: Experiment, parent: Path, path: Path | None) -> RunFolder | None:
    """The folder to go on with; None starts afresh. A folder of another experiment is refused."""
    if path is not None:
        if not (path / "experiment.toml").exists():
            return None
        return _same(RunFolder(path), experiment)
    folders = find(parent, experiment.general.name, experiment.digest())
    return _same(folders[-1], experiment) if folders else None


def _same(folder: RunFolder, experiment: Experiment) -> RunFolder:
    difference = first_difference(folder.config(), experiment)
    if difference:
        raise UserError(f"--resume: {folder.path} holds another experiment: {difference}")
    return folder


def first_difference(config: dict[str, Any], experiment: Experiment) -> str:
    """Where a run folder's experiment and this one would give other numbers; empty if nowhere."""
    theirs, ours = _comparable(_completed(config)), _comparable(experiment.resolved())
    for key in sorted({*theirs, *ours}):
        if theirs.get(key) != ours.get(key):
            return f"{key} is {theirs.get(key, 'absent')!r} there, {ours.get(key, 'absent')!r} here"
    return ""


def _completed(config: dict[str, Any]) -> dict[str, Any]:
    """With the defaults of options that were not there yet when the folder was made: they change no number."""
    try:
        return parse(config).resolved()
    except UserError:
        return config


def _comparable(tree: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for section, content in tree.items():
        if isinstance(content, dict):
            flat |= {f"{section}.{name}": v for name, v in content.items() if (section, name) not in VOLATILE}
        else:
            flat[section] = content
    return flat


def _restore(session: Session, federation: Federation, prepared: Prepared) -> None:
    folder = session.folder
    tree = folder.load_checkpoint()
    if tree is None:
        folder.restart()
        folder.add_event(prepared.start)
        folder.write_json("evidence.json", evidence(prepared, federation.engine_line))
        return
    if tree["experiment"] != session.experiment.digest():
        raise UserError(f"{folder.checkpoints}: the newest checkpoint is of another experiment")
    if tree["w"].shape != federation.w.shape:
        raise UserError(
            f"{folder.path}: its checkpoint is of another model ({len(tree['w'])} numbers, here {len(federation.w)})"
        )
    folder.cut_logs(tree["logs"])
    began = next(iter(folder.read_events()), {})
    if began.get("data_sha256") != prepared.start["data_sha256"]:
        raise UserError(f"--resume: {folder.path} began with other data than there is now ({prepared.start['origin']})")
    federation.restore(tree)
    session.history = [event for event in folder.read_events() if event["event"] == "round"]
    session.saved_round = federation.round
    session.tell("resume", {"round": federation.round})


def _rounds(session: Session, federation: Federation, until: int | None) -> None:
    last = federation.plan.rounds if until is None else min(until, federation.plan.rounds)
    while federation.round < last:
        started = time.perf_counter()
        event = federation.play_round()
        seconds = time.perf_counter() - started
        session.history.append(event)
        session.folder.add_event(event)
        timing = {"round": event["round"], "seconds": round(seconds, 6), "samples": event["samples"]}
        session.folder.add_timing(timing | {"selecting": round(federation.selecting, 6)})
        session.tell("round", event)
        if _due(session, federation):
            _checkpoint(session, federation)


def _due(session: Session, federation: Federation) -> bool:
    options = session.experiment.checkpoint
    return (
        federation.round - session.saved_round >= options.every
        and time.monotonic() - session.saved_time >= options.seconds
    )


def _checkpoint(session: Session, federation: Federation) -> None:
    tree = {"experiment": session.experiment.digest(), **federation.tree()}
    session.folder.save_checkpoint(federation.round, tree)
    federation.states.clean()
    session.saved_round, session.saved_time = federation.round, time.monotonic()


def _finish(session: Session, federation: Federation, plan: Plan) -> dict[str, Any]:
    if session.saved_round != federation.round:
        _checkpoint(session, federation)
    result = summary(session.history, len(plan.task.fleet.sizes))
    result |= {
        "run": str(session.folder.path),
        "name": session.experiment.general.name,
        "method": session.experiment.method.name,
        "seed": session.experiment.general.seed,
        "state_bytes": state_bytes(federation),
        "peak_memory": session.memory.growth(),
        **_speed(session.folder),
        "weights_sha256": digest(federation.w),
    }
    if federation.round == plan.rounds:
        session.folder.write_json("result.json", result)
    session.tell("end", result)
    return result


def _speed(folder: RunFolder) -> dict[str, Any]:
    entries = folder.read_timing()
    seconds, samples = sum(e["seconds"] for e in entries), sum(e["samples"] for e in entries)
    return {
        "seconds": round(seconds, 3),
        "samples_per_second": round(samples / seconds, 1) if seconds else None,
    }


def finished_result(folder: RunFolder) -> dict[str, Any]:
    return folder.read_json("result.json") | {"run": str(folder.path)}


def evidence(prepared: Prepared, engine: str) -> dict[str, Any]:
    """With what the run was made."""
    packages = ("torch", "numpy", "scikit-learn", "pydantic", "safetensors")
    return {
        "remanence": __version__,
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "torch_parallel": torch.__config__.parallel_info().splitlines()[0],
        },
        "engine": engine,
        "origin": prepared.start["origin"],
        "initial_weights_sha256": digest(prepared.plan.task.network().w),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return platform.processor()
