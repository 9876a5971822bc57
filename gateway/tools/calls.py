"""Running the calls of the tools that the gateway serves, for one response."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Literal

import msgspec

from gateway.protocols import (
    CallRecord,
    ContinuingToolServer,
    ToolResult,
    ToolServer,
    ToolSession,
)
from gateway.responses.open_item.item import OpenServerCall
from gateway.serving.metrics import Metrics
from gateway.tools.offered import RunnableTool
from gateway.tools.output import cut

logger = logging.getLogger("gateway.tools")


class ToolCalls:
    """One response's calls: their sessions, and how many there may be."""

    def __init__(
        self,
        response_id: str,
        served: Mapping[str, RunnableTool],
        *,
        known: Mapping[str, CallRecord] = {},
        max_calls: int | None,
        max_uses: Mapping[str, int] = {},
        max_parallel: int,
        metrics: Metrics,
    ) -> None:
        """`known` are calls of earlier responses; `max_calls` is the response's `max_tool_calls`, `max_uses` are limits of
        the tools of single request types.
        """
        self._response_id = response_id
        self._served = served
        self._known = known
        self._max_calls = max_calls
        self._parallel = asyncio.Semaphore(max_parallel)
        self._metrics = metrics
        self._uses_left = dict(max_uses)
        self._made = 0
        self._sessions: dict[int, ToolSession | Exception] = {}
        """By the identity of the server: two may have one label."""

    @property
    def spent(self) -> bool:
        """Whether no further call is allowed."""
        return self._max_calls is not None and self._made >= self._max_calls

    async def run(
        self, calls: Sequence[OpenServerCall], sessions: AsyncExitStack
    ) -> AsyncGenerator[tuple[OpenServerCall, ToolResult], None]:
        """Run `calls` at once; yields each with its result, in the order of `calls`.

        Sessions are opened in this task, and closed with `sessions` by whoever owns it: many clients of tool servers
        must be closed by the task that opened them.
        """
        for call in calls:
            await self._open(self._served[call.name].server, sessions)
        tasks = [asyncio.ensure_future(self._call(call)) for call in calls]
        try:
            for call, task in zip(calls, tasks, strict=True):
                yield call, await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _open(self, server: ToolServer, sessions: AsyncExitStack) -> None:
        if id(server) in self._sessions:
            return
        try:
            session = await sessions.enter_async_context(
                _quietly_closed(server.label, self._session(server))
            )
        except Exception as failure:
            # As for a failing call: the model is told, and the response goes on.
            logger.warning("tool server %s did not open", server.label, exc_info=True)
            self._sessions[id(server)] = failure
        else:
            self._sessions[id(server)] = session

    def _session(self, server: ToolServer) -> AbstractAsyncContextManager[ToolSession]:
        if isinstance(server, ContinuingToolServer):
            return server.session_after(self._response_id, self._known)
        return server.session(self._response_id)

    async def _call(self, call: OpenServerCall) -> ToolResult:
        """Run one call. Whatever goes wrong is a result that the model reads."""
        if self.spent:
            return _failed(
                f"This response's limit of {self._max_calls} tool calls is reached. Answer without tools.",
                "max_uses",
            )
        self._made += 1
        entry = self._served[call.name]
        kind = entry.tool.request_type
        if kind in self._uses_left:
            if not self._uses_left[kind]:
                return _failed(
                    "This tool has been used as often as it may be. Answer without it.", "max_uses"
                )
            self._uses_left[kind] -= 1
        arguments = call_arguments(call.arguments, entry.tool.item_type == "code_interpreter_call")
        if isinstance(arguments, str):
            return _failed(arguments, "arguments")
        session = self._sessions[id(entry.server)]
        if isinstance(session, Exception):
            return _failed(f"The tool is not available: {session}", "unavailable")
        started = time.monotonic()
        seconds = entry.tool.time_limit
        try:
            async with self._parallel, asyncio.timeout(seconds):
                result = await session.call(entry.tool.definition.name, arguments)
        except TimeoutError:
            result = _failed(
                f"The tool did not answer within {seconds:g} seconds and was stopped.", "time_limit"
            )
        except Exception as failure:
            # A tool is somebody's code: its failure is told to the model and ends nothing.
            logger.warning("tool %s failed", call.name, exc_info=True)
            result = _failed(f"The tool failed: {failure}")
        result = msgspec.structs.replace(result, text=cut(result.text, entry.tool.output_limit))
        self._metrics.tool_called(
            entry.tool.counted_as or call.name,
            failed=result.failed,
            seconds=time.monotonic() - started,
        )
        return result


def _failed(
    text: str,
    fault: Literal["arguments", "unavailable", "time_limit", "max_uses"] | None = None,
) -> ToolResult:
    return ToolResult(text=text, failed=True, fault=fault)


@asynccontextmanager
async def _quietly_closed(
    label: str, context: AbstractAsyncContextManager[ToolSession]
) -> AsyncIterator[ToolSession]:
    """A tool session whose failure to close is logged and ends nothing."""
    session = await context.__aenter__()
    try:
        yield session
    finally:
        try:
            await context.__aexit__(None, None, None)
        except Exception:
            # The response is made; a tool that does not tidy up is its author's trouble.
            logger.warning("tool server %s did not close", label, exc_info=True)


def call_arguments(text: str, is_code: bool) -> dict[str, Any] | str:
    """A call's arguments as an object; or, as a string, what is wrong with them, for the model to read."""
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError) as error:
        if is_code:
            return {"code": text}
        return f"The arguments are not valid JSON ({error}). Call again with a JSON object."
    if isinstance(value, dict):
        return value
    if is_code:
        return {"code": value if isinstance(value, str) else text}
    return "The arguments must be a JSON object. Call again with one."
