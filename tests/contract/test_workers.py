"""The number of workers changes no bit, whatever the network draws or counts."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from contract.cases import CASES, NETS, SERIAL, Case, Outcome, federation, outcome, play, reference
from remanence.core.context import Context
from remanence.core.plan import Plan
from remanence.engine.local import PoolEngine
from remanence.engine.worker import Job, Reply

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)


def play_in_workers(plan: Plan, workers: int) -> Outcome:
    with federation(plan) as run:
        run.engine.close()
        run.engine = PoolEngine(plan.task, workers)
        events = list(run.play())
        return outcome(run, events)


@each_case
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_give_the_bits_of_the_serial_path(case: Case, net: str, workers: int) -> None:
    plan = case.plan(model=NETS[net]())
    assert play_in_workers(plan, workers) == reference(case.label, net)


class Backwards:
    """An engine whose last answer comes first."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def run(self, ctx: Context, jobs: Sequence[Job]) -> Iterator[Reply]:
        yield from reversed(list(self.engine.run(ctx, jobs)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


@each_case
@pytest.mark.parametrize("engine", [{}, {"quorum": 0.5}], ids=["all", "quorum"])
def test_answers_may_come_in_any_order(case: Case, engine: dict[str, Any]) -> None:
    plan = case.plan(engine={**SERIAL, **engine})
    with federation(plan) as run:
        run.engine = Backwards(run.engine)
        backwards = outcome(run, list(run.play()))
    assert backwards == play(plan)


@each_case
def test_a_quorum_gives_the_same_bits_on_any_number_of_workers(case: Case) -> None:
    settings = {"quorum": 0.5, "lost": 0.2, "cohort": "off", "workers": 1}
    plan = case.plan(engine=settings)
    serial = play(plan)
    assert play(plan) == serial
    assert play_in_workers(plan, 2) == serial
    for event in serial.events:
        assert 0 < len(event["counted"]) <= 3
        assert len(event["counted"]) + len(event["refused"]) == 6
        assert "late: the quorum was reached" in event["refused"].values()
