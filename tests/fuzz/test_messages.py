"""Messages from a stranger: read, or refused."""

import json
import struct
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fuzz.changes import Change, changed, changes, well_said
from remanence.core.message import Message, Refused

KINDS = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool]
TYPES = [
    "F32",
    "F64",
    "F16",
    "BF16",
    "I64",
    "I32",
    "U8",
    "BOOL",
    "F8_E4M3",
    "F8_E8M0",
    "U64",
    "C64",
    "F4",
    "X",
    "",
    "f32",
]
LIKE = Message(w=torch.arange(6.0), c=torch.ones(3), n=12, a=0.5)


def read(content: bytes) -> Message | None:
    try:
        message, envelope = Message.from_bytes(content)
    except Refused as refusal:
        well_said(refusal)
        return None
    assert all(isinstance(value, int) for value in envelope.values())
    try:
        message.check_form(LIKE)
        message.check_finite()
    except Refused:
        return message
    assert bool(message["w"].isfinite().all())
    return message


def tensor(data: st.DataObject) -> Tensor:
    kind = data.draw(st.sampled_from(KINDS))
    shape = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    return torch.tensor(data.draw(st.integers(-100, 100))).to(kind).expand(shape).clone()


names = st.text(min_size=1, max_size=8).filter(lambda name: not name.startswith(("@", "__metadata__")))


@settings(max_examples=100)
@given(st.data())
def test_what_is_written_is_read(data: st.DataObject) -> None:
    message = Message()
    for name in data.draw(st.sets(names, min_size=1, max_size=4)):
        number = data.draw(st.one_of(st.just(None), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)))
        message[name] = tensor(data) if number is None else number
    content = message.to_bytes(round=3, device=4, layout=5)
    again, envelope = Message.from_bytes(content)
    assert envelope == {"round": 3, "device": 4, "layout": 5}
    assert message.size() == len(content)
    assert set(again) == set(message)
    for name, value in message.items():
        if isinstance(value, Tensor):
            assert torch.equal(again[name], value)
            assert again[name].dtype == value.dtype
        else:
            assert (again[name], type(again[name])) == (value, type(value))


@settings(max_examples=300)
@given(st.binary(max_size=300))
@example(b"")
@example(struct.pack("<Q", 2**63) + b"{}")
@example(struct.pack("<Q", 2) + b"{}")
@example(struct.pack("<Q", 2) + b"[]")
@example(struct.pack("<Q", 200_000) + b'{"a":' * 40_000)
def test_random_bytes(content: bytes) -> None:
    read(content)


@settings(max_examples=500)
@given(st.lists(changes, min_size=1, max_size=4))
def test_changed_messages(harm: list[Change]) -> None:
    content = LIKE.to_bytes(round=1, device=2, layout=3)
    for change in harm:
        content = changed(content, change) if content else content
    read(content)


@settings(max_examples=100)
@given(st.floats(0, 1, exclude_max=True))
def test_truncated_messages_are_refused(share: float) -> None:
    content = LIKE.to_bytes(round=1, device=2, layout=3)
    assert read(content[: int(share * len(content))]) is None


sizes = st.one_of(
    st.integers(-1, 64), st.sampled_from([2**31, 2**32, 2**62, 2**63, 2**64, 10**30]), st.floats(), st.text()
)
entries = st.one_of(
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(TYPES),
            "shape": st.lists(sizes, max_size=3),
            "data_offsets": st.lists(sizes, min_size=1, max_size=3),
        }
    ),
    st.fixed_dictionaries({"dtype": st.sampled_from(TYPES), "shape": st.just([2]), "data_offsets": st.just([0, 8])}),
    st.recursive(
        st.one_of(sizes, st.none(), st.booleans()),
        lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
        max_leaves=4,
    ),
)


@settings(max_examples=500)
@given(
    st.dictionaries(st.sampled_from(["w", "n", "@round", "@", "__metadata__", "\0", "é"]), entries, max_size=3),
    st.integers(0, 64),
)
def test_random_headers(header: dict[str, Any], length: int) -> None:
    text = json.dumps(header).encode()
    read(struct.pack("<Q", len(text)) + text + bytes(length))


def test_the_limit_is_looked_at_before_anything_else() -> None:
    content = LIKE.to_bytes(round=1, device=2, layout=3)
    assert Message.from_bytes(content, limit=len(content))[0]["n"] == 12
    with pytest.raises(Refused, match=str(len(content))):
        Message.from_bytes(content, limit=len(content) - 1)
