"""The priority of a request in the engine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gateway.access.engine_priority import engine_priority
from gateway.observe.request_context import RequestContext, within

LAST = SimpleNamespace(last_priority=50)
ARRIVAL = SimpleNamespace(last_priority=None)


@pytest.mark.parametrize(
    ("engine", "added", "asked", "priority"),
    [
        (LAST, 20, None, 20),
        (LAST, 20, 5, 25),
        (LAST, 20, -30, -10),
        (LAST, 100, None, 50),
        (LAST, 100, 45, 50),
        (LAST, 100, 60, 60),  # the engine refuses it, as it does for other requests
        (LAST, 0, 7, 7),
        (LAST, -20, 7, 7),
        (ARRIVAL, 20, None, 0),
        (ARRIVAL, 20, 7, 7),
        (object(), 20, None, 0),
    ],
)
def test_work_that_no_client_waits_for_comes_later(
    engine: object, added: int, asked: int | None, priority: int
) -> None:
    with within(RequestContext("req_1", priority=added)):
        assert engine_priority(engine, asked) == priority


def test_without_a_caller_it_is_what_is_asked_for() -> None:
    assert engine_priority(LAST, None) == 0
    assert engine_priority(LAST, 3) == 3
