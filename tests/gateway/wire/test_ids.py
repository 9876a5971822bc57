from __future__ import annotations

import os
import re
import time
from itertools import pairwise

import pytest

from gateway.wire import ids
from gateway.wire.ids import new_id


def test_ids_have_the_prefix_and_48_digits_and_differ() -> None:
    made = [new_id("msg_") for _ in range(1000)]
    assert len(set(made)) == 1000
    assert all(re.fullmatch(r"msg_[0-9a-f]{48}", each) for each in made)


def test_ids_of_the_same_time_begin_alike_and_later_ones_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a database finds them on the same pages of its indexes."""
    monkeypatch.setattr(ids, "_unused", [])

    def batch(at: float) -> list[str]:
        ids._unused.clear()
        monkeypatch.setattr(time, "time", lambda: at)
        return [new_id("") for _ in range(100)]

    batches = [batch(1.7e9 + seconds) for seconds in range(5)]
    assert [len({each[:10] for each in batch}) for batch in batches] == [1] * 5
    assert batches == sorted(batches)
    assert all(max(a) < min(b) for a, b in pairwise(batches))
    # The rest is random: 19 bytes, of which no two are alike.
    assert len({each[10:] for batch in batches for each in batch}) == 500


def test_a_forked_process_makes_other_ids() -> None:
    new_id("")  # what is made in advance must not be made by both
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, " ".join(new_id("") for _ in range(20)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        theirs = set(pipe.read().split())
    assert len(theirs) == 20
    assert theirs.isdisjoint(new_id("") for _ in range(200))
