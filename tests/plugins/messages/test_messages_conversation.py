"""From content blocks to items: each kind, in its order, with the path that it came from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ParamPath, param_text
from gateway.plugins.protocols import GenerationRequest, Turn
from gateway.wire import content, items
from gateway_messages.blocks import decode_messages
from gateway_messages.conversation import MessageItems, conversation
from gateway_messages.generation_request import ConvertedRequest
from gateway_messages.params import request_path
from gateway_messages.request import MessagesRequest, decode_request
from gateway_messages.server_tools import ToolOrigin, ToolSelection

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


FORMAT = {"type": "json_schema", "schema": {"type": "object"}}


def request(**sent: Any) -> MessagesRequest:
    message = {"role": "user", "content": "hi"}
    body = {"model": "m", "max_tokens": 9, "messages": [message], **sent}
    return decode_request(json.dumps(body).encode())


def read(*messages: Any) -> MessageItems:
    return conversation(decode_messages(list(messages)), {"sealed": "opened"}.get)


def test_each_block_is_an_item_of_its_kind_and_neighbouring_texts_are_one_message() -> None:
    said = read(
        {"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "", "signature": "sealed"},
            {"type": "redacted_thinking", "data": "unknown"},
            {"type": "text", "text": "c"},
            {"type": "tool_use", "id": "1", "name": "f", "input": {"é": None}},
            {"type": "tool_use", "id": "2", "name": "g", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "2"},
            {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "d"}, IMAGE], "is_error": True},
            {"type": "text", "text": "e"}]},
    )  # fmt: skip
    picture = content.InputImage(image_url="data:image/png;base64,AA==")
    assert said.items == [
        items.Message(
            role="user",
            content=[content.InputText(text="a"), picture, content.InputText(text="b")],
        ),
        items.Reasoning(content=[content.ReasoningText(text="opened")]),
        items.Message(role="assistant", content=[content.OutputText(text="c")]),
        items.FunctionCall(call_id="1", name="f", arguments='{"é": null}'),
        items.FunctionCall(call_id="2", name="g", arguments="{}"),
        items.FunctionCallOutput(call_id="2", output=""),
        items.FunctionCallOutput(call_id="1", output=[content.InputText(text="Error: d"), picture]),
        items.Message(role="user", content=[content.InputText(text="e")]),
    ]
    assert said.origins == [
        ("messages", 0, "content", 0),
        ("messages", 1, "content", 0),
        ("messages", 1, "content", 2),
        ("messages", 1, "content", 3),
        ("messages", 1, "content", 4),
        ("messages", 2, "content", 0),
        ("messages", 2, "content", 1),
        ("messages", 2, "content", 2),
    ]
    assert said.parts[6] == [
        ("messages", 2, "content", 1, "content", 0),
        ("messages", 2, "content", 1, "content", 1),
    ]


def test_documents_are_files_with_their_titles() -> None:
    sources: list[Any] = [
        {"type": "base64", "media_type": "application/pdf", "data": "AA=="},
        {"type": "url", "url": "https://a.example/a.pdf"},
        {"type": "file", "file_id": "file-1"},
        {"type": "text", "media_type": "text/plain", "data": "said"},
        {"type": "content", "content": [{"type": "text", "text": "inner"}, IMAGE]},
    ]
    said = read(
        {
            "role": "user",
            "content": [{"type": "document", "source": each, "title": "t", "context": "c"} for each in sources],
        }
    )  # fmt: skip
    context = content.InputText(text="c")
    assert isinstance(said.items[0], items.Message)
    assert said.items[0].content == [
        context,
        content.InputFile(filename="t", file_data="data:application/pdf;base64,AA=="),
        context,
        content.InputFile(filename="t", file_url="https://a.example/a.pdf"),
        context,
        content.InputFile(filename="t", file_id="file-1"),
        content.InputText(text="t\nc\nsaid"),
        content.InputText(text="t\nc"),
        content.InputText(text="inner"),
        content.InputImage(image_url="data:image/png;base64,AA=="),
    ]
    at = [0, 0, 1, 1, 2, 2, 3, 4, 4, 4]
    assert said.parts[0] == [("messages", 0, "content", index) for index in at]


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=5))))
def test_texts_keep_their_order_and_their_roles(messages: list[tuple[str, str]]) -> None:
    said = read(*({"role": role, "content": text} for role, text in messages))
    found = [(item.role, item.text) for item in said.items if isinstance(item, items.Message)]
    assert found == [(role, text) for role, text in messages if text]


def test_places_in_the_generation_request_are_those_of_the_client_s_request() -> None:
    places: dict[ParamPath, str] = {
        ("input", 1, "content", 0, "type"): "messages[3].content[2]",
        ("input", 2): "",  # written since
        ("input",): "messages",
        ("instructions",): "system",
        ("max_output_tokens",): "max_tokens",
        ("stop", 1): "stop_sequences[1]",
        ("reasoning", "effort"): "thinking",
        ("text", "format", "schema"): "output_config.format",
        ("tools", 0, "parameters"): "tools[1].input_schema",
        ("tools", 0, "name"): "tools[1].name",
        ("tools", 1, "filters", "allowed_domains", 2): "tools[0].allowed_domains[2]",
        ("tools", 1, "filters", "blocked_domains", 2): "tools[0].blocked_domains[2]",
        ("tools", 1, "environment"): "tools[0]",
        ("tools", 2, "authorization"): "mcp_servers[0].authorization_token",
        ("tools", 3, "server_label"): "tools[2].mcp_server_name",
        ("model",): "model",
        (): "",
    }
    tools = ToolSelection(
        tools=(),
        origins=[
            ToolOrigin(param=("tools", 1), type="custom"),
            ToolOrigin(param=("tools", 0), type="web_search_20250305", plugin="browser"),
            ToolOrigin(param=("mcp_servers", 0), type="mcp", plugin="mcp"),
            ToolOrigin(param=("tools", 2), type="mcp", plugin="mcp"),
        ],
    )
    origins: list[ParamPath] = [("messages", 0, "content", 0), ("messages", 3, "content", 2)]
    wanted = ConvertedRequest(GenerationRequest(model=None, turn=Turn(items=[])), origins, tools)
    for place, own in places.items():
        assert param_text(request_path(place, request(), wanted)) == own


@pytest.mark.parametrize(
    ("sent", "place", "param"),
    [
        ({"output_format": FORMAT}, ("text", "format", "schema"), "output_format"),
        ({"output_config": {"format": FORMAT}}, ("text", "format"), "output_config.format"),
        ({"output_config": {"effort": "low"}}, ("reasoning", "effort"), "output_config.effort"),
        (
            {"output_config": {"effort": "low"}, "thinking": {"type": "disabled"}},
            ("reasoning", "effort"),
            "thinking",
        ),
    ],
)
def test_of_two_parameters_the_one_that_was_sent_is_named(
    sent: dict[str, Any], place: ParamPath, param: str
) -> None:
    wanted = ConvertedRequest(
        GenerationRequest(model=None, turn=Turn(items=[])), [], ToolSelection(tools=(), origins=[])
    )
    assert param_text(request_path(place, request(**sent), wanted)) == param
