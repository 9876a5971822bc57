"""After an outage of the store, or of the whole machine, leases are renewed before others' are taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.answers.responses.background import BackgroundRuns
from gateway.base.errors import StoreUnavailable
from gateway.observe.stall_watch import StallWatch
from gateway.plugins.protocols import StoredResponse
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio


class Leases:
    """A store that is away until a test lets it come back. It notes what is asked of it then."""

    def __init__(self) -> None:
        self.away = True
        self.hanging = 0
        """How many attempts to renew hang from now on."""
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
        if self.hanging:
            self.hanging -= 1
            await asyncio.Event().wait()
        self.asked.append("leased")

    async def take_orphans(self, holder: str, **_: Any) -> list[StoredResponse]:
        self._ask("take_orphans")
        return []

    async def cancel_requests(self) -> AsyncIterator[str]:
        await asyncio.Event().wait()
        yield ""


def runs_on(store: Any) -> BackgroundRuns:
    """Background runs of which one is running."""
    runs = BackgroundRuns(store, lease_seconds=0.3)
    running: Any = SimpleNamespace(task=asyncio.create_task(asyncio.Event().wait()))
    runs._running["resp_1"] = running
    return runs


async def test_a_live_owner_renews_its_leases_before_another_process_takes_them() -> None:
    store = Leases()
    runs = runs_on(store)
    async with runs.maintenance():
        await wait_until_async(lambda: store.refused > 0)
        store.away = False
        await wait_until_async(lambda: "take_orphans" in store.asked)
    before = store.asked[: store.asked.index("take_orphans")]
    assert "lease" in before[before.index("health") :]


@pytest.mark.parametrize("jump", [3600.0, -3600.0], ids=["ahead", "back"])
async def test_what_was_stopped_together_is_not_taken_before_it_could_be_renewed(
    jump: float,
) -> None:
    store = Leases()
    store.away = False
    runs, clock = runs_on(store), [0.0]
    runs._orphans._watch = StallWatch(monotonic=lambda: 0.0, wall=lambda: clock[0])
    async with runs.maintenance():
        await wait_until_async(lambda: "take_orphans" in store.asked)
        store.asked.clear()
        clock[0] += jump
        await wait_until_async(lambda: "take_orphans" in store.asked)
    before = store.asked[: store.asked.index("take_orphans")]
    assert "leased" in before[before.index("health") :]


async def test_a_renewal_that_hangs_holds_up_no_further_one() -> None:
    store = Leases()
    store.away, store.hanging = False, 2
    async with runs_on(store).maintenance():
        await wait_until_async(lambda: "leased" in store.asked)
