"""How far resident memory grew: what was there before does not count, what comes later does."""

import mmap
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from remanence.measure.memory import PeakMemory

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="known on Linux only")

SIZE, NOISE = 64 << 20, 8 << 20
SEEN = SIZE - (1 << 20)  # every processor counts its last pages for itself, so the sum lags a little


@contextmanager
def held(size: int = SIZE) -> Iterator[None]:
    """Memory straight from the system, every page of it touched, and given back at the end."""
    with mmap.mmap(-1, size) as block:
        block.write(b"x" * size)
        yield


def growth(memory: PeakMemory) -> int:
    found = memory.growth()
    assert found is not None
    return found


def test_what_is_allocated_later_is_seen() -> None:
    memory = PeakMemory()
    with held():
        assert SEEN <= growth(memory) < 2 * SIZE + NOISE


def test_a_peak_that_has_passed_is_seen() -> None:
    memory = PeakMemory()
    with held():
        pass
    assert SEEN <= growth(memory) < 2 * SIZE + NOISE


def test_what_was_there_before_is_not_seen() -> None:
    with held():
        assert growth(PeakMemory()) < NOISE


def test_a_peak_before_is_not_seen() -> None:
    with held():
        pass
    assert growth(PeakMemory()) < NOISE


def test_what_is_given_back_is_not_taken_off() -> None:
    """Memory from before that is freed leaves no room for what comes later: the peak is over all of it."""
    with held(2 * SIZE):
        memory = PeakMemory()
    with held():
        assert growth(memory) < NOISE


@contextmanager
def other(size: int) -> Iterator[subprocess.Popen[str]]:
    """A process that holds so much, and twice as much once it is told to."""
    program = f"blocks = [b'x' * {size}]; print(flush=True); input(); blocks += [b'y' * {size}]; print(flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", program + "; input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_other_processes_count_from_where_they_are_included() -> None:
    with other(SIZE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        memory = PeakMemory()
        memory.include([process.pid])
        assert growth(memory) < NOISE
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        assert SEEN <= growth(memory) < SIZE + 2 * NOISE


def test_a_process_that_is_gone_leaves_nothing_known() -> None:
    memory = PeakMemory()
    with other(1) as process:
        memory.include([process.pid])
    assert memory.growth() is None
