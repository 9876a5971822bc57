"""Shared values in the memory of one process: what one owner can make it hold."""

from __future__ import annotations

import tracemalloc

from gateway.storage.shared_values import MAX_BYTES, ValueTable

LARGE = 4 << 20


def test_expired_values_of_an_owner_do_not_add_up() -> None:
    now = 0.0
    table = ValueTable(clock=lambda: now)
    tracemalloc.start()
    try:
        for number in range(3 * MAX_BYTES // LARGE):
            value = bytes(LARGE)
            assert table.compare_and_set(f"v{number}", value, None, 1.0, "ada") == value
            now += 2.0
        del value
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < MAX_BYTES


def test_values_that_have_not_expired_are_bounded_together() -> None:
    now = 0.0
    table = ValueTable(clock=lambda: now)
    value = bytes(LARGE)
    most = MAX_BYTES // LARGE
    for number in range(most):
        assert table.compare_and_set(f"v{number}", value, None, 1.0, "ada") == value
    assert table.compare_and_set("one more", value, None, 1.0, "ada") is None
    assert table.compare_and_set("v0", bytes(LARGE), value, 1.0, "ada") == value, "it is replaced"
    assert table.compare_and_set("one more", value, None, 1.0, "bob") == value
    now = 2.0
    assert table.compare_and_set("one more", value, None, 1.0, "ada") == value
    assert table.get("v0", "ada") is None
