"""After an outage of the store, leases are renewed before others' are taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.errors import StoreUnavailable
from gateway.protocols import StoredResponse
from gateway.responses.background import BackgroundRuns
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Leases:
    """A store that is away until a test lets it come back. It notes what is asked of it then."""

    def __init__(self) -> None:
        self.away = True
        self.refused = 0
        self.asked: list[str] = []

    def _ask(self, what: str) -> None:
        if self.away:
            self.refused += what == "take_orphans"
            raise StoreUnavailable("The store is away.")
        self.asked.append(what)

    async def health(self) -> None:
        self._ask("health")

    async def lease(self, holder: str, response_ids: Sequence[str], *, seconds: float) -> None:
        self._ask("lease")

    async def take_orphans(self, holder: str, **_: Any) -> list[StoredResponse]:
        self._ask("take_orphans")
        return []

    async def cancel_requests(self) -> AsyncIterator[str]:
        await asyncio.Event().wait()
        yield ""


async def test_a_live_owner_renews_its_leases_before_another_process_takes_them() -> None:
    store: Any = Leases()
    runs = BackgroundRuns(store, lease_seconds=0.3)
    running: Any = SimpleNamespace(task=asyncio.create_task(asyncio.Event().wait()))
    runs._running["resp_1"] = running
    async with runs.maintenance():
        await wait_until_async(lambda: store.refused > 0)
        store.away = False
        await wait_until_async(lambda: "take_orphans" in store.asked)
    before = store.asked[: store.asked.index("take_orphans")]
    assert "lease" in before[before.index("health") :]
