"""Running the gateway's tool calls of one response."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from gateway.observe.metrics import Metrics
from gateway.observe.request_context import current_context
from gateway.plugins.protocols import (
    Attributes,
    CallRecord,
    Span,
    ToolCall,
    ToolImage,
    ToolResult,
    ToolSession,
    Turn,
)
from gateway.tools.available import BoundTool
from gateway.tools.earlier import earlier_calls
from gateway.tools.output import cut, seen_images, with_notes
from gateway.wire.content import InputImage
from gateway.wire.json_text import decode_text

logger = logging.getLogger("gateway.tools")

_SessionKey: TypeAlias = tuple[int, int]
_PROGRESS_SECONDS: Final = 1.0
"""Interval between two reports of progress of a call."""


class PendingCall(Protocol):
    """A complete call from the model that the gateway runs."""

    @property
    def id(self) -> str:
        """The id of the item that shows the result."""
        ...

    @property
    def name(self) -> str:
        """The tool's name as the model saw it."""
        ...

    @property
    def arguments(self) -> str:
        """The arguments as the model wrote them: JSON text."""
        ...

    @property
    def approval_request_id(self) -> str | None:
        """Id of the approval request that the client approved; None if the call needed no approval."""
        ...


CallT = TypeVar("CallT", bound=PendingCall)


class ApprovedCallRunner(Protocol):
    """Runs approved calls: `Approvals.once`, for one owner."""

    async def __call__(
        self, request_id: str, call: Callable[[], Awaitable[ToolResult]], *, seconds: float
    ) -> ToolResult: ...


_NAMED: Final = 64
"""Maximum number of tools that an error lists by name."""


class _Progress:
    """The progress reports of one call. Reports within `_PROGRESS_SECONDS` of the previous one are dropped."""

    def __init__(self, number: int, news: asyncio.Queue[_Progress | None]) -> None:
        self.number = number
        self.waiting = False
        """Whether a report waits in `news`."""
        self._news = news
        self._next = -math.inf

    def report(self) -> None:
        now = time.monotonic()
        if not self.waiting and now >= self._next:
            self.waiting = True
            self._next = now + _PROGRESS_SECONDS
            self._news.put_nowait(self)


class ToolCalls:
    """The tool calls of one response: their sessions and their limits."""

    def __init__(
        self,
        response_id: str,
        bound_tools: Mapping[str, BoundTool],
        *,
        turn: Turn,
        max_calls: int | None,
        max_uses: Mapping[str, int] = {},
        max_parallel: int,
        metrics: Metrics,
        once: ApprovedCallRunner | None = None,
        sees_images: bool = False,
    ) -> None:
        """`turn` is the first turn of the response. `max_calls` is the response's `max_tool_calls`; `max_uses` maps
        request types to their limits. `once` runs approved calls; it may be None if there are none. `sees_images`:
        whether the model sees the images of results."""
        self._response_id = response_id
        self._bound_tools = bound_tools
        self._turn = turn
        self._calls: dict[str, CallRecord] = {}
        """This response's calls, by item id."""
        self._max_calls = max_calls
        self._parallel = asyncio.Semaphore(max_parallel)
        self._metrics = metrics
        self._once = once
        self._sees_images = sees_images
        self._uses_left = dict(max_uses)
        self._made = 0
        self._sessions: dict[_SessionKey, ToolSession | Exception] = {}

    @property
    def limit_reached(self) -> bool:
        """Whether the maximum number of calls is reached."""
        return self._max_calls is not None and self._made >= self._max_calls

    @property
    def any_made(self) -> bool:
        """Whether any call was begun."""
        return self._made > 0

    def runs(self, name: str) -> bool:
        """Whether the gateway runs the tool that the model sees as `name`."""
        return name in self._bound_tools

    async def run(
        self, calls: Sequence[CallT], sessions: AsyncExitStack
    ) -> AsyncGenerator[tuple[CallT, ToolResult | None], None]:
        """Run `calls` concurrently. Yields each call with its result, in the order of `calls`. Before that, yields a
        call with None whenever it reports progress.

        Sessions are opened in this task, and closed with `sessions`: many clients of tool servers must be closed by the
        task that opened them.
        """
        for call in calls:
            if (tool := self._bound_tools.get(call.name)) is not None:
                await self._open(tool, sessions)
        news: asyncio.Queue[_Progress | None] = asyncio.Queue()
        progress = [_Progress(number, news) for number in range(len(calls))]
        tasks = [
            asyncio.ensure_future(self._call(call, each.report))
            for call, each in zip(calls, progress, strict=True)
        ]
        for task in tasks:
            task.add_done_callback(lambda _: news.put_nowait(None))
        try:
            for number, (call, task) in enumerate(zip(calls, tasks, strict=True)):
                while not task.done():
                    each = await news.get()
                    if each is not None:
                        each.waiting = False
                        if each.number >= number:
                            yield calls[each.number], None
                result = task.result()
                self._calls[call.id] = result.record(call.name, call.arguments)
                yield call, result
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _open(self, tool: BoundTool, sessions: AsyncExitStack) -> None:
        server, key = tool.server, _session_key(tool)
        if key in self._sessions:
            return
        earlier = earlier_calls(self._turn.items, self._turn.results)
        context = msgspec.structs.replace(
            tool.context, response_id=self._response_id, calls={**earlier, **self._calls}
        )
        try:
            session = await sessions.enter_async_context(
                _open_session(server.label, server.session(context))
            )
        except Exception as failure:
            # Like a failing call: the model reads the error, and the response continues.
            logger.warning("tool server %s did not open", server.label, exc_info=True)
            self._sessions[key] = failure
        else:
            self._sessions[key] = session

    async def _call(self, call: PendingCall, report: Callable[[], None]) -> ToolResult:
        """Run one call. Any failure becomes a result that the model reads."""
        if self.limit_reached:
            return _failed(
                f"This response's limit of {self._max_calls} tool calls is reached. Answer without tools.",
                "max_uses",
            )
        self._made += 1
        entry = self._bound_tools.get(call.name)
        if entry is None:
            names = ", ".join(list(self._bound_tools)[:_NAMED])
            return _failed(
                f"There is no tool named '{call.name[:100]}'. The tools are: {names}.",
                "unavailable",
            )
        kind = entry.tool.request_type
        if kind in self._uses_left:
            if not self._uses_left[kind]:
                return _failed(
                    "The limit on calls of this tool is reached. Answer without it.", "max_uses"
                )
            self._uses_left[kind] -= 1
        arguments = call_arguments(call.arguments, entry.tool.item_type == "code_interpreter_call")
        if isinstance(arguments, str):
            return _failed(arguments, "arguments")
        session = self._sessions[_session_key(entry)]
        if isinstance(session, Exception):
            return _failed(f"The tool is not available: {session}", "unavailable")
        made = ToolCall(entry.tool.definition.name, arguments, report)
        run = partial(self._run, call.name, entry, session, made)
        async with self._parallel:
            approval = call.approval_request_id
            if approval is None:
                return await run()
            assert self._once is not None, "who has approved calls runs each once"
            return await self._once(approval, run, seconds=entry.tool.time_limit)

    async def _run(
        self, name: str, entry: BoundTool, session: ToolSession, call: ToolCall
    ) -> ToolResult:
        started = time.monotonic()
        seconds = entry.tool.time_limit
        current = current_context()
        span: Span | None = None
        if current is not None and current.span is not None:
            span = current.span.child(f"execute_tool {name}")
            call = msgspec.structs.replace(call, trace_headers=span.headers)
        measured = None if current is None else current.run
        try:
            with nullcontext() if measured is None else measured.running_tool(name):
                async with asyncio.timeout(seconds):
                    result = await session.call(call)
        except TimeoutError:
            result = _failed(
                f"The tool did not answer within {seconds:g} seconds and was stopped.", "time_limit"
            )
        except Exception as failure:
            # Tools are third-party code: a failure is reported to the model and does not end the
            # response.
            logger.warning("tool %s failed", name, exc_info=True)
            result = _failed(f"The tool failed: {failure}")
        except asyncio.CancelledError:
            if span is not None:
                span.end(_span_attributes(name, entry), error="cancelled")
            raise
        if span is not None:
            error = "tool_failed" if result.failed else None
            span.end(_span_attributes(name, entry), error=error)
        text = result.text
        seen: Sequence[ToolImage] = ()
        shown: Sequence[InputImage] = ()
        if result.images:
            if self._sees_images:
                seen, shown = await asyncio.to_thread(seen_images, result.images)
            text = with_notes(text, result.images, seen)
        result = msgspec.structs.replace(
            result, text=cut(text, entry.tool.output_limit), seen=shown
        )
        self._metrics.tool_called(
            entry.tool.counted_as or name,
            failed=result.failed,
            seconds=time.monotonic() - started,
        )
        return result


def _span_attributes(name: str, entry: BoundTool) -> Attributes:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "extension",
        "gateway.tool.server": entry.server.label,
    }


def _session_key(tool: BoundTool) -> _SessionKey:
    """The identities of the server and of the context. Two servers may have the same label, and several entries of a
    request may select the same server."""
    return id(tool.server), id(tool.context)


def _failed(
    text: str,
    fault: Literal["arguments", "unavailable", "time_limit", "max_uses"] | None = None,
) -> ToolResult:
    return ToolResult(text=text, failed=True, fault=fault)


@asynccontextmanager
async def _open_session(
    label: str, context: AbstractAsyncContextManager[ToolSession]
) -> AsyncIterator[ToolSession]:
    """Open a tool session. If closing it fails, the error is logged and ignored."""
    session = await context.__aenter__()
    try:
        yield session
    finally:
        try:
            await context.__aexit__(None, None, None)
        except Exception:
            # The response is complete, so a failure to clean up is only logged.
            logger.warning("tool server %s did not close", label, exc_info=True)


def call_arguments(text: str, is_code: bool) -> dict[str, Any] | str:
    """The arguments of a call as an object. If they are invalid, a string that explains the error to the model."""
    try:
        value = decode_text(text or "{}")
    except msgspec.DecodeError as error:
        if is_code:
            return {"code": text}
        return f"The arguments are not valid JSON ({error}). Call again with a JSON object."
    if isinstance(value, dict):
        return value
    if is_code:
        return {"code": value if isinstance(value, str) else text}
    return "The arguments must be a JSON object. Call again with one."
