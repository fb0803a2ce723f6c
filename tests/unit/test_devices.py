from pathlib import Path

import torch

from remanence.core.state import State, equal
from remanence.runs.devices import DeviceStates


def state(value: float) -> State:
    return {"c": torch.full((100,), value), "rounds": [1, 2]}


def test_small_states_stay_in_memory(tmp_path: Path) -> None:
    states = DeviceStates(tmp_path / "devices")
    states.put(3, state(1.0), 1)
    assert equal(states.get(3), state(1.0))
    assert states.get(4) is None
    assert not (tmp_path / "devices").exists()
    assert states.largest == 400


def test_large_states_go_to_files_and_come_back_the_same(tmp_path: Path) -> None:
    states = DeviceStates(tmp_path, limit=1000)
    for device in range(5):
        states.put(device, state(device), 1)
    assert list(states) == [0, 1, 2, 3, 4]
    assert all(equal(states.get(device), state(device)) for device in range(5))
    assert len(list(tmp_path.iterdir())) == 5


def test_files_of_the_last_checkpoints_survive(tmp_path: Path) -> None:
    states = DeviceStates(tmp_path, limit=0)
    states.put(0, state(1.0), 1)
    first = states.checkpoint()
    states.put(0, state(2.0), 2)
    states.put(0, state(3.0), 3)
    restored = DeviceStates(tmp_path, limit=0)
    restored.restore(first)
    assert equal(restored.get(0), state(1.0))
    assert {path.name for path in tmp_path.iterdir()} == {"000000-000001.safetensors", "000000-000003.safetensors"}


def test_cleaning_keeps_two_checkpoints(tmp_path: Path) -> None:
    states = DeviceStates(tmp_path, limit=0)
    for round in range(1, 5):
        states.put(0, state(round), round)
        states.checkpoint()
        states.clean()
    assert {path.name for path in tmp_path.iterdir()} == {"000000-000003.safetensors", "000000-000004.safetensors"}


def test_without_a_folder_large_states_use_a_temporary_one() -> None:
    states = DeviceStates(limit=0)
    states.put(7, state(7.0), 1)
    assert equal(states.get(7), state(7.0))
