"""Storing the response of a run: as it waits, as it begins, and as it ends."""

from __future__ import annotations

import logging

from gateway.errors import ConversationFull, GatewayError, StoreUnavailable
from gateway.loop.run_scope import RunScope
from gateway.protocols import UNFINISHED, ResponseStore, StoredResponse
from gateway.request_stats import clock
from gateway.responses.ending import (
    add_to_conversation,
    as_ending,
    failure_code,
    goes_into_conversation,
)
from gateway.responses.plan import Plan
from gateway.responses.work import ResponseWork
from gateway.runtime.services import Services
from gateway.wire.response import snapshot

logger = logging.getLogger("gateway.responses.storage")


class RunStorage:
    """What the store keeps of one run, whichever model makes its response."""

    def __init__(self, services: Services, scope: RunScope) -> None:
        self.attempt = 0
        """See `StoredResponse`."""
        self._services = services
        self._scope = scope
        self._lost = False
        """Whether another process has ended the response, or runs it, since it was queued."""

    def record(self, work: ResponseWork) -> StoredResponse:
        """The response as it is now, as it is stored."""
        plan = work.plan
        return StoredResponse(
            response=snapshot(plan.response),
            input=plan.input,
            previous_response_id=plan.previous_response_id,
            conversation_id=plan.conversation_id,
            owner=plan.owner,
            streamed=plan.background and plan.stream,
            # A finished response is not run again, and its input is among its items.
            request=plan.body if plan.response.status in UNFINISHED else None,
            attempt=self.attempt,
            results=dict(work.assembler.items.results),
        )

    def queued_again(self, plan: Plan) -> StoredResponse:
        """The response as it was before it ran, to be run by another process. Its next attempt: the store rejects writes of this one."""
        response = snapshot(plan.response)
        response.status = "queued"
        response.output = []
        response.error = response.incomplete_details = response.usage = response.completed_at = None
        return StoredResponse(
            response=response,
            input=plan.input,
            previous_response_id=plan.previous_response_id,
            conversation_id=plan.conversation_id,
            owner=plan.owner,
            streamed=plan.stream,
            request=plan.kept_body,
            attempt=self.attempt + 1,
        )

    async def begin(self, work: ResponseWork) -> bool:
        """Store that a queued response is in progress. Returns False if another process has ended it, or runs it."""
        store = self._services.store
        if store is None:
            return True
        self._lost = not await store.advance(self.record(work), expected={"queued"})
        return not self._lost

    async def end(self, work: ResponseWork) -> bool:
        """Store the response before its terminal event is sent. Returns False if another process has ended it already.

        A foreground response that cannot be stored fails: a completed response is always stored. Raises `StoreUnavailable`
        for a background response, which another process ends when its lease expires.
        """
        store, plan = self._services.store, work.plan
        if self._lost:
            return False
        if store is None or not plan.store:
            return True
        began, failed, done = clock(), True, True
        try:
            if plan.background:
                done = await self._end_in_background(store, work)
            else:
                # First: where the conversation cannot keep it, the response is stored as the failure that it is then.
                await self._keep_in_conversation(store, work)
                await store.put(self.record(work))
            failed = False
        except StoreUnavailable as error:
            if plan.background:
                raise
            logger.warning("response %s could not be stored: %s", plan.response.id, error.message)
            self._fail(work, error, f"Not stored: {error.message}")
        finally:
            ended = clock()
            self._services.metrics.stored(ended - began, failed=failed)
            if (span := self._scope.stats.span) is not None:
                span.record("store", began, ended)
        return done

    async def _end_in_background(self, store: ResponseStore, work: ResponseWork) -> bool:
        """Store the end of a background response. Returns False if another process has ended it.

        A client may continue the conversation as soon as the response has ended, so the items are added before that. The
        ending is stored first, so that no other process can end the response differently, and another process can complete it
        if this one dies.
        """
        record = self.record(work)
        if goes_into_conversation(record):
            ending = as_ending(record)
            if not await store.advance(ending, expected=UNFINISHED, attempt=self.attempt):
                return False
            self.attempt = ending.attempt
            await self._keep_in_conversation(store, work)
        return await store.advance(self.record(work), expected=UNFINISHED)

    async def _keep_in_conversation(self, store: ResponseStore, work: ResponseWork) -> None:
        """Add the response to its conversation. One that is too large for it has failed."""
        try:
            kept = await add_to_conversation(
                store, self.record(work), self._services.conversation_bounds
            )
            work.plan.input = kept.input
        except ConversationFull as error:
            self._fail(work, error, error.message)

    def _fail(self, work: ResponseWork, error: GatewayError, message: str) -> None:
        """Make a response that has ended well a failed one."""
        self._scope.error = error
        work.assembler.mark_failed(failure_code(error), message)
