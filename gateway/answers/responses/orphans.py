"""Finding background responses whose process has died, by their expired leases, and running them again or ending
them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container
from contextlib import aclosing
from typing import Literal

import msgspec

from gateway.answers.responses.answer import ResponseAnswer
from gateway.answers.responses.ending import completed_ending
from gateway.answers.responses.output import OPENING
from gateway.answers.responses.recovery import closing_events
from gateway.base.errors import GatewayError, RateLimited, StoreUnavailable
from gateway.observe.stall_watch import StallWatch
from gateway.plugins.protocols import UNFINISHED, ConversationBounds, ResponseStore, StoredResponse
from gateway.wire.response import ResponseError, snapshot

logger = logging.getLogger("gateway.answers.responses.orphans")

ORPHANS_AT_ONCE = 100

MAX_ATTEMPTS = 3
"""Maximum number of attempts for a response whose process died while running it, because the response may be the
cause."""

OWNER_LOST = "owner_lost"
_OWNER_LOST_MESSAGE = (
    "The process that ran this response ended before it was complete (owner_lost)."
)


class Orphans:
    """Finds the responses that no living process runs, and runs them in this process or ends them."""

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
        """`holder` identifies this process, which holds the leases of the responses `owned`. If more than
        `stall_seconds` pass between two searches, this process or its machine was suspended. `start` runs a response in
        this process; its second argument is the number of events that are already in the log. For the others see
        `BackgroundRuns`."""
        self._store = store
        self._holder = holder
        self._lease_seconds = lease_seconds
        self._stall_seconds = stall_seconds
        self._owned = owned
        self._start = start
        self._recreate_run = recreate_run
        self._conversation_bounds = conversation_bounds
        self._others_may_renew = False
        """Whether leases may have expired although their owners are alive, because they could not renew them."""
        self._watch = StallWatch()

    async def find(self) -> None:
        """Search once: run each orphan again or end it. Raises `StoreUnavailable`."""
        # If this process was suspended, others may have been suspended too, and a store on this machine has the same clock.
        self._others_may_renew |= self._watch.stalled(self._stall_seconds)
        if self._others_may_renew:
            # Leases may have expired while no process could renew them. Give living owners time to renew theirs.
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
                    continue  # this process's own lease had expired; taking it over renewed it
                logger.warning("response %s lost its owner", record.id)
                try:
                    if await self._run_again(record):
                        continue
                    # Otherwise another process continues it. Let the lease expire, in case that process dies too.
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
        """Run an orphan again if this is configured and none of its output was visible. Returns False if it must be
        ended.

        Its owner may be slow instead of dead. After the new attempt is stored, the store rejects the owner's writes.
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
            # Compare-and-set: an owner that is slow instead of dead may have started it meanwhile and called tools.
            mine = await self._store.advance(
                claimed, expected={record.response.status}, attempt=record.attempt
            )
            stored = await self._stored_events(record) if mine else 0
        except BaseException:
            run.scope.abandon()
            raise
        if not mine or stored > OPENING:
            run.scope.abandon()
            # The owner wrote while the response was taken over.
            if mine and await self.end(claimed, "failed"):
                await self._store.release(self._holder, record.id)
            # Otherwise let the lease expire: if the owner dies later, the response is found again.
            return True
        logger.info("response %s is run here", record.id)
        self._start(run, stored)
        return True

    async def end(self, record: StoredResponse, status: Literal["failed", "cancelled"]) -> bool:
        """End a response without an owner: set its terminal status and complete its log, unless that was done before.
        Returns False if the response changed meanwhile.

        If the owner died while it stored the end, the response gets that end instead of `status`. Status and output
        become visible together. Before that, the attempt is increased: the store then rejects writes of an owner that
        is slow instead of dead, so that the log does not change. If this process dies, another one can resume at each
        step.
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
        if closing is None:  # the process that ended it died before it completed the log
            closing, final = closing_events(await self._log(record.id), record.response)
            if final.output != record.response.output:
                ended = msgspec.structs.replace(record, response=final)
                await self._store.advance(ended, expected=(final.status,))
        await self._store.append_events(record.id, closing, last=True, attempt=record.attempt)
        return True

    async def _stored_events(self, record: StoredResponse) -> int:
        return await self._store.count_events(record.id) if record.streamed else 0

    async def _log(self, response_id: str) -> list[bytes]:
        """Return the events that are stored now."""
        logged: list[bytes] = []
        count = await self._store.count_events(response_id)
        if count:
            async with aclosing(self._store.read_events(response_id)) as log:
                async for batch in log:
                    logged += batch
                    if len(logged) >= count:
                        break
        return logged
