"""Rounds per second against the raw loop, in turns in one call, so that both meet the same disturbances."""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from benchmarks.arguments import positive, workers
from benchmarks.machine import ForeignWork, PeakMemory
from benchmarks.peers import Harness, find_harness
from benchmarks.players import Player
from benchmarks.workloads import WORKLOADS, Settings, Workload

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
TURNS = 4  # at least so many, when there are rounds enough: a median wants some values


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=positive, default=4, help="timed rounds, after a first one")
    parser.add_argument("--method", default="fedavg", help="any registered one; FedAvg then runs beside it")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--workers", type=workers, default="auto", help="worker processes, or auto")
    parser.add_argument("--cohort", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("--bare", action="store_true", help="also the local loop without a server")
    parser.add_argument("--peer", help="also another framework, by the harness that --harness names")
    parser.add_argument("--harness", help="folder of the harness; default: $REMANENCE_BENCH_HARNESS")


def measure(command: str, given: argparse.Namespace) -> dict[str, Any]:
    harness = find_harness(given.harness) if given.peer else None
    with measured_data(command) as folder:
        engine = {"workers": given.workers, "cohort": given.cohort, "precision": given.precision}
        settings = Settings(
            command,
            folder,
            rounds=WORKLOADS[command].quick * given.rounds + 1 + WORKLOADS[command].block,
            method=given.method,
            engine=engine,
        )
        race = run_race(settings, given.rounds, given.bare)
    result = race.result() | {"method": given.method, "precision": given.precision, "rounds": given.rounds}
    return result | (_peer(harness, given, command, result) if harness else {})


@contextmanager
def measured_data(workload: str) -> Iterator[str]:
    """A folder with the workload's samples."""
    with tempfile.TemporaryDirectory(prefix="remanence-benchmark-") as folder:
        with Player("data", asdict(Settings(workload, folder, rounds=0))) as writer:
            writer.play(1)
        yield folder


@dataclass
class Race:
    """What was timed: per player, the seconds of a round in each of its turns."""

    workload: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    to_first_round: float = 0.0  # from the start of the process to the end of its first round
    foreign_cores: float | None = None
    peak_mb: float | None = None

    def round_seconds(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def speed(self, name: str) -> float:
        return WORKLOADS[self.workload].samples_per_round / self.round_seconds(name)

    def result(self) -> dict[str, Any]:
        ours, raw = self.speed("remanence"), self.speed("raw")
        return {
            "workload": self.workload,
            "ratio": ours / raw,
            "samples_per_second": ours,
            "raw_samples_per_second": raw,
            "round_seconds": self.round_seconds("remanence"),
            "raw_round_seconds": self.round_seconds("raw"),
            "engine": self.facts["engine"],
            "workers": self.facts["workers"],
            "first_round_seconds": self.to_first_round - self.round_seconds("remanence"),
            "peak_mb": self.peak_mb,
            "foreign_cores": self.foreign_cores,
        } | self._more()

    def _more(self) -> dict[str, Any]:
        """Of the players that were asked for."""
        more = {}
        if "bare" in self.seconds:
            more["bare_samples_per_second"] = self.speed("bare")
            more["engine_efficiency"] = self.speed("remanence") / self.speed("bare")
        if "fedavg" in self.seconds:
            more["fedavg_samples_per_second"] = self.speed("fedavg")
            more["cost"] = self.speed("fedavg") / self.speed("remanence")
        return more


def run_race(settings: Settings, rounds: int, bare: bool) -> Race:
    race = Race(settings.workload)
    with Player("remanence", asdict(settings)) as ours:
        race.facts = ours.play(1)
        race.to_first_round = time.perf_counter() - ours.started
        memory = PeakMemory(ours.process.pid)
        with ExitStack() as others:
            players = {"remanence": ours}
            for name, player in _others(settings, race.facts, bare):
                players[name] = others.enter_context(player)
                player.play(1)
            _take_turns(race, players, rounds)
        with memory.watching():  # the others have gone: no page of theirs is shared now
            ours.play(WORKLOADS[settings.workload].block)
        race.peak_mb = memory.megabytes
    return race


def _others(settings: Settings, facts: Mapping[str, Any], bare: bool) -> Iterator[tuple[str, Player]]:
    """Whoever else takes part; each is started when it is asked for."""
    yield "raw", Player("raw", asdict(settings), ONE_THREAD)
    if bare:
        same = replace(settings, carrier=facts["carrier"], workers=facts["workers"])
        yield "bare", Player("bare", asdict(same))
    if settings.method != "fedavg":
        yield "fedavg", Player("remanence", asdict(replace(settings, method="fedavg")))


def _take_turns(race: Race, players: Mapping[str, Player], rounds: int) -> None:
    foreign = ForeignWork()
    race.seconds = {name: [] for name in players}
    order = list(players)
    for turn in turns(WORKLOADS[race.workload], rounds):
        for name in order:
            rounds_of_turn = turn if name == "raw" else turn * WORKLOADS[race.workload].quick
            race.seconds[name].append(players[name].play(rounds_of_turn)["seconds"] / rounds_of_turn)
        order.reverse()  # whoever came first comes last: a slow drift favours nobody
    race.foreign_cores = foreign.cores()


def turns(workload: Workload, rounds: int) -> list[int]:
    """How many rounds each turn has."""
    size = min(workload.block, max(1, rounds // TURNS))
    return [min(size, rounds - start) for start in range(0, rounds, size)]


def _peer(harness: Harness, given: argparse.Namespace, command: str, result: Mapping[str, Any]) -> dict[str, Any]:
    workers = len(os.sched_getaffinity(0)) if given.workers == "auto" else given.workers
    return harness.measure(given.peer, command, given.rounds, workers, result["samples_per_second"])
