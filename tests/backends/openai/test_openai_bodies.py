"""Turns, sampling and wishes, as upstreams are asked by either API; and what they are known not to take."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.base.constraints import Grammar, OneOf, Regex
from gateway.base.errors import ConfigurationError, InvalidRequest, Unsupported
from gateway.plugins.protocols import (
    BeamSearch,
    NamedTool,
    Sampling,
    TextFormat,
    ToolChoice,
    ToolDefinition,
    Turn,
)
from gateway.wire.item_decoding import decode_items
from tests.backends.openai.sent_bodies import sent_body

pytestmark = pytest.mark.anyio
DATA = "data:image/png;base64,AAAA"
FUNCTION = ToolDefinition(name="f", description="Does it.", parameters={"type": "object"})
NOTE = ToolDefinition(name="note", parameters={"type": "object"}, kind="custom")
GRAMMAR = ToolDefinition(name="note", kind="custom", grammar=Grammar("lark", "start: X"))
SAID: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [
        {"type": "input_text", "text": "What"},
        {"type": "input_image", "image_url": DATA, "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
    {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
    {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}", "namespace": "box"},
    {"type": "custom_tool_call", "call_id": "b", "name": "note", "input": "x\ny"},
    {"type": "function_call_output", "call_id": "a", "output": "18"},
    {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "ok"}]},
    {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "look", "arguments": "{}", "output": "seen"},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
]  # fmt: skip


async def test_a_conversation_as_chat_messages(stub: Any, asker: Any) -> None:
    turn = Turn(items=decode_items(SAID), instructions="Rule.", tools=[FUNCTION])
    sent = await sent_body(stub, asker, turn, {})
    assert sent["messages"] == [
        {"role": "system", "content": "Rule."},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [
            {"type": "text", "text": "What"},
            {"type": "image_url", "image_url": {"url": DATA, "detail": "low"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}},
            {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}]},
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "box__f", "arguments": "{}"}},
            {"id": "b", "type": "function", "function": {"name": "note", "arguments": '{"input": "x\\ny"}'}}]},
        {"role": "tool", "tool_call_id": "a", "content": "18"},
        {"role": "tool", "tool_call_id": "b", "content": "ok"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "mcp_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "mcp_1", "content": "seen"},
        {"role": "assistant", "content": None, "refusal": "No."},
    ]  # fmt: skip
    assert sent["model"] == "m"
    assert sent["stream"] is True
    assert sent["stream_options"] == {"include_usage": True}


async def test_a_conversation_as_input_items(stub: Any, asker: Any) -> None:
    items = [dict(item) for item in SAID]
    content = [part for part in items[1]["content"] if part["type"] != "input_audio"]
    items[1] = {**items[1], "content": content}
    turn = Turn(items=decode_items(items), instructions="Rule.", tools=[FUNCTION])
    sent = await sent_body(stub, asker, turn, {"api": "responses"})
    assert sent["instructions"] == "Rule."
    assert sent["store"] is False
    assert sent["input"] == [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "What"},
            {"type": "input_image", "image_url": DATA, "detail": "low"},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "a", "name": "box__f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "b", "name": "note", "input": "x\ny"},
        {"type": "function_call_output", "call_id": "a", "output": "18"},
        {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "ok"}]},
        {"type": "function_call", "call_id": "mcp_1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "mcp_1", "output": "seen"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ]  # fmt: skip


async def test_settings_of_messages(stub: Any, asker: Any) -> None:
    turn = Turn(items=decode_items(SAID), instructions="Rule.", tools=[FUNCTION])
    config = {"reasoning_fields": ["reasoning"], "instructions_role": "developer"}
    sent = await sent_body(stub, asker, turn, config)
    assert [message["role"] for message in sent["messages"][:2]] == ["developer", "developer"]
    assert sent["messages"][3]["reasoning"] == "Hm."
    sent = await sent_body(stub, asker, turn, {"send_reasoning": False})
    assert "reasoning_content" not in sent["messages"][3]


@pytest.mark.parametrize("sees", [True, False])
async def test_images_of_tools_follow_the_results_of_chat(
    stub: Any, asker: Any, sees: bool
) -> None:
    calls = [{"type": "function_call", "call_id": c, "name": "f", "arguments": "{}"} for c in "ab"]
    image = {"type": "input_image", "image_url": DATA}
    outputs = [
        {"type": "function_call_output", "call_id": "a", "output": [image]},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "18"}, image]},
    ]  # fmt: skip
    turn = Turn(items=decode_items([*calls, *outputs, {"role": "user", "content": "So?"}]))
    sent = await sent_body(stub, asker, turn, {"takes": {"images": sees}})
    unseen = "(An image, which this model cannot see.)"
    part = {"type": "image_url", "image_url": {"url": DATA}}
    text = {"type": "text", "text": "18"}
    assert sent["messages"][1:] == [
        {"role": "tool", "tool_call_id": "a", "content": "(The image follows.)" if sees else unseen},
        {"role": "tool", "tool_call_id": "b", "content": "18" if sees else [text, {"type": "text", "text": unseen}]},
        *([{"role": "user", "content": [part, part]}] if sees else []),
        {"role": "user", "content": "So?"},
    ]  # fmt: skip
    sent = await sent_body(stub, asker, turn, {"api": "responses", "takes": {"images": sees}})
    shown = {**image, "detail": "auto"} if sees else {"type": "input_text", "text": unseen}
    assert sent["input"][2]["output"] == [shown]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (["image"], "(The image follows.)"),
        (["file"], "(The file follows.)"),
        (["file", "image"], "(The image and the file follow.)"),
        (["text", "file"], "18"),
    ],
)
async def test_what_follows_the_result_of_a_tool_is_announced_as_what_it_is(
    stub: Any, asker: Any, parts: list[str], said: str
) -> None:
    made = {
        "image": {"type": "input_image", "image_url": DATA},
        "file": {"type": "input_file", "filename": "a.txt", "file_data": DATA},
        "text": {"type": "input_text", "text": "18"},
    }
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "a", "output": [made[p] for p in parts]}
    turn = Turn(items=decode_items([call, output]))
    sent = await sent_body(stub, asker, turn, {"takes": {"images": True, "files": True}})
    assert sent["messages"][1] == {"role": "tool", "tool_call_id": "a", "content": said}


@pytest.mark.parametrize(
    "item",
    [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "half"}]},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": []},
    ],
    ids=["reasoning alone", "empty text", "nothing"],
)  # fmt: skip
async def test_a_message_without_calls_has_a_content(
    stub: Any, asker: Any, item: dict[str, Any]
) -> None:
    """Strict upstreams refuse null there for the rest of the session."""
    user = {"role": "user", "content": "a"}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    sent = await sent_body(
        stub, asker, Turn(items=decode_items([user, item, user, call, output])), {}
    )
    assert sent["messages"][1]["role"] == "assistant"
    assert sent["messages"][1]["content"] == ""
    assert sent["messages"][3]["content"] is None, "with calls it may be null"


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_tools_and_the_choice_among_them(stub: Any, asker: Any, api: str) -> None:
    config = {"api": api, "takes": {"custom_tools": True}, "strict_default": True}
    turn = Turn(items=decode_items("Hi"), tools=[FUNCTION, GRAMMAR], parallel_tool_calls=False)
    sent = await sent_body(stub, asker, turn, config)
    grammar = {"syntax": "lark", "definition": "start: X"}
    if api == "chat":
        function = {"name": "f", "description": "Does it.", "parameters": {"type": "object"}}
        custom = {"name": "note", "format": {"type": "grammar", "grammar": grammar}}
        assert sent["tools"] == [
            {"type": "function", "function": function},
            {"type": "custom", "custom": custom},
        ]
    else:
        assert sent["tools"] == [
            {"type": "function", "name": "f", "description": "Does it.",
             "parameters": {"type": "object"}, "strict": False},
            {"type": "custom", "name": "note", "format": {"type": "grammar", **grammar}},
        ]  # fmt: skip
    assert sent["parallel_tool_calls"] is False
    assert "tool_choice" not in sent
    choices: list[tuple[ToolChoice, Any]] = [
        ("none", "none"),
        ("required", "required"),
        (NamedTool("f"), {"type": "function", "name": "f"}),
        (NamedTool("note"), {"type": "custom", "name": "note"}),
    ]
    for choice, told in choices:
        turn = Turn(items=[], tools=[FUNCTION, NOTE], tool_choice=choice)
        sent = await sent_body(stub, asker, turn, config)
        if api == "chat" and isinstance(told, dict):
            told = {"type": told["type"], told["type"]: {"name": told["name"]}}
        assert sent["tool_choice"] == told


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize("strict", [None, False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_strict_is_said_where_the_client_or_the_default_of_the_upstream_does(
    stub: Any, asker: Any, api: str, *, strict: bool | None, default: bool
) -> None:
    """Without a word of the client, a function must not become strict at OpenAI, nor its prompt differ elsewhere."""
    tool = msgspec.structs.replace(FUNCTION, strict=strict)
    config = {"api": api, "strict_default": default}
    sent = await sent_body(stub, asker, Turn(items=decode_items("Hi"), tools=[tool]), config)
    told = sent["tools"][0]["function"] if api == "chat" else sent["tools"][0]
    if strict is None and (api == "chat" or not default):
        assert "strict" not in told
    else:
        assert told["strict"] is bool(strict)


async def test_a_grammar_is_told_and_not_forced_where_free_text_is_unknown(
    stub: Any, asker: Any
) -> None:
    sent = await sent_body(stub, asker, Turn(items=[], tools=[GRAMMAR]), {})
    assert "start: X" in sent["tools"][0]["function"]["description"]
    forced = Turn(items=[], tools=[GRAMMAR], tool_choice="required")
    assert await refused(stub, asker, forced) == "tool_choice"


@pytest.mark.parametrize("strict", [True, False])
async def test_text_formats(stub: Any, asker: Any, *, strict: bool) -> None:
    wanted = TextFormat(kind="json_schema", name="n", schema={"type": "object"}, strict=strict)
    turn = Turn(items=[], text_format=wanted)
    schema = {"name": "n", "schema": {"type": "object"}}
    sent = await sent_body(stub, asker, turn, {})
    told = {**schema, **({"strict": True} if strict else {})}
    assert sent["response_format"] == {"type": "json_schema", "json_schema": told}
    sent = await sent_body(stub, asker, turn, {"api": "responses"})
    assert sent["text"] == {"format": {"type": "json_schema", **schema, "strict": strict}}
    any_object = Turn(items=[], text_format=TextFormat(kind="json_object"))
    sent = await sent_body(stub, asker, any_object, {})
    assert sent["response_format"] == {"type": "json_object"}


async def test_sampling(stub: Any, asker: Any) -> None:
    wanted = Sampling(
        max_tokens=9, temperature=0.5, top_p=0.9, seed=3, stop=("x",), presence_penalty=1.0,
        frequency_penalty=0.5, logit_bias={5: 1.0}, logprobs=2,
    )  # fmt: skip
    sent = await sent_body(stub, asker, Turn(items=[]), {}, sampling=wanted)
    assert {key: sent[key] for key in sent.keys() - {"model", "messages", "stream_options", "stream"}} == {
        "max_completion_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": ["x"],
        "presence_penalty": 1.0, "frequency_penalty": 0.5, "logit_bias": {"5": 1.0},
        "logprobs": True, "top_logprobs": 2,
    }  # fmt: skip
    few = Sampling(max_tokens=9, temperature=0.5, top_p=0.9, logprobs=2)
    sent = await sent_body(stub, asker, Turn(items=[]), {"api": "responses"}, sampling=few)
    assert sent["max_output_tokens"] == 9
    assert sent["include"] == ["message.output_text.logprobs"]
    assert sent["top_logprobs"] == 2
    sent = await sent_body(
        stub, asker, Turn(items=[]), {"max_tokens_field": "max_tokens"}, sampling=few
    )
    assert sent["max_tokens"] == 9


EXTENDED: dict[str, Any] = {
    "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "min_tokens": 2, "stop_token_ids": (7,),
    "bad_words": ("no",), "ignore_eos": True, "include_stop_str_in_output": True,
}  # fmt: skip
OF_CHAT: dict[str, Any] = {
    "seed": 1, "stop": ("x",), "presence_penalty": 0.5, "frequency_penalty": 0.5, "logit_bias": {1: 2.0},
}  # fmt: skip


@pytest.mark.parametrize("name", [*EXTENDED, *OF_CHAT])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_what_the_upstream_is_said_to_take_is_sent_and_the_rest_refused(
    stub: Any, asker: Any, api: str, name: str
) -> None:
    sampling = Sampling(**{name: {**EXTENDED, **OF_CHAT}[name]})
    sent = await sent_body(
        stub, asker, Turn(items=[]), {"api": api, "extensions": [name]}, sampling=sampling
    )
    assert sent[name]
    if name in OF_CHAT and api == "chat":
        return
    assert await refused(stub, asker, Turn(items=[]), api=api, sampling=sampling) == name


async def test_values_that_say_nothing_are_not_refused(stub: Any, asker: Any) -> None:
    nothing = Sampling(
        top_k=-1, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0, min_tokens=0
    )
    sent = await sent_body(stub, asker, Turn(items=[]), {"api": "responses"}, sampling=nothing)
    assert not sent.keys() & {*EXTENDED, *OF_CHAT}


async def test_what_self_hosted_engines_take(stub: Any, asker: Any) -> None:
    turn = Turn(items=[], chat_template_kwargs={"enable_thinking": True}, documents=[{"t": 1}])
    names = ["chat_template_kwargs", "documents", "cache_salt", "priority", "structured_outputs"]
    sent = await sent_body(
        stub,
        asker,
        turn,
        {"extensions": names},
        cache_salt="s",
        priority=3,
        constraint=Regex("a+"),
    )
    assert {name: sent[name] for name in names} == {
        "chat_template_kwargs": {"enable_thinking": True},
        "documents": [{"t": 1}],
        "cache_salt": "s",
        "priority": 3,
        "structured_outputs": {"regex": "a+"},
    }
    assert await refused(stub, asker, turn) == "chat_template_kwargs"
    plain = Turn(items=[])
    assert await refused(stub, asker, plain, cache_salt="s") == "cache_salt"
    assert await refused(stub, asker, plain, priority=1) == "priority"
    assert await refused(stub, asker, plain, constraint=Regex("a")) == "text.format"
    assert await refused(stub, asker, plain, constraint=OneOf(())) == "text.format"
    assert await refused(stub, asker, plain, adapter="a") == "model"
    scored = Sampling(prompt_logprobs=1)
    assert await refused(stub, asker, plain, sampling=scored) == "prompt_logprobs"


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_beam_search_and_a_limit_of_reasoning_are_the_upstreams_own(
    stub: Any, asker: Any, api: str
) -> None:
    def asked(*extensions: str) -> dict[str, Any]:
        return {"api": api, "extensions": list(extensions)}

    turn = Turn(items=[])
    search = BeamSearch(width=4, length_penalty=2.0)
    sent = await sent_body(stub, asker, turn, asked("use_beam_search"), beams=search)
    number = "n" if api == "chat" else "best_of"
    found = {name: sent[name] for name in ("use_beam_search", "length_penalty", number)}
    assert found == {"use_beam_search": True, "length_penalty": 2.0, number: 4}
    early = BeamSearch(width=4, early=True)
    assert await refused(stub, asker, turn, api=api, beams=early) == "early_stopping"
    for name in ("thinking_token_budget", "thinking_budget_tokens"):
        assert (await sent_body(stub, asker, turn, asked(name), thinking_budget=0))[name] == 0


async def refused(
    stub: Any,
    asker: Any,
    turn: Turn,
    *,
    api: str = "chat",
    takes: dict[str, bool] | None = None,
    **more: Any,
) -> str | None:
    """The parameter that is refused, before anybody is asked."""
    async with asker.open(stub, api=api, takes=takes or {}):
        with pytest.raises(Unsupported) as raised:
            await asker.engine.check(asker.request(turn, **more))
    assert not stub.bodies
    return raised.value.param


def user(**part: Any) -> Turn:
    return Turn(items=decode_items([{"role": "user", "content": [part]}]))


@pytest.mark.parametrize(
    ("what", "turn", "param"),
    [
        ("tools", Turn(items=[], tools=[FUNCTION]), "tools"),
        ("json_schema", Turn(items=[], text_format=TextFormat(kind="json_schema")), "text.format"),
        ("json_object", Turn(items=[], text_format=TextFormat(kind="json_object")), "text.format"),
        ("reasoning_effort", Turn(items=[], reasoning_effort="low"), "reasoning.effort"),
        ("images", user(type="input_image", image_url=DATA), "input[0].content[0].type"),
        ("files", user(type="input_file", file_data="x"), "input[0].content[0].type"),
        (
            "audio",
            user(type="input_audio", input_audio={"data": "", "format": "wav"}),
            "input[0].content[0].type",
        ),
    ],
)
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_what_the_upstream_is_said_not_to_do(
    stub: Any, asker: Any, api: str, what: str, turn: Turn, param: str
) -> None:
    assert await refused(stub, asker, turn, api=api, takes={what: False}) == param


@pytest.mark.parametrize(
    ("turn", "param"),
    [
        (user(type="input_image", file_id="file-1"), "input[0].content[0].file_id"),
        (user(type="input_file", file_url="http://x"), "input[0].content[0].file_url"),
    ],
)
async def test_what_chat_completions_cannot_say(
    stub: Any, asker: Any, turn: Turn, param: str
) -> None:
    assert await refused(stub, asker, turn) == param


async def test_an_item_that_nobody_can_tell_is_named(stub: Any, asker: Any) -> None:
    odd = {"type": "computer_call", "call_id": "c", "id": "cu_1"}
    turn = Turn(items=decode_items([{"role": "user", "content": "Hi"}, odd]))
    async with asker.open(stub):
        with pytest.raises(InvalidRequest) as raised:
            asker.request(turn)
    assert raised.value.param == "input[1]"


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_what_clients_say_of_how_they_want_to_be_served(
    stub: Any, asker: Any, api: str
) -> None:
    turn = Turn(items=[], reasoning_effort="low", text_format=TextFormat(kind="json_object"))
    hints = {
        "user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "service_tier": "flex",
        "verbosity": "low", "reasoning_summary": "auto",
    }  # fmt: skip
    sent = await sent_body(stub, asker, turn, {"api": api}, hints=hints)
    for name in ("user", "safety_identifier", "prompt_cache_key", "service_tier"):
        assert sent[name] == hints[name]
    if api == "chat":
        assert (sent["reasoning_effort"], sent["verbosity"]) == ("low", "low")
    else:
        assert sent["reasoning"] == {"effort": "low", "summary": "auto"}
        assert sent["text"] == {"format": {"type": "json_object"}, "verbosity": "low"}
    sent = await sent_body(stub, asker, turn, {"api": api, "forward": []}, hints=hints)
    assert not sent.keys() & hints.keys()


async def test_extra_fields_headers_and_names(stub: Any, asker: Any) -> None:
    config = {
        "model": "theirs",
        "extra_body": {"top_p": 0.5, "provider": {"order": ["x"]}},
        "headers": {"x-title": "t"},
        "stream_usage": False,
    }
    async with asker.open(stub, **config):
        stub.says(stub.chunk("stop"))
        trace = {"traceparent": "00-1"}
        await asker.ask(sampling=Sampling(top_p=0.9), trace_headers=trace)
    (sent,) = stub.bodies
    assert (sent["model"], sent["top_p"]) == ("theirs", 0.5)
    assert sent["provider"] == {"order": ["x"]}
    assert "stream_options" not in sent
    assert stub.headers[0]["x-title"] == "t"
    assert stub.headers[0]["traceparent"] == "00-1"


@pytest.mark.parametrize(
    "config",
    [
        {"base_url": "ftp://host/v1"},
        {"base_url": "http://host/v1?key=1"},
        {"base_url": "http://host:99999/v1"},
        {"urls": []},
        {"base_url": "http://host/v1", "api_key_env": "LITEGATE_NO_SUCH_VARIABLE"},
        {"base_url": "http://host/v1", "ca_file": "/no/such/file"},
    ],
)
async def test_mistakes_stop_the_start_with_a_sentence(
    stub: Any, asker: Any, config: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        async with asker.open(**{"urls": [], **config}):
            pass
    assert str(raised.value).endswith(".")


async def test_addresses_with_and_without_v1(stub: Any, asker: Any) -> None:
    root = stub.url.removesuffix("/v1")
    stub.says(stub.chunk("stop"))
    for url in (root, f"{root}/", f"{root}/v1", f"{root}/v1/"):
        async with asker.open(urls=[url]):
            assert asker.engine.info.max_model_len == 4096
            await asker.ask()
    async with asker.open(urls=[f"{root}/v1/openai"], health_path="", wait_for_replica=0.1):
        await asker.ask()
