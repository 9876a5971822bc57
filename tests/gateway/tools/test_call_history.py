"""Calls among a conversation's items become function calls with results."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.base.errors import InvalidRequest, ParamPath
from gateway.plugins.protocols import CallRecord
from gateway.tools.call_history import NOT_STORED, CallHistory
from gateway.wire.item_decoding import decode_items


class Written(CallHistory):
    """What a model would read: the names, arguments and ids of calls, and the ids and texts of results."""

    def __init__(self, tools: tuple[str, ...] = (), **results: CallRecord) -> None:
        super().__init__(tools, results)
        self.lines: list[tuple[str, ...]] = []

    def add_call(self, call_id: str, name: str, arguments: str, param: ParamPath) -> None:
        self.lines.append((call_id, name, arguments))

    def add_result(self, call_id: str, text: str, param: ParamPath) -> None:
        self.lines.append((call_id, text))


def written(*raw: dict[str, Any], history: Written | None = None) -> list[tuple[str, ...]]:
    history = history or Written()
    for index, item in enumerate(decode_items(list(raw), ("input",))):
        history.read_call(item, ("input", index))
    return history.lines


MCP = {"type": "mcp_call", "id": "m", "server_label": "s", "name": "f", "arguments": "{}"}
FAILED = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no"}]}


@pytest.mark.parametrize(
    ("fields", "result"),
    [
        ({"output": "yes"}, "yes"),
        ({"output": None}, ""),
        ({"output": "partly", "error": FAILED}, "partly"),
        ({"output": None, "error": FAILED}, "The call failed: no"),
        ({"output": "", "error": FAILED}, "The call failed: no"),
        ({"error": {"type": "mcp_protocol_error", "code": 1, "message": "gone"}}, "The call failed: gone"),
        ({"error": {**FAILED, "content": {"a": 1}}}, 'The call failed: {"a": 1}'),
    ],
)  # fmt: skip
def test_a_call_of_an_mcp_server_says_whether_it_failed(
    fields: dict[str, Any], result: str
) -> None:
    assert written({**MCP, **fields}) == [("m", "f", "{}"), ("m", result)]


SEARCH = {
    "type": "web_search_call",
    "id": "ws",
    "status": "completed",
    "action": {
        "type": "search",
        "query": "x",
        "sources": [{"type": "url", "url": "https://example.com"}],
    },
}


def test_a_call_of_the_gateway_is_shown_as_it_was_while_its_tool_is_offered() -> None:
    record = CallRecord(name="browser.search", arguments='{"query": "y"}', result="found y")
    shown = ("ws", "web_search", '{"type": "search", "query": "x"}')
    assert written(SEARCH) == [shown, ("ws", "https://example.com")]
    offered = Written(("browser.search",), ws=record)
    assert written(SEARCH, history=offered) == [
        ("ws", "browser.search", '{"query": "y"}'),
        ("ws", "found y"),
    ]
    assert written(SEARCH, history=Written((), ws=record)) == [shown, ("ws", "found y")]


def test_a_result_that_is_not_stored_is_told() -> None:
    found = written(
        {"type": "file_search_call", "id": "fs", "status": "completed", "queries": ["a"]}
    )
    assert found == [("fs", "file_search", '{"queries": ["a"]}'), ("fs", NOT_STORED)]


def test_only_a_denied_approval_is_a_call() -> None:
    asked = {**MCP, "type": "mcp_approval_request"}
    answer = {"type": "mcp_approval_response", "approval_request_id": "m"}
    assert written(asked, {**answer, "approve": True}) == []
    assert written({**answer, "approve": False}) == []
    assert written(asked, {**answer, "approve": False, "reason": "late"}) == [
        ("m", "f", "{}"),
        ("m", "The user did not approve this call. Reason: late"),
    ]


def test_code_is_a_call_of_the_tool_that_is_offered() -> None:
    code = {
        "type": "code_interpreter_call",
        "id": "ci",
        "status": "completed",
        "container_id": "c",
        "code": "1",
        "outputs": [{"type": "logs", "logs": "one"}, {"type": "image", "url": "data:,x"}],
    }
    for offered, name in (
        ((), "code_interpreter"),
        (("python",), "python"),
        (("python", "code_interpreter"), "code_interpreter"),
    ):
        assert written(code, history=Written(offered)) == [
            ("ci", name, '{"code": "1"}'),
            ("ci", "one\n(an image)"),
        ]


def test_an_item_that_no_model_can_read_is_named() -> None:
    with pytest.raises(InvalidRequest, match="Items of type 'item_reference'") as refusal:
        written({"type": "item_reference", "id": "msg_1"})
    assert refusal.value.at == ("input", 0)
