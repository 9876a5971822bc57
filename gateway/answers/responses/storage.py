"""Storing a response when it is queued, when it begins, and when it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable

from gateway.answers.responses.ending import (
    add_to_conversation,
    as_ending,
    failure_code,
    goes_into_conversation,
)
from gateway.answers.responses.plan import Plan
from gateway.answers.run_scope import RunScope
from gateway.base.errors import ConversationFull, GatewayError, StoreUnavailable
from gateway.items.assembler import ResponseAssembler
from gateway.observe.run_stats import clock
from gateway.plugins.protocols import UNFINISHED, ResponseStore, StoredResponse
from gateway.services import Services
from gateway.wire.response import snapshot

logger = logging.getLogger("gateway.answers.responses.storage")


class ResponseStorage:
    """Stores one response, whichever model answers."""

    def __init__(self, services: Services, scope: RunScope) -> None:
        self.attempt = 0
        """See `StoredResponse`."""
        self._services = services
        self._scope = scope
        self.has_begun = False
        """Whether a queued response is stored as in progress."""
        self._lost = False
        """Whether another process has ended or taken over the response since it was queued."""
        self.count_events: Callable[[], int] = lambda: 0
        """Returns the number of a background response's events that clients may have seen."""

    def record(self, plan: Plan, assembler: ResponseAssembler) -> StoredResponse:
        """Return the record of the response in its current state."""
        return StoredResponse(
            response=snapshot(plan.response),
            input=plan.input,
            previous_response_id=plan.previous_response_id,
            conversation_id=plan.conversation_id,
            owner=plan.owner,
            streamed=plan.background and plan.stream,
            # A finished response is not run again, and its input is stored as items.
            request=plan.body if plan.response.status in UNFINISHED else None,
            attempt=self.attempt,
            results=dict(assembler.items.results),
        )

    def queued_again(self, plan: Plan) -> StoredResponse:
        """Return the record of the response as it was before it ran, for another process to run it. Its attempt is
        increased, so that the store rejects later writes of this process."""
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

    async def begin(self, record: StoredResponse) -> bool:
        """Store the `record` of a queued response that is now in progress. Returns False if another process has ended
        or taken over the response."""
        store = self._services.store
        if store is None:
            self.has_begun = True
            return True
        self.has_begun = await store.advance(record, expected={"queued"})
        self._lost = not self.has_begun
        return self.has_begun

    async def end(self, plan: Plan, assembler: ResponseAssembler) -> bool:
        """Store the ended response, before its terminal event is sent. Returns False if another process has ended it
        already.

        A foreground response that cannot be stored becomes a failed one: completed responses are always stored. Raises
        `StoreUnavailable` for a background response; another process then ends it when its lease expires.
        """
        store = self._services.store
        if self._lost:
            return False
        if store is None or not plan.store:
            return True
        began, failed, done = clock(), True, True
        try:
            if plan.background:
                done = await self._end_in_background(store, plan, assembler)
            else:
                # Before the response is stored: if its conversation is full, the response becomes a failed one.
                await self._keep_in_conversation(store, plan, assembler)
                await store.put(self.record(plan, assembler))
            failed = False
        except StoreUnavailable as error:
            if plan.background:
                raise
            logger.warning("response %s could not be stored: %s", plan.response.id, error.message)
            self._fail(assembler, error, f"Not stored: {error.message}")
        finally:
            ended = clock()
            self._services.metrics.stored(ended - began, failed=failed)
            if (span := self._scope.stats.span) is not None:
                span.record("store", began, ended)
        return done

    async def _end_in_background(
        self, store: ResponseStore, plan: Plan, assembler: ResponseAssembler
    ) -> bool:
        """Store the end of a background response. Returns False if another process has ended it.

        A client may continue the conversation as soon as the response has ended, so the items are added before that.
        The ending is stored first, so that no other process can end the response differently, and another process can
        complete it if this one dies.
        """
        record = self.record(plan, assembler)
        if goes_into_conversation(record):
            ending = as_ending(record)
            if not await store.advance(ending, expected=UNFINISHED, attempt=self.attempt):
                return False
            self.attempt = ending.attempt
            await self._keep_in_conversation(store, plan, assembler)
        return await store.advance(self.record(plan, assembler), expected=UNFINISHED)

    async def _keep_in_conversation(
        self, store: ResponseStore, plan: Plan, assembler: ResponseAssembler
    ) -> None:
        """Add the response to its conversation. If it is too large for the conversation, the response becomes a failed
        one."""
        try:
            kept = await add_to_conversation(
                store, self.record(plan, assembler), self._services.conversation_bounds
            )
            plan.input = kept.input
        except ConversationFull as error:
            self._fail(assembler, error, error.message)

    def _fail(self, assembler: ResponseAssembler, error: GatewayError, message: str) -> None:
        """Change an ended response to a failed one."""
        self._scope.error = error
        assembler.mark_failed(failure_code(error), message)
