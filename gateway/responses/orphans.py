"""Background responses whose process has died, found by their leases, which have expired. Each is run again or ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container
from contextlib import aclosing
from typing import Literal

import msgspec

from gateway.errors import GatewayError, RateLimited, StoreUnavailable
from gateway.protocols import UNFINISHED, ConversationBounds, ResponseStore, StoredResponse
from gateway.responses.answer import ResponseAnswer
from gateway.responses.ending import completed_ending
from gateway.responses.output import OPENING
from gateway.responses.recovery import closing_events
from gateway.stall_watch import StallWatch
from gateway.wire.response import ResponseError, snapshot

logger = logging.getLogger("gateway.responses.orphans")

ORPHANS_AT_ONCE = 100

MAX_ATTEMPTS = 3
"""Maximum number of attempts for a response whose owner died while it ran, since the response may be the cause."""

OWNER_LOST = "owner_lost"
_OWNER_LOST_MESSAGE = (
    "The process that ran this response ended before it was complete (owner_lost)."
)


class Orphans:
    """The responses that no living process runs, as one process finds them."""

    def __init__(
        self,
        store: ResponseStore,
        holder: str,
        *,
        lease_seconds: float,
        stall_seconds: float,
        owned: Container[str],
        start: Callable[[ResponseAnswer, int], None],
        recreate_run: Callable[[StoredResponse], Awaitable[ResponseAnswer]] | None,
        conversation_bounds: Callable[[], ConversationBounds | None],
    ) -> None:
        """`holder` is this process, which holds the leases of the responses `owned`. `stall_seconds`: a longer time between
        two searches means that this process, or its machine, stood still. `start` runs a response here whose log has that
        many events already. See `BackgroundRuns` for the others."""
        self._store = store
        self._holder = holder
        self._lease_seconds = lease_seconds
        self._stall_seconds = stall_seconds
        self._owned = owned
        self._start = start
        self._recreate_run = recreate_run
        self._conversation_bounds = conversation_bounds
        self._others_may_renew = False
        """Whether leases may have expired because their owners, which are alive, could not renew them."""
        self._watch = StallWatch()

    async def find(self) -> None:
        """Search once: run each orphan again or end it. Raises `StoreUnavailable`."""
        # If this process was stopped, others may have been with it, and a store on this machine has the same clock.
        self._others_may_renew |= self._watch.stalled(self._stall_seconds)
        if self._others_may_renew:
            # Leases have expired while nobody could renew them: owners that are alive do so first.
            await self._store.health()
            await asyncio.sleep(self._lease_seconds)
            self._others_may_renew = False
        try:
            await self._take()
        finally:
            self._watch.look()

    async def _take(self) -> None:
        """Take over all orphans, `ORPHANS_AT_ONCE` at a time, and deal with each."""
        while True:
            try:
                taken = await self._store.take_orphans(
                    self._holder, seconds=self._lease_seconds, limit=ORPHANS_AT_ONCE
                )
            except StoreUnavailable:
                self._others_may_renew = True
                raise
            for record in taken:
                if record.id in self._owned:
                    continue  # our own lease expired; taking over renewed it
                logger.warning("response %s lost its owner", record.id)
                try:
                    if await self._run_again(record):
                        continue
                    # Otherwise another process continues it. The lease is left to expire, in case that process dies too.
                    if await self.end(record, "failed"):
                        await self._store.release(self._holder, record.id)
                except StoreUnavailable:
                    raise
                except Exception:
                    # A record that cannot be read must not block the others.
                    logger.exception("response %s cannot be ended", record.id)
            if len(taken) < ORPHANS_AT_ONCE:
                return

    async def _run_again(self, record: StoredResponse) -> bool:
        """Run an orphan again if no output of it was visible and this is configured. Returns False if it must be ended.

        Its owner may be slow instead of dead. Once the new attempt is stored, the store rejects the owner's writes.
        """
        began = record.response.status == "in_progress"
        if self._recreate_run is None or record.request is None:
            return False
        if record.response.status not in UNFINISHED or await self._stored_events(record) > OPENING:
            return False
        if began and record.attempt >= MAX_ATTEMPTS - 1:
            logger.warning("response %s has lost its owner too often", record.id)
            return False
        try:
            run = await self._recreate_run(record)
        except RateLimited:
            return True  # retried when the new lease expires
        except StoreUnavailable:
            raise
        except GatewayError as error:
            logger.warning("response %s cannot be run again: %s", record.id, error.message)
            return False
        if began and run.output.plan.toolset.bound_tools:
            run.scope.abandon()  # its tools may have been called
            return False
        run.output.storage.attempt = record.attempt + 1
        run.output.response.status = "queued"
        claimed = run.output.record()
        try:
            # Compare-and-set: an owner that is slow, not dead, may have started it since and called tools.
            mine = await self._store.advance(
                claimed, expected={record.response.status}, attempt=record.attempt
            )
            stored = await self._stored_events(record) if mine else 0
        except BaseException:
            run.scope.abandon()
            raise
        if not mine or stored > OPENING:
            run.scope.abandon()
            # The owner wrote while it was taken over.
            if mine and await self.end(claimed, "failed"):
                await self._store.release(self._holder, record.id)
            # Otherwise the lease is left to expire: if the owner dies after all, the response is found again.
            return True
        logger.info("response %s is run here", record.id)
        self._start(run, stored)
        return True

    async def end(self, record: StoredResponse, status: Literal["failed", "cancelled"]) -> bool:
        """End a response without an owner: set its terminal status and complete its log, as far as they are missing.
        One whose owner died as it ended gets the end that it was to have. False: the response has changed meanwhile.

        Its status and its output become visible at once. Before, it gets another attempt: from then on the store rejects
        writes of an owner that is slow instead of dead, and the log does not change. Crash-safe: each step can be
        resumed by another process.
        """
        closing: list[bytes] | None = None
        if record.response.status in UNFINISHED:
            if record.streamed:
                fenced = msgspec.structs.replace(record, attempt=record.attempt + 1)
                if not await self._store.advance(
                    fenced, expected=(record.response.status,), attempt=record.attempt
                ):
                    return False
                record = fenced
            if record.ending is not None:
                bounds = self._conversation_bounds()
                record = await completed_ending(self._store, record, bounds)
            else:
                response = snapshot(record.response)
                response.status = status
                if status == "failed":
                    response.error = ResponseError(code=OWNER_LOST, message=_OWNER_LOST_MESSAGE)
                record = msgspec.structs.replace(record, response=response, request=None)
            if record.streamed:
                closing, final = closing_events(await self._log(record.id), record.response)
                record = msgspec.structs.replace(record, response=final)
            if not await self._store.advance(record, expected=UNFINISHED):
                return False
        if not record.streamed:
            return True
        if closing is None:  # who has ended it died before its log was complete
            closing, final = closing_events(await self._log(record.id), record.response)
            if final.output != record.response.output:
                ended = msgspec.structs.replace(record, response=final)
                await self._store.advance(ended, expected=(final.status,))
        await self._store.append_events(record.id, closing, last=True, attempt=record.attempt)
        return True

    async def _stored_events(self, record: StoredResponse) -> int:
        return await self._store.count_events(record.id) if record.streamed else 0

    async def _log(self, response_id: str) -> list[bytes]:
        """The events that are stored now."""
        logged: list[bytes] = []
        count = await self._store.count_events(response_id)
        if count:
            async with aclosing(self._store.read_events(response_id)) as log:
                async for batch in log:
                    logged += batch
                    if len(logged) >= count:
                        break
        return logged
