"""Every method and part runs, repeats itself bit for bit, and says truly what it keeps and sends."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from contract.cases import (
    CASES,
    CLASSES,
    NETS,
    ROUNDS,
    SIZES,
    Case,
    federation,
    fleet_with_empty_device,
    make_plan,
    mlp,
    play,
    rebuilt,
    reference,
    samples,
    whole,
)
from remanence.core.context import Context
from remanence.core.state import clone, equal, flatten, unflatten
from remanence.engine.cohort import TOLERANCE
from remanence.engine.worker import Job, Reply
from remanence.errors import UserError

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
each_net = pytest.mark.parametrize("net", NETS)


@each_case
def test_it_trains(case: Case) -> None:
    outcome = reference(case.label)
    assert [event["round"] for event in outcome.events] == list(range(1, ROUNDS + 1))
    assert all(event["counted"] == list(range(len(SIZES))) for event in outcome.events)
    assert bool(outcome.w.isfinite().all())
    assert not torch.equal(outcome.w, make_plan().task.network().copy())
    assert outcome.events[-1]["loss"] < outcome.events[0]["loss"]


@each_case
def test_it_gives_the_same_bits_twice(case: Case) -> None:
    assert play(case.plan()) == reference(case.label)


@each_case
@each_net
def test_it_trains_networks_that_stacks_cannot(case: Case, net: str) -> None:
    outcome = reference(case.label, net)
    assert bool(outcome.w.isfinite().all())
    assert all(event["counted"] for event in outcome.events)


@each_case
def test_a_device_without_samples_never_takes_part(case: Case) -> None:
    outcome = play(case.plan(devices=fleet_with_empty_device()))
    for event in outcome.events:
        assert event["counted"] == [0, 2, 3]
        assert event["refused"] == {"1": "no samples to train on"}
    assert 1 not in outcome.tree["devices"]


def test_a_fleet_without_any_sample_is_refused() -> None:
    with pytest.raises(UserError, match="none of them has a sample"):
        make_plan(devices=[samples(0, 0), samples(0, 1)])


@each_case
def test_batch_norm_leaves_out_a_single_sample(case: Case) -> None:
    """Its statistics of one sample do not exist; that device is refused, with a reason."""
    for event in reference(case.label, "batch-norm").events:
        assert event["refused"] == {"1": "one sample: batch norm needs two"}


@each_case
def test_the_cohort_agrees_with_one_by_one(case: Case) -> None:
    plan = case.plan(engine={"cohort": "auto", "workers": 1})
    with federation(plan) as run:
        if not run.engine_line.startswith("cohort"):
            pytest.skip(f"does not stack: {run.engine_line}")
        events = list(run.play())
        stacked = clone(whole(run))
    expected = reference(case.label)
    for ours, theirs in zip(flatten(stacked)[1], flatten(expected.tree)[1], strict=True):
        assert float((ours - theirs).abs().max()) <= TOLERANCE * max(1.0, float(theirs.abs().max()))
    facts = ("selected", "counted", "refused", "bytes_up", "bytes_down")
    for ours, theirs in zip(events, expected.events, strict=True):
        assert {name: ours[name] for name in facts} == {name: theirs[name] for name in facts}


def test_the_plain_methods_do_stack() -> None:
    """Otherwise the test above would skip itself unnoticed."""
    with federation(make_plan(engine={"cohort": "on"})) as run:
        assert run.engine_line.startswith("cohort")


@each_case
def test_rebuilding_the_method_before_every_round_changes_nothing(case: Case) -> None:
    plan, events = case.plan(), []
    tree = None
    for _ in range(ROUNDS):
        fresh = dataclasses.replace(plan, task=dataclasses.replace(plan.task, method=rebuilt(plan.task.method)))
        with federation(fresh) as run:
            if tree is not None:
                run.restore(clone(tree))
            events.append(run.play_round())
            tree = run.tree()
            kept = clone(whole(run))
    assert equal(kept, reference(case.label).tree)
    assert events == reference(case.label).events


@each_case
def test_states_are_tensors_numbers_and_text(case: Case) -> None:
    tree = reference(case.label).tree
    skeleton, tensors = flatten(tree)
    assert equal(unflatten(skeleton, tensors), tree)


class Recording:
    """An engine that measures what really crosses the border."""

    def __init__(self, engine: Any, layout: int) -> None:
        self.engine, self.layout = engine, layout
        self.down: list[int] = []
        self.up: list[int] = []

    def run(self, ctx: Context, jobs: Sequence[Job]) -> Iterator[Reply]:
        self.down.append(sum(self.length(job.message, job.device, ctx.round) for job in jobs))
        self.up.append(0)
        for reply in self.engine.run(ctx, jobs):
            if reply.upload is not None:
                self.up[-1] += self.length(reply.upload, reply.device, ctx.round)
            yield reply

    def length(self, message: Any, device: int, round: int) -> int:
        return len(message.to_bytes(round=round, device=device, layout=self.layout))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


@each_case
@pytest.mark.parametrize("net", [mlp, *NETS.values()], ids=["mlp", *NETS])
def test_reported_bytes_are_those_of_serialised_messages(case: Case, net: Any) -> None:
    with federation(case.plan(model=net(), rounds=2)) as run:
        recording = Recording(run.engine, run.net.layout)
        run.engine = recording
        events = list(run.play())
    assert [event["bytes_down"] for event in events] == recording.down
    assert [event["bytes_up"] for event in events] == recording.up


@each_case
def test_reported_states_are_those_on_disk(case: Case) -> None:
    """The storage account says what a device keeps: the tensors of the largest state."""
    with federation(case.plan()) as run:
        list(run.play())
        sizes = [sum(t.nbytes for t in flatten(run.states.get(device))[1]) for device in run.states]
        assert run.states.largest == max(sizes, default=0)


def test_every_class_count_is_used() -> None:
    assert reference("fedavg").events[-1]["per_class"] is not None
    assert len(reference("fedavg").events[-1]["per_class"]) == CLASSES
