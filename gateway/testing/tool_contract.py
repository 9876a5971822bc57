"""What every tool server promises, as tests to inherit."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from gateway.protocols import ServedTool, ToolServer

_ITEM_TYPES = {
    "mcp_call",
    "code_interpreter_call",
    "web_search_call",
    "file_search_call",
    "shell_call",
}


@pytest.mark.anyio
class ToolServerContract:
    """Subclass it, give a fixture `tool_server`: an open tool server, and say which call succeeds."""

    good_call: ClassVar[tuple[str, dict[str, Any]]]
    """A tool's name, and arguments with which it succeeds."""
    bad_call: ClassVar[tuple[str, dict[str, Any]] | None] = None
    """A tool's name, and arguments that it cannot take; None: a tool with required arguments is called without."""
    slow_call: ClassVar[tuple[str, dict[str, Any]] | None] = None
    """A call that takes ten seconds or more, to be cancelled; None: no tool is slow."""
    time_limit: ClassVar[float] = 30.0
    """Seconds in which any single step must be over."""

    @pytest.fixture(scope="module")
    @classmethod
    def anyio_backend(cls) -> str:
        return "asyncio"

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
            assert tool.item_type in _ITEM_TYPES
            schema = tool.definition.parameters
            assert schema is None or schema.get("type") == "object"

    async def test_a_call_gives_text_for_the_model(self, tool_server: ToolServer) -> None:
        async with tool_server.session("resp_good") as session:
            result = await session.call(*self.good_call)
        assert not result.failed, result.text
        assert isinstance(result.text, str)

    async def test_an_unknown_tool_is_a_failed_result(self, tool_server: ToolServer) -> None:
        """Which the model reads, and may do better: no exception ends the run."""
        async with tool_server.session("resp_unknown") as session:
            result = await session.call("no_such_tool_here", {})
            assert result.failed
            assert result.text
            assert not (await session.call(*self.good_call)).failed

    async def test_bad_arguments_are_a_failed_result(self, tool_server: ToolServer) -> None:
        bad = self.bad_call or _without_arguments(await tool_server.tools())
        if bad is None:
            pytest.skip("no tool needs arguments; name a bad_call, if there is one")
        async with tool_server.session("resp_bad") as session:
            result = await session.call(*bad)
            assert result.failed
            assert result.text
            assert not (await session.call(*self.good_call)).failed

    async def test_calls_run_at_once(self, tool_server: ToolServer) -> None:
        async with asyncio.timeout(self.time_limit), tool_server.session("resp_many") as session:
            results = await asyncio.gather(*(session.call(*self.good_call) for _ in range(8)))
        assert [result.failed for result in results] == [False] * 8

    async def test_sessions_are_apart(self, tool_server: ToolServer) -> None:
        """One response's session ends without ending another's."""
        async with tool_server.session("resp_long") as long:
            async with tool_server.session("resp_short") as short:
                assert not (await short.call(*self.good_call)).failed
            assert not (await long.call(*self.good_call)).failed

    async def test_a_session_is_left_when_the_response_fails(self, tool_server: ToolServer) -> None:
        """The failure goes on, and the server does too."""

        class ResponseFailedError(Exception):
            pass

        async def failing_response() -> None:
            async with tool_server.session("resp_failing") as session:
                await session.call(*self.good_call)
                raise ResponseFailedError

        with pytest.raises(ResponseFailedError):
            await failing_response()
        async with tool_server.session("resp_next") as session:
            assert not (await session.call(*self.good_call)).failed

    async def test_a_session_that_calls_nothing_is_fine(self, tool_server: ToolServer) -> None:
        async with tool_server.session("resp_idle"):
            pass

    async def test_cancelling_stops_a_call(self, tool_server: ToolServer) -> None:
        if self.slow_call is None:
            pytest.skip("no tool is slow")
        name, arguments = self.slow_call
        async with asyncio.timeout(9), tool_server.session("resp_cancelled") as session:
            task = asyncio.create_task(session.call(name, arguments))
            await asyncio.sleep(0.5)
            assert not task.done(), "slow_call is not slow"
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with tool_server.session("resp_after") as session:
            assert not (await session.call(*self.good_call)).failed


def _without_arguments(tools: Any) -> tuple[str, dict[str, Any]] | None:
    """A call of a tool that needs arguments, with none."""
    tool: ServedTool
    for tool in tools:
        if (tool.definition.parameters or {}).get("required"):
            return tool.definition.name, {}
    return None
