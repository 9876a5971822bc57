"""The vendor's server tools, run by the gateway: seen by the vendor's own client."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from anthropic import Anthropic

from gateway_scripted import ScriptedEngine
from tests.plugins.messages.messages_grammar import fold_events, parse_events
from tests.waiting import wait_until

PAGE = "https://tower.example/facts"
SEARCH: Any = {"type": "web_search_20250305", "name": "web_search"}
FETCH: Any = {"type": "web_fetch_20250910", "name": "web_fetch"}
PYTHON: Any = {"type": "code_execution_20250522", "name": "code_execution"}
CODE: Any = {"type": "code_execution_20260521", "name": "code_execution"}
WEATHER: Any = {"name": "get_weather", "input_schema": {"type": "object"}}
ADDING: Any = {"type": "mcp_toolset", "mcp_server_name": "ex"}


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def body(text: str, *tools: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 200, "messages": [user(text)], "tools": tools, **more}


def shape(message: Any) -> Any:
    """A message without ids, and without what is sealed anew each time."""
    apart = ("id", "tool_use_id", "encrypted_content")
    return json.loads(
        json.dumps(message),
        object_hook=lambda o: {k: bool(v) if k in apart else v for k, v in o.items()},
    )


def test_a_search_is_shown_with_its_result_and_its_citations(claude: Anthropic) -> None:
    message = claude.messages.create(**body("how tall", SEARCH))
    thought, call, found, *texts = message.content
    assert thought.type == "thinking"
    assert call.type == "server_tool_use"
    assert (call.name, call.input) == ("web_search", {"query": "tower"})
    assert found.type == "web_search_tool_result"
    assert found.tool_use_id == call.id
    assert isinstance(found.content, list)
    assert [(each.url, each.title) for each in found.content] == [
        (PAGE, "Tower facts"),
        ("https://other.example/", "https://other.example/"),
    ]
    assert all(text.type == "text" for text in texts)
    said = [(t.text, [c.to_dict() for c in t.citations or ()]) for t in texts if t.type == "text"]
    cited = {"type": "web_search_result_location", "url": PAGE, "title": "Tower facts"}
    assert said == [
        (
            "The tower is of iron",
            [
                {**cited, "cited_text": "It is of iron.", "encrypted_index": "0:1-1"},
                {
                    **cited,
                    "cited_text": "It is 312 metres high. So it is.",
                    "encrypted_index": "0:2-3",
                },
            ],
        ),
        (
            ". It is tall",
            [{**cited, "cited_text": "It is 312 metres high.", "encrypted_index": "0:2-2"}],
        ),
        (", I think 【9†L2】.", []),
    ]
    assert message.stop_reason == "end_turn"
    assert message.usage.server_tool_use is not None
    assert message.usage.server_tool_use.web_search_requests == 1
    assert message.usage.server_tool_use.web_fetch_requests == 0


STREAMED = [
    ("how tall", [SEARCH]),
    ("open the page", [SEARCH, FETCH]),
    ("both tools", [SEARCH, PYTHON, WEATHER]),
    ("compute it", [PYTHON]),
    ("list files", [CODE]),
    ("search for nothing", [SEARCH]),
    ("half a search", [SEARCH]),
    ("for ever", [SEARCH]),
]


@pytest.mark.parametrize(("text", "tools"), STREAMED)
def test_a_stream_adds_up_to_the_plain_answer(root: str, text: str, tools: list[Any]) -> None:
    with httpx.Client(base_url=root, timeout=60) as raw:
        plain = raw.post("/v1/messages", json=body(text, *tools))
        stream = raw.post("/v1/messages", json=body(text, *tools, stream=True))
    assert plain.status_code == 200, plain.text
    assert shape(fold_events(parse_events(stream.content))) == shape(plain.json())


@pytest.mark.parametrize(("text", "tools"), [s for s in STREAMED if s[0] != "half a search"])
def test_the_clients_own_accumulator_agrees(claude: Anthropic, text: str, tools: list[Any]) -> None:
    plain = claude.messages.create(**body(text, *tools))
    with claude.messages.stream(**body(text, *tools)) as stream:
        final = stream.get_final_message()
    assert shape(final.to_dict()) == shape(plain.to_dict())


def test_the_result_comes_after_the_call_and_before_the_answer(root: str) -> None:
    with httpx.Client(base_url=root, timeout=60) as raw:
        events = parse_events(
            raw.post("/v1/messages", json=body("compute it", PYTHON, stream=True)).content
        )
    begun = [e["content_block"] for e in events if e["type"] == "content_block_start"]
    assert [block["type"] for block in begun] == [
        "text",
        "server_tool_use",
        "code_execution_tool_result",
        "text",
    ]
    parts = [
        event["delta"]["partial_json"]
        for event in events
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta"
    ]
    assert len(parts) > 2, "code is shown while it is written"
    assert json.loads("".join(parts)) == {"code": "1 + 1\n"}
    assert begun[2]["content"] == {
        "type": "code_execution_result",
        "stdout": "code gave 2",
        "stderr": "",
        "return_code": 0,
        "content": [],
    }


def test_a_shell_is_bash_where_the_version_has_one(claude: Anthropic) -> None:
    message = claude.messages.create(**body("list files", CODE))
    call, ran, text = message.content
    assert call.type == "server_tool_use"
    assert (call.name, call.input) == ("bash_code_execution", {"command": "ls\ncat b"})
    assert ran.type == "bash_code_execution_tool_result"
    assert ran.content.type == "bash_code_execution_result"
    assert (ran.content.stdout, ran.content.stderr) == ("a\n", "no such file\n")
    assert ran.content.return_code == 1
    assert text.type == "text"


def test_an_mcp_tool_is_run_and_shown(claude: Anthropic) -> None:
    message = claude.beta.messages.create(
        **body("please add", ADDING), betas=["mcp-client-2025-11-20"]
    )
    call, ran, text = message.content
    assert call.type == "mcp_tool_use"
    assert (call.server_name, call.name, call.input) == ("ex", "add", {"a": 2, "b": 3})
    assert ran.type == "mcp_tool_result"
    assert (ran.tool_use_id, ran.is_error) == (call.id, False)
    assert isinstance(ran.content, list)
    assert ran.content[0].text.startswith("The sum is")
    assert text.type == "text"
    assert text.text == "It is five."


def test_client_tools_in_the_same_turn_end_it_after_the_gateways(claude: Anthropic) -> None:
    message = claude.messages.create(**body("both tools", SEARCH, PYTHON, WEATHER))
    kinds = [block.type for block in message.content]
    assert kinds == [
        "server_tool_use",
        "tool_use",
        "server_tool_use",
        "web_search_tool_result",
        "code_execution_tool_result",
    ]
    assert message.stop_reason == "tool_use"
    ids = [block.id for block in message.content if block.type == "server_tool_use"]
    answered = [b.tool_use_id for b in message.content if b.type.endswith("_tool_result")]  # type: ignore[union-attr]
    assert answered == ids
    result = {"type": "tool_result", "tool_use_id": message.content[1].id, "content": "312 metres"}  # type: ignore[union-attr]
    follow = body("both tools", SEARCH, PYTHON, WEATHER)
    follow["messages"] += [message.to_param(), {"role": "user", "content": [result]}]
    assert claude.messages.create(**follow).stop_reason == "end_turn"


def test_an_answer_that_could_go_on_is_paused_and_goes_on(
    claude: Anthropic, engine: ScriptedEngine, served_web: Any
) -> None:
    paused = claude.messages.create(**body("for ever", SEARCH))
    assert paused.stop_reason == "pause_turn"
    kinds = [block.type for block in paused.content]
    assert kinds == ["server_tool_use", "web_search_tool_result"] * 3
    assert paused.usage.server_tool_use is not None
    assert paused.usage.server_tool_use.web_search_requests == 3
    follow = body("for ever", SEARCH)
    follow["messages"].append(paused.to_param())
    again = claude.messages.create(**follow)
    assert again.stop_reason == "pause_turn"
    known = served_web.known[-1]
    assert [call.name for call in known.values()] == ["search"] * 3
    first = engine.requests[-3].turn
    assert first is not None
    assert not first.continue_final_message
    assert first.items[-1].id in known


def test_what_was_found_comes_back_to_the_model_as_it_read_it(
    claude: Anthropic, engine: ScriptedEngine
) -> None:
    first = claude.messages.create(**body("how tall", SEARCH))
    read = engine.tokenizer.decode(engine.requests[-1].prompt.token_ids)  # type: ignore[union-attr]
    follow = body("how tall", SEARCH)
    follow["messages"] += [first.to_param(), user("who said so")]
    second = claude.messages.create(**follow)
    prompt = engine.tokenizer.decode(engine.requests[-1].prompt.token_ids)  # type: ignore[union-attr]
    assert "L2: It is 312 metres high." in prompt
    begun = read.index("how tall")
    assert read[begun : read.index("312 metres")] in prompt
    assert [block.type for block in second.content] == ["text", "text"]
    cited = second.content[0]
    assert cited.type == "text"
    assert cited.citations is not None
    assert cited.citations[0].to_dict()["cited_text"] == "It is of iron."


def test_a_failed_search_is_an_error_that_ends_nothing(claude: Anthropic) -> None:
    message = claude.messages.create(**body("search for nothing", SEARCH))
    _, found, text = message.content
    assert found.type == "web_search_tool_result"
    assert found.content.to_dict() == {  # type: ignore[union-attr]
        "type": "web_search_tool_result_error",
        "error_code": "unavailable",
    }
    assert text.type == "text"
    follow = body("search for nothing", SEARCH)
    follow["messages"] += [message.to_param(), user("hello")]
    assert claude.messages.create(**follow).stop_reason == "end_turn"


def test_max_uses_are_kept(claude: Anthropic) -> None:
    message = claude.messages.create(**body("twice over", {**SEARCH, "max_uses": 1}))
    errors = [
        block.content.error_code
        for block in message.content
        if block.type == "web_search_tool_result" and not isinstance(block.content, list)
    ]
    assert errors == ["unavailable", "max_uses_exceeded"]
    last = message.content[-1]
    assert last.type == "text"
    assert last.text == "No more."


def test_a_cut_call_is_not_run_and_may_be_sent_back(claude: Anthropic, served_web: Any) -> None:
    before = len(served_web.known)
    message = claude.messages.create(**body("half a search", SEARCH))
    assert message.stop_reason == "max_tokens"
    assert [block.type for block in message.content] == ["server_tool_use"]
    assert len(served_web.known) == before
    follow = body("half a search", SEARCH)
    follow["messages"] += [message.to_param(), user("code gave")]
    assert claude.messages.create(**follow).stop_reason == "end_turn"


def test_a_client_that_leaves_ends_the_call(root: str, served_web: Any) -> None:
    opened, closed = len(served_web.known), served_web.closed
    with (
        httpx.Client(base_url=root, timeout=60) as raw,
        raw.stream(
            "POST", "/v1/messages", json=body("take your time", SEARCH, stream=True)
        ) as answer,
    ):
        assert answer.status_code == 200
        wait_until(lambda: len(served_web.known) > opened, "the session is open")
    wait_until(lambda: served_web.closed > closed, "the session is closed")
