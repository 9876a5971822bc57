"""Reduces a conversation's items to what both APIs can express: messages, reasoning, calls and outputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from gateway.sdk import InvalidRequest, ParamPath, Turn
from gateway.sdk.tools import qualified_name
from gateway.sdk.wire import InputText, ToolOutputContent
from gateway.sdk.wire import items as wire
from gateway_chat_template.conversation import OutputEntry, ResultEntry, conversation


class Output:
    """The output of a call."""

    def __init__(
        self, call_id: str, output: str | list[ToolOutputContent], *, custom: bool = False
    ) -> None:
        self.call_id = call_id
        self.output = output
        self.custom = custom


class HistoryCall:
    """A call made by the model. If `custom` is set, `arguments` is free text."""

    def __init__(self, call_id: str, name: str, arguments: str, *, custom: bool = False) -> None:
        self.call_id = call_id
        self.name = name
        self.arguments = arguments
        self.custom = custom


Entry: TypeAlias = wire.Message | wire.Reasoning | HistoryCall | Output


NO_RESULT: Final = "(This call has no result.)"
"""The output of a call that the conversation has none of."""


def entries(turn: Turn) -> list[tuple[ParamPath, Entry]]:
    """The entries of the turn's items, each with the parameter that it came from.

    Calls run by the gateway or by the client's shell are a call and its output. The outputs of calls follow the assistant's
    messages and calls that they are among, and each call has one, as strict upstreams require: messages that came in between
    follow the outputs. Raises `InvalidRequest` for items that cannot be expressed.
    """
    read = list(_entries(turn))
    calls = sum(isinstance(entry, HistoryCall) for _, entry in read)
    return _paired(read) if calls else read


def _paired(read: Sequence[tuple[ParamPath, Entry]]) -> list[tuple[ParamPath, Entry]]:
    outputs: dict[str, deque[int]] = {}
    for index, (_, entry) in enumerate(read):
        if isinstance(entry, Output):
            outputs.setdefault(entry.call_id, deque()).append(index)
    paired: list[tuple[ParamPath, Entry]] = []
    placed: set[int] = set()
    waiting: list[tuple[int, HistoryCall]] = []

    def answer() -> None:
        found: list[int] = []
        missing: list[tuple[ParamPath, Entry]] = []
        for at, call in waiting:
            own = outputs.get(call.call_id, deque())
            while own and own[0] < at:  # of an earlier call with this id
                own.popleft()
            if own:
                found.append(own.popleft())
            else:
                missing.append((read[at][0], Output(call.call_id, NO_RESULT, custom=call.custom)))
        placed.update(found)
        paired.extend(read[index] for index in sorted(found))
        paired.extend(missing)
        waiting.clear()

    for index, (param, entry) in enumerate(read):
        match entry:
            case Output():
                answer()
                if index not in placed:
                    paired.append((param, entry))
            case HistoryCall():
                waiting.append((index, entry))
                paired.append((param, entry))
            case _:
                if not _is_assistants(entry):
                    answer()
                paired.append((param, entry))
    answer()
    return paired


def _is_assistants(entry: Entry) -> bool:
    return not isinstance(entry, wire.Message) or entry.role == "assistant"


def _entries(turn: Turn) -> Iterator[tuple[ParamPath, Entry]]:
    names = [tool.name for tool in turn.tools]
    awaiting: dict[str, wire.McpApprovalRequest] = {}
    for index, item in enumerate(turn.items):
        param = ("input", index)
        match item:
            case wire.Message() | wire.Reasoning():
                yield param, item
            case wire.FunctionCall():
                name = qualified_name(item.name, item.namespace or None)
                yield param, HistoryCall(item.call_id, name, item.arguments)
            case wire.CustomToolCall():
                name = qualified_name(item.name, item.namespace or None)
                yield param, HistoryCall(item.call_id, name, item.input, custom=True)
            case wire.FunctionCallOutput():
                yield param, Output(item.call_id or "", item.output)
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
    items: Sequence[wire.Item], turn: Turn, tool_names: Sequence[str], param: ParamPath
) -> Iterator[Entry]:
    try:
        read = conversation(items, tool_names, turn.results)
    except InvalidRequest as error:
        error.at = param  # the converter counts from its first item, not the request's
        raise
    for entry in read:
        match entry:
            case OutputEntry():
                for call in entry.calls:
                    yield HistoryCall(call.call_id, call.name, call.arguments)
            case ResultEntry():
                record = turn.results.get(entry.call_id)
                if record is None or not record.images:
                    yield Output(entry.call_id, entry.text)
                else:
                    yield Output(entry.call_id, [InputText(text=entry.text), *record.images])
            case _:
                raise AssertionError("messages are read before")
