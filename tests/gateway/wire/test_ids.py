from __future__ import annotations

import os
import re

from gateway.wire.ids import new_id


def test_ids_have_the_prefix_and_48_digits_and_differ() -> None:
    ids = [new_id("msg_") for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(re.fullmatch(r"msg_[0-9a-f]{48}", each) for each in ids)


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
