"""Mistakes in the class of a tool server stop the start with a sentence."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from gateway import hookimpl
from gateway.base.errors import ConfigurationError
from gateway.plugins.checks import tool_server_mistake
from gateway.plugins.protocols import ServerTool, SessionContext, ToolCall, ToolResult, ToolServer
from gateway_testing.pytest_plugin import StartGateway


class Right(ToolServer):
    """Has every method, by its right name, and some of its own."""

    label = "right"

    async def tools(self) -> Sequence[ServerTool]:
        return []

    def offered(self) -> Sequence[ToolServer]:
        return []

    def check(self, context: SessionContext) -> None:
        pass

    def session(self, context: SessionContext) -> AbstractAsyncContextManager[ToolServer]:
        return super().session(context)  # type: ignore[return-value]

    async def call(self, call: ToolCall) -> ToolResult:
        raise NotImplementedError

    def use(self, services: object) -> None:
        pass

    def tool(self) -> None:
        """Near `tools`, which is there too."""

    def connect(self) -> None:
        pass


class Bare(ToolServer):
    """Has what a server needs."""

    def __init__(self) -> None:
        self.label = "bare"

    async def tools(self) -> Sequence[ServerTool]:
        return []

    async def call(self, call: ToolCall) -> ToolResult:
        raise NotImplementedError


class Misspelt(Bare):
    def chek(self, context: SessionContext) -> None:
        pass


class Renamed(Bare):
    def session_after(self, response_id: str, calls: object) -> None:
        pass


class MisspeltAttribute(Bare):
    request_typ = "mcp"


class InBase(Misspelt):
    """Inherits the mistake."""


class NotAsynchronous(Bare):
    def tools(self) -> Any:
        return []


class Asynchronous(Bare):
    async def check(self, context: SessionContext) -> None:  # type: ignore[override]
        pass


class Undecorated(Bare):
    async def session(self, context: SessionContext) -> AsyncIterator[ToolServer]:  # type: ignore[override]
        yield self


class OtherArguments(Bare):
    def check(self, tool: object, owner: object) -> None:  # type: ignore[override]
        pass


class Nameless(ToolServer):
    async def tools(self) -> Sequence[ServerTool]:
        return []

    async def call(self, call: ToolCall) -> ToolResult:
        raise NotImplementedError


class WithoutTools(ToolServer):
    label = "x"


class WithoutCall(ToolServer):
    label = "x"

    async def tools(self) -> Sequence[ServerTool]:
        return []


class Chooser(ToolServer):
    """Its tools are those of the servers that requests choose."""

    label = request_type = "mcp"


@pytest.mark.parametrize("server", [Right(), Bare(), Chooser()], ids=lambda s: type(s).__name__)
def test_a_right_server_has_no_mistake(server: ToolServer) -> None:
    assert tool_server_mistake(server) is None


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        (Misspelt(), 'Misspelt.chek is never used; did you mean "check"?'),
        (InBase(), 'InBase.chek is never used; did you mean "check"?'),
        (Renamed(), 'Renamed.session_after is never used; did you mean "session"?'),
        (
            MisspeltAttribute(),
            'MisspeltAttribute.request_typ is never used; did you mean "request_type"?',
        ),
        (NotAsynchronous(), "NotAsynchronous.tools must be asynchronous"),
        (Asynchronous(), "Asynchronous.check must not be asynchronous"),
        (
            Undecorated(),
            "Undecorated.session must be decorated with contextlib.asynccontextmanager",
        ),
        (OtherArguments(), "OtherArguments.check must take one argument"),
        (Nameless(), "Nameless has no label"),
        (WithoutTools(), "WithoutTools has no method tools"),
        (WithoutCall(), "WithoutCall has neither a method call nor session"),
        (object(), "object is not derived from gateway.sdk.ToolServer"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_mistake_is_one_sentence(server: Any, sentence: str) -> None:
    assert tool_server_mistake(server) == sentence


class Plugin:
    __name__ = "gateway_mistaken"

    @asynccontextmanager
    async def open(self, config: Any) -> AsyncIterator[Misspelt]:
        yield Misspelt()

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("mistaken", self.open)


def test_the_start_names_the_plugin_and_the_method(gateway_server: StartGateway) -> None:
    config = {"models": {"m": {"engine": "scripted"}}, "tools": {"mistaken": {}}}
    with pytest.raises(ConfigurationError) as stopped:
        gateway_server(config, plugins=[Plugin()])
    assert str(stopped.value) == (
        "The tool 'mistaken' of the plugin mistaken (this program) cannot be used: "
        'Misspelt.chek is never used; did you mean "check"?'
    )
