import torch

from remanence.core.message import Message
from remanence.core.reduce import Reducer

NONE = slice(0, 0)


def reduced(messages: list[tuple[Message, float]], ups: dict[str, str], integers: slice = NONE) -> dict:
    reducer = Reducer(ups, integers)
    for message, weight in messages:
        reducer.add(message, weight)
    return reducer.result()


def test_one_upload_comes_out_bit_for_bit() -> None:
    w = torch.randn(1000) * 10 ** torch.linspace(-30, 30, 1000)
    assert torch.equal(reduced([(Message(w=w, n=7919), 7919.0)], {"w": "weighted"})["w"], w)


def test_equal_uploads_come_out_bit_for_bit() -> None:
    w = torch.randn(1000)
    messages = [(Message(w=w, n=n), float(n)) for n in (3, 11, 577, 20)]
    assert torch.equal(reduced(messages, {"w": "weighted"})["w"], w)


def test_every_rule() -> None:
    messages = [
        (Message(w=torch.tensor([v]), n=n, s=float(v), t=float(v)), 2.0 * n) for v, n in ((1.0, 1), (2.0, 1), (4.0, 2))
    ]
    merged = reduced(messages, {"w": "weighted", "s": "sum", "t": "samples"})
    assert merged["w"].item() == 2.75
    assert merged["s"] == 7.0
    assert merged["t"] == 2.75
    assert (merged["total_weight"], merged["samples"], merged["devices"]) == (8.0, 4, 3)


def test_integer_buffers_take_the_largest() -> None:
    messages = [(Message(w=torch.tensor([1.0, 3.0]), n=1), 1.0), (Message(w=torch.tensor([2.0, 9.0]), n=1), 1.0)]
    assert reduced(messages, {"w": "weighted"}, slice(1, 2))["counters"].tolist() == [9.0]
