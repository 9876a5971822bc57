"""A conversation's items, reduced to what both APIs can say: messages, reasoning, calls and their outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from gateway.errors import InvalidRequest
from gateway.protocols import Turn
from gateway.tools.toolset import qualified_name
from gateway.wire import items as wire
from gateway.wire.content import ToolOutputContent
from gateway_chat_template.conversation import Done, Result, conversation


class Output:
    """What a call gave back."""

    def __init__(
        self, call_id: str, output: str | list[ToolOutputContent], *, custom: bool = False
    ) -> None:
        self.call_id = call_id
        self.output = output
        self.custom = custom


class Call:
    """A call that the model has made. `custom`: `arguments` is free text."""

    def __init__(self, call_id: str, name: str, arguments: str, *, custom: bool = False) -> None:
        self.call_id = call_id
        self.name = name
        self.arguments = arguments
        self.custom = custom


Entry: TypeAlias = wire.Message | wire.Reasoning | Call | Output


def entries(turn: Turn) -> Iterator[tuple[str, Entry]]:
    """The entries that the turn's items come to, each with the parameter that it is in.

    A call that the gateway or the client's shell ran is a call and its output, like any other. Raises `InvalidRequest`
    for items that cannot be told so.
    """
    names = [tool.name for tool in turn.tools]
    awaiting: dict[str, wire.McpApprovalRequest] = {}
    for index, item in enumerate(turn.items):
        param = f"input[{index}]"
        match item:
            case wire.Message() | wire.Reasoning():
                yield param, item
            case wire.FunctionCall():
                name = qualified_name(item.name, item.namespace or None)
                yield param, Call(item.call_id, name, item.arguments)
            case wire.CustomToolCall():
                name = qualified_name(item.name, item.namespace or None)
                yield param, Call(item.call_id, name, item.input, custom=True)
            case wire.FunctionCallOutput():
                yield param, Output(item.call_id, item.output)
            case wire.CustomToolCallOutput():
                yield param, Output(item.call_id, item.output, custom=True)
            case wire.McpApprovalRequest():
                awaiting[item.id] = item
            case _:
                together: list[wire.Item] = [item]
                if isinstance(item, wire.McpApprovalResponse):
                    asked = awaiting.pop(item.approval_request_id, None)
                    together[:0] = [] if asked is None else [asked]
                yield from ((param, entry) for entry in _other(together, turn, names, param))


def _other(
    items: Sequence[wire.Item], turn: Turn, tool_names: Sequence[str], param: str
) -> Iterator[Entry]:
    try:
        read = conversation(items, tool_names, turn.results)
    except InvalidRequest as error:
        error.param = param  # it counts from the first that it was given
        raise
    for entry in read:
        match entry:
            case Done():
                for call in entry.calls:
                    yield Call(call.call_id, call.name, call.arguments)
            case Result():
                yield Output(entry.call_id, entry.text)
            case _:
                raise AssertionError("messages are read before")
