"""A clock that is set back by hours keeps no work of dead processes from being continued."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gateway.sdk import Delegation
from gateway_batches import batches
from gateway_batches.database import BatchDatabase
from gateway_batches.requests import CreateBatch

REQUEST = CreateBatch(input_file_id="file-1", endpoint="/v1/responses", completion_window="24h")


@pytest.mark.parametrize("ending", [False, True])
@pytest.mark.parametrize("seconds", [15.0, 900.0])
def test_the_batch_of_a_process_that_died_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, ending: bool
) -> None:
    database = BatchDatabase(tmp_path)
    known = time.time()

    def claim() -> batches.BatchJob | None:
        return database.now(lambda c: batches.claim(c, ending=ending, seconds=seconds))

    def at(moved: float) -> None:
        monkeypatch.setattr(time, "time", lambda: known + moved)

    at(0)
    delegation = Delegation(principal=None)
    made = database.now(
        lambda c: batches.insert(c, "ada", delegation, REQUEST, None, seconds=60, max_active=9)
    )
    if ending:
        database.now(lambda c: batches.request_cancel(c, "ada", made.id))
    assert claim() is not None
    assert claim() is None
    at(-300)
    assert claim() is None, "clocks of machines differ by some minutes"
    at(-12 * 3600)
    taken = claim()
    assert taken is not None
    assert taken.id == made.id
    assert claim() is None, "its new lease is of the clock as it is"
    at(-12 * 3600 + seconds + 1)
    assert claim() is not None
    database.close()
