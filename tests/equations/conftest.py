"""Both ways of carrying devices in this process, and a log of what devices send."""

from collections.abc import Iterator
from typing import Any

import pytest
from worlds import ONE_BY_ONE, STACKED, UPLOADS, Upload


@pytest.fixture(params=[ONE_BY_ONE, STACKED], ids=["one-by-one", "stacked"])
def engine(request: pytest.FixtureRequest) -> dict[str, Any]:
    chosen: dict[str, Any] = request.param
    return chosen


@pytest.fixture
def uploads() -> Iterator[list[Upload]]:
    """What devices of a `Recorded` method send, in the order in which they end."""
    UPLOADS.clear()
    yield UPLOADS
    UPLOADS.clear()
