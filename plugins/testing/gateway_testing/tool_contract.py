"""The contract of tool servers, as tests to inherit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

import msgspec
import pytest

from gateway.plugins.checks import tool_server_mistake
from gateway.plugins.protocols import (
    CallRecord,
    CodeDetails,
    ContainerFileSource,
    FileSearchDetails,
    FileSource,
    SearchDetails,
    ServerTool,
    SessionContext,
    ShellDetails,
    Source,
    ToolCall,
    ToolDetails,
    ToolResult,
    ToolServer,
    ToolSession,
)
from gateway.wire.tools import Tool
from gateway_doctor.checks.loop_watch import loop_stays_free
from gateway_testing.closing_contract import ClosingContract
from gateway_testing.on_asyncio import OnAsyncio

_DETAILS: dict[str, type[ToolDetails]] = {
    "code_interpreter_call": CodeDetails,
    "web_search_call": SearchDetails,
    "file_search_call": FileSearchDetails,
    "shell_call": ShellDetails,
}
"""Maps item types to the class of their details. Items of type `mcp_call` have no details."""


@pytest.mark.anyio
class ToolServerContract(ClosingContract, OnAsyncio):
    """Subclass this, provide a fixture `tool_server` (an open tool server), and set `good_call`. If calls keep
    something for later ones, also set `kept`, and provide the fixture `reopen`."""

    good_call: ClassVar[tuple[str, dict[str, Any]]]
    """The name of a tool, and arguments with which it succeeds."""
    bad_call: ClassVar[tuple[str, dict[str, Any]] | None] = None
    """The name of a tool, and invalid arguments. If None, a tool with required arguments is called without them."""
    slow_call: ClassVar[tuple[str, dict[str, Any]] | None] = None
    """A call that takes at least ten seconds, to be cancelled; None if no tool is slow."""
    kept: ClassVar[tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]], str] | None] = None
    """A call that keeps something for later responses of the same owner, a call that shows it, and a text that is in
    the result only after the first call. None if nothing is kept."""
    time_limit: ClassVar[float] = 30.0
    """Time limit for any single step, in seconds."""

    entry: ClassVar[Tool | None] = None
    """The entry of a request's `tools` that selects the server; None if requests have the tools without an entry."""

    def session(
        self,
        server: ToolServer,
        response_id: str,
        calls: Mapping[str, CallRecord] = {},
        *,
        owner: str | None = None,
    ) -> AbstractAsyncContextManager[ToolSession]:
        """A session as the gateway opens it, of the server that `check` returns."""
        context = SessionContext(
            owner=owner, entry=self.entry, response_id=response_id, calls=calls
        )
        return (server.check(context) or server).session(context)

    async def use_once(self, opened: ToolServer) -> None:
        async with self.session(opened, "resp_once") as session:
            await session.call(ToolCall(*self.good_call))

    async def test_it_has_no_misspelt_method(self, tool_server: ToolServer) -> None:
        assert tool_server_mistake(tool_server) is None

    async def test_it_offers_tools_that_a_model_can_be_told_of(
        self, tool_server: ToolServer
    ) -> None:
        assert tool_server.label
        tools = await tool_server.tools()
        assert tools
        names = [tool.definition.name for tool in tools]
        assert len(names) == len(set(names))
        for tool in tools:
            assert tool.definition.name
            assert tool.time_limit > 0
            assert tool.item_type in {*_DETAILS, "mcp_call"}
            schema = tool.definition.parameters
            assert schema is None or schema.get("type") == "object"

    async def test_a_call_gives_text_for_the_model(self, tool_server: ToolServer) -> None:
        async with self.session(tool_server, "resp_good") as session:
            result = await session.call(ToolCall(*self.good_call))
        assert not result.failed, result.text
        assert isinstance(result.text, str)
        assert all("/" in image.media_type for image in result.images)
        encoded = msgspec.json.encode(result)
        decoded = msgspec.json.decode(encoded, type=ToolResult)
        assert msgspec.json.encode(decoded) == encoded, "it cannot be stored"

    async def test_the_details_of_a_result_are_those_of_the_calls_item(
        self, tool_server: ToolServer
    ) -> None:
        """This holds for failed calls too. Details of another class would not be shown."""
        tools = {tool.definition.name: tool for tool in await tool_server.tools()}
        bad = self.bad_call or _without_arguments(tools.values()) or self.good_call
        async with self.session(tool_server, "resp_details") as session:
            for call in (self.good_call, bad):
                details = (await session.call(ToolCall(*call))).details
                assert details is None or type(details) is _DETAILS.get(tools[call[0]].item_type)

    async def test_a_probe_lists_the_tools(self, tool_server: ToolServer) -> None:
        """This holds for the probe of a server, and for the probes of servers among which requests choose."""
        async with asyncio.timeout(self.time_limit):
            for server in (tool_server, *tool_server.configured()):
                found = await server.probe()
                assert found is None or all(isinstance(each, ServerTool) for each in found)

    async def test_a_session_accepts_the_earlier_calls_of_other_tools(
        self, tool_server: ToolServer
    ) -> None:
        """Earlier calls may be calls of any tool, and may have been forged by clients."""
        calls = {
            "mcp_1": CallRecord(name="another_tool", arguments="not JSON", result="\ud800"),
            "ws_2": CallRecord(
                name=self.good_call[0],
                arguments='{"a": [',
                result="【9†L1】",
                sources=[Source(cursor=9, url="not a URL"), Source(cursor=-1, url="")],
                files=[FileSource(mark="4:0", file_id=""), FileSource(mark="x", file_id="f")],
                container_files=[ContainerFileSource(path="..", container_id="", file_id="")],
            ),
        }
        async with self.session(tool_server, "resp_later", calls) as session:
            result = await session.call(ToolCall(*self.good_call))
        assert not result.failed, result.text

    async def test_an_unknown_tool_is_a_failed_result(self, tool_server: ToolServer) -> None:
        """The model reads the result and can correct itself. No exception ends the run."""
        async with self.session(tool_server, "resp_unknown") as session:
            result = await session.call(ToolCall("no_such_tool_here"))
            assert result.failed
            assert result.text
            assert not (await session.call(ToolCall(*self.good_call))).failed

    async def test_bad_arguments_are_a_failed_result(self, tool_server: ToolServer) -> None:
        bad = self.bad_call or _without_arguments(await tool_server.tools())
        if bad is None:
            pytest.skip("no tool needs arguments; name a bad_call, if there is one")
        async with self.session(tool_server, "resp_bad") as session:
            result = await session.call(ToolCall(*bad))
            assert result.failed
            assert result.text
            assert not (await session.call(ToolCall(*self.good_call))).failed

    async def test_calls_run_at_once(self, tool_server: ToolServer) -> None:
        async with (
            asyncio.timeout(self.time_limit),
            self.session(tool_server, "resp_many") as session,
        ):
            results = await asyncio.gather(
                *(session.call(ToolCall(*self.good_call)) for _ in range(8))
            )
        assert [result.failed for result in results] == [False] * 8

    async def test_calls_do_not_block_the_event_loop(self, tool_server: ToolServer) -> None:
        async with loop_stays_free("the tool server"):
            await self.use_once(tool_server)

    async def test_an_owner_does_not_see_what_another_has_kept(
        self, tool_server: ToolServer
    ) -> None:
        """An anonymous owner does not see it either, even with the ids of the other owner's responses."""
        if self.kept is None:
            pytest.skip("no call keeps anything; set `kept` if one does")
        keep, show, text = self.kept

        async def said(call: tuple[str, dict[str, Any]], owner: str | None, response: str) -> str:
            async with self.session(tool_server, response, owner=owner) as session:
                return (await session.call(ToolCall(*call))).text

        await said(keep, "ada", "resp_kept")
        shown = await said(show, "ada", "resp_shown")
        assert text in shown, f"the owner herself gets {shown!r}, without {text!r}: mend `kept`"
        for owner in ("grace", None, ""):
            for response in ("resp_kept", "resp_shown", "resp_others"):
                assert text not in await said(show, owner, response), (
                    f"{'nobody in particular' if owner is None else repr(owner)} is shown what 'ada' has kept. Keep it by "
                    "`SessionContext.owner`"
                )

    async def test_sessions_are_apart(self, tool_server: ToolServer) -> None:
        """Ending one response's session does not end another's."""
        async with self.session(tool_server, "resp_long") as long:
            async with self.session(tool_server, "resp_short") as short:
                assert not (await short.call(ToolCall(*self.good_call))).failed
            assert not (await long.call(ToolCall(*self.good_call))).failed

    async def test_a_session_is_left_when_the_response_fails(self, tool_server: ToolServer) -> None:
        """The session passes on the failure, and the server continues to work."""

        class ResponseFailedError(Exception):
            pass

        async def failing_response() -> None:
            async with self.session(tool_server, "resp_failing") as session:
                await session.call(ToolCall(*self.good_call))
                raise ResponseFailedError

        with pytest.raises(ResponseFailedError):
            await failing_response()
        async with self.session(tool_server, "resp_next") as session:
            assert not (await session.call(ToolCall(*self.good_call))).failed

    async def test_a_session_that_calls_nothing_is_fine(self, tool_server: ToolServer) -> None:
        async with self.session(tool_server, "resp_idle"):
            pass

    async def test_cancelling_stops_a_call(self, tool_server: ToolServer) -> None:
        if self.slow_call is None:
            pytest.skip("no tool is slow")
        async with (
            asyncio.timeout(self.time_limit),
            self.session(tool_server, "resp_cancelled") as session,
        ):
            task = asyncio.create_task(session.call(ToolCall(*self.slow_call)))
            await asyncio.sleep(0.5)
            assert not task.done(), "slow_call is not slow"
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with self.session(tool_server, "resp_after") as session:
            assert not (await session.call(ToolCall(*self.good_call))).failed


def _without_arguments(tools: Any) -> tuple[str, dict[str, Any]] | None:
    """A call without arguments, of a tool that requires some."""
    tool: ServerTool
    for tool in tools:
        if (tool.definition.parameters or {}).get("required"):
            return tool.definition.name, {}
    return None
