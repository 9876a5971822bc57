"""Screens a server's messages before the SDK validates and answers them."""

from __future__ import annotations

from typing import Any, Final

from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
)

from gateway_mcp.pacing import TokenBucket

OUTPUT_SCHEMA: Final = "litegate/outputSchema"
"""The key in a tool's `_meta` under which its `outputSchema` is hidden from the SDK, which would evaluate it on the
event loop."""
_MAX_ENTRIES: Final = {
    "content": 1000,
    "tools": 1000,
    "inputRequests": 16,
    "supportedVersions": 100,
}
"""Maximum number of elements of these parts of a result. The SDK validates each element separately."""
_MESSAGES_A_SECOND: Final = 1000.0
_MESSAGE_BURST: Final = 2000.0
_REQUESTS_A_SECOND: Final = 1.0
_REQUEST_BURST: Final = 100.0


class TooManyRequests(Exception):
    """The server sends more requests than a client has to answer."""


class MessageScreen:
    """Checks the messages of one connection and limits their rate."""

    def __init__(self) -> None:
        self._messages = TokenBucket(_MESSAGES_A_SECOND, _MESSAGE_BURST)
        self._requests = TokenBucket(_REQUESTS_A_SECOND, _REQUEST_BURST)

    async def admit(self, item: Any) -> Any:
        """The message in the form that the SDK may process. Waits if messages arrive too fast; raises
        `TooManyRequests`."""
        await self._messages.wait()
        if isinstance(item, SessionMessage):
            if isinstance(item.message, JSONRPCRequest) and self._requests.take():
                raise TooManyRequests
            item.message = screened(item.message)
        return item


def screened(message: JSONRPCMessage) -> JSONRPCMessage:
    """The message without output schemas. A result with too many elements is replaced by an error."""
    if not isinstance(message, JSONRPCResponse):
        return message
    for name, most in _MAX_ENTRIES.items():
        part = message.result.get(name)
        if isinstance(part, list | dict) and len(part) > most:
            problem = f"the answer has more than {most} elements in '{name}', this gateway's limit"
            error = ErrorData(code=INVALID_REQUEST, message=problem)
            return JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
    tools = message.result.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and (schema := tool.pop("outputSchema", None)) is not None:
            meta = tool.get("_meta")
            tool["_meta"] = {**(meta if isinstance(meta, dict) else {}), OUTPUT_SCHEMA: schema}
    return message
