"""From content blocks to items: each kind, in its order, with the path that it came from."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidRequest
from gateway.protocols import Ask, Turn
from gateway.wire import content, items
from gateway_messages.ask import Asked, in_own_words
from gateway_messages.blocks import decode_messages
from gateway_messages.conversation import Conversation, conversation
from gateway_messages.server_tools import Wanted

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


def read(*messages: Any) -> Conversation:
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
        items.FunctionCallOutput(call_id="1", output="Error: d"),
        items.Message(role="user", content=[picture, content.InputText(text="e")]),
    ]
    assert said.origins == [
        "messages[0].content[0]",
        "messages[1].content[0]",
        "messages[1].content[2]",
        "messages[1].content[3]",
        "messages[1].content[4]",
        "messages[2].content[0]",
        "messages[2].content[1]",
        "messages[2].content[1]",
    ]


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=5))))
def test_texts_keep_their_order_and_their_roles(messages: list[tuple[str, str]]) -> None:
    said = read(*({"role": role, "content": text} for role, text in messages))
    found = [(item.role, item.text) for item in said.items if isinstance(item, items.Message)]
    assert found == [(role, text) for role, text in messages if text]


def test_parameters_of_the_gateway_are_told_as_this_apis() -> None:
    origins = ["messages[0].content[0]", "messages[3].content[2]"]
    words = {
        "input[1].content[0].type": "messages[3].content[2]",
        "input": "messages",
        "max_output_tokens": "max_tokens",
        "reasoning.effort": "thinking",
        "text.format.schema": "output_config.format",
        "tools[0].parameters": "tools[1].input_schema",
        "tools[1].filters.allowed_domains[2]": "tools[0].allowed_domains[2]",
        "tools[2].authorization": "mcp_servers[0].authorization_token",
        "tools[3].server_label": "tools[2].mcp_server_name",
        "model": "model",
    }
    tools = Wanted(
        tools=(),
        places=["tools[1]", "tools[0]", "mcp_servers[0]", "tools[2]"],
        types=["custom", "web_search_20250305", "mcp", "mcp"],
    )
    wanted = Asked(Ask(model=None, turn=Turn(items=[])), origins, tools)
    for param, own in words.items():
        assert in_own_words(InvalidRequest("x", param=param), wanted).param == own
    assert in_own_words(InvalidRequest("x"), wanted).param is None
