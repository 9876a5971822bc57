"""Images and sounds over HTTP, by the official SDKs: every API, to a model that says what it saw and where."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import anthropic
import httpx
import openai
import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.e2e.responses_socket import connected, events, send
from tests.media_files import BLUE, IMAGE, RED, asked, data_url, seen, sound

CONFIG = """
[server]
port = {port}

[media]
allow_hosts = ["{pictures}"]
allow_private = true

[resources.files]

[models.seeing]
engine = "scripted"
[models.seeing.scripted]
media = ["image", "audio"]

[models.shown]
engine = "scripted"
chat_template = "template.jinja"
[models.shown.scripted]
media = ["image"]
placeholders = "template"
special_tokens = ["<|image|>"]

[models.remembering]
engine = "scripted"
[models.remembering.scripted]
media = ["image"]
rules = [
  { when = "look", pieces = [{ call = { name = "screenshot", arguments = {} } }] },
  { when = "[image 4x3", pieces = [{ text = "I saw it." }] },
]

[models.blind]
engine = "scripted"
"""


class _Pictures(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = {"/red.png": RED, "/blue.png": BLUE}.get(self.path)
        self.send_response(200 if found else 404)
        self.send_header("content-type", "image/png")
        self.send_header("content-length", str(len(found or b"")))
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def pictures() -> Iterator[str]:
    """The address of a server that has `/red.png` and `/blue.png`."""
    server = HTTPServer(("127.0.0.1", 0), _Pictures)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def server(start_server: Any, pictures: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    template = tmp_path_factory.mktemp("template") / "template.jinja"
    template.write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for p in m.content %}{% if p.type == 'image' %}<|image|>{% else %}{{ p.text }}{% endif %}{% endfor %}"
        "{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    config = CONFIG.replace("template.jinja", str(template))
    return start_server(config.replace("{pictures}", pictures.removeprefix("http://")))


@pytest.fixture
def claude(server: Any) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


def test_an_image_is_seen_where_it_stands(client: OpenAI) -> None:
    response = client.responses.create(model="seeing", input=asked("what ", RED, " is it"))
    assert re.fullmatch(r"what \[image 4x3 [0-9a-f]{8}\] is it", response.output_text)


def test_two_images_differ_and_the_same_one_does_not(client: OpenAI) -> None:
    said = client.responses.create(model="seeing", input=asked(RED, "a", BLUE, "b", RED))
    first, second, third = (found[0] for found in IMAGE.finditer(said.output_text))
    assert first == third != second
    assert re.sub(IMAGE, "*", said.output_text) == "*a*b*"
    assert seen(said.output_text) == ["4x3", "40x30", "4x3"]


@pytest.mark.parametrize("model", ["seeing", "shown"])
def test_images_are_counted_alike_by_usage_and_before(client: OpenAI, model: str) -> None:
    """4x3 takes 4 tokens, 40x30 5; the template's own token for each is in their number."""
    text = asked("what", "is it")
    with_images = asked("what", RED, BLUE, "is it")
    length = client.responses.input_tokens.count(model=model, input=with_images).input_tokens
    without = client.responses.input_tokens.count(model=model, input=text).input_tokens
    assert length == without + 4 + 5
    response = client.responses.create(model=model, input=with_images)
    assert response.usage is not None
    assert response.usage.input_tokens == length
    assert seen(response.output_text) == ["4x3", "40x30"]


def test_a_stream_says_the_same(client: OpenAI) -> None:
    with client.responses.stream(model="seeing", input=asked("see", BLUE)) as stream:
        final = stream.get_final_response()
    assert seen(final.output_text) == ["40x30"]


def test_an_image_is_fetched_by_its_url(client: OpenAI, pictures: str) -> None:
    part = {"type": "input_image", "image_url": f"{pictures}/blue.png", "detail": "low"}
    given: Any = [{"role": "user", "content": [part]}]
    assert seen(client.responses.create(model="seeing", input=given).output_text) == ["40x30"]


def test_an_image_is_an_uploaded_file(client: OpenAI) -> None:
    file = client.files.create(file=("blue.png", BLUE), purpose="vision")
    part = {"type": "input_image", "file_id": file.id, "detail": "auto"}
    given: Any = [{"role": "user", "content": [part]}]
    assert seen(client.responses.create(model="seeing", input=given).output_text) == ["40x30"]
    client.files.delete(file.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="seeing", input=given)
    assert caught.value.param == "input[0].content[0].file_id"
    assert caught.value.code == "image_file_not_found"


def test_a_tool_shows_an_image(client: OpenAI) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    part = {"type": "input_image", "image_url": data_url(RED), "detail": "auto"}
    output = {"type": "function_call_output", "call_id": "c", "output": [part]}
    given: Any = [*asked("look"), call, output]
    assert seen(client.responses.create(model="seeing", input=given).output_text) == ["4x3"]
    blind = client.responses.create(model="blind", input=given)
    assert seen(blind.output_text) == []


def test_an_image_of_an_earlier_response_is_still_seen(client: OpenAI) -> None:
    first = client.responses.create(model="remembering", input=asked("what is it", RED))
    assert first.output_text == "I saw it."
    again = client.responses.create(
        model="remembering", input="and now?", previous_response_id=first.id
    )
    assert again.output_text == "I saw it."
    alone = client.responses.create(model="remembering", input="and now?")
    assert alone.output_text == "and now?"


def test_an_image_in_a_conversation_is_still_seen(client: OpenAI) -> None:
    conversation = client.conversations.create(items=asked("this", RED))
    for _ in range(2):
        said = client.responses.create(
            model="remembering", input="and now?", conversation=conversation.id
        )
        assert said.output_text == "I saw it."
    (first, *_) = client.conversations.items.list(
        conversation.id, order="asc", include=["message.input_image.image_url"]
    ).data
    assert first.content[1].image_url == data_url(RED)  # type: ignore[union-attr,index]


def test_an_image_is_seen_in_the_background(client: OpenAI) -> None:
    stream = client.responses.create(model="seeing", input=asked(RED), background=True, stream=True)
    last = list(stream)[-1]
    assert last.type == "response.completed"
    assert seen(last.response.output_text) == ["4x3"]


def test_an_image_is_seen_over_a_websocket(server: Any) -> None:
    with connected(server) as socket:
        send(socket, model="remembering", input=asked("this", RED), store=False)
        first = events(socket)[-1]["response"]
        assert first["output"][0]["content"][0]["text"] == "I saw it."
        send(
            socket,
            model="remembering",
            input="and now?",
            previous_response_id=first["id"],
            store=False,
        )
        assert events(socket)[-1]["response"]["output"][0]["content"][0]["text"] == "I saw it."


CHAT_RED = {"type": "image_url", "image_url": {"url": data_url(RED)}}


def test_chat_sees_images(client: OpenAI, server: Any, pictures: str) -> None:
    linked = {"type": "image_url", "image_url": {"url": f"{pictures}/blue.png", "detail": "high"}}
    content = [{"type": "text", "text": "see "}, CHAT_RED, {"type": "text", "text": " "}, linked]
    messages: Any = [{"role": "user", "content": content}]
    answer = client.chat.completions.create(model="seeing", messages=messages, n=2)
    for choice in answer.choices:
        text = choice.message.content or ""
        assert seen(text) == ["4x3", "40x30"]
        assert re.sub(IMAGE, "*", text) == "see * *"
    counted = httpx.post(f"{server.url}/tokenize", json={"model": "seeing", "messages": messages})
    assert answer.usage is not None
    assert counted.json()["count"] == answer.usage.prompt_tokens
    assert len(counted.json()["tokens"]) == answer.usage.prompt_tokens - 4 - 5


def test_chat_hears_sounds(client: OpenAI) -> None:
    part = {"type": "input_audio", "input_audio": {"data": sound(), "format": "wav"}}
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": "hear "}, part]}]
    answer = client.chat.completions.create(model="seeing", messages=messages)
    assert re.fullmatch(r"hear \[audio 0.5s [0-9a-f]{8}\]", answer.choices[0].message.content or "")
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="shown", messages=messages)
    assert caught.value.param == "messages[0].content[1].type"


def claude_image(data: bytes) -> Any:
    encoded = base64.b64encode(data).decode()
    source = {"type": "base64", "media_type": "image/png", "data": encoded}
    return {"type": "image", "source": source}


def test_messages_see_images(claude: Anthropic, pictures: str) -> None:
    linked = {"type": "image", "source": {"type": "url", "url": f"{pictures}/blue.png"}}
    content = [{"type": "text", "text": "see "}, claude_image(RED), linked]
    messages: Any = [{"role": "user", "content": content}]
    counted = claude.messages.count_tokens(model="seeing", messages=messages)
    answer = claude.messages.create(model="seeing", messages=messages, max_tokens=500)
    (said,) = answer.content
    assert said.type == "text"
    assert seen(said.text) == ["4x3", "40x30"]
    assert answer.usage.input_tokens == counted.input_tokens
    with claude.messages.stream(model="seeing", messages=messages, max_tokens=500) as stream:
        started = next(event for event in stream if event.type == "message_start")
    assert started.message.usage.input_tokens == counted.input_tokens


def test_messages_see_images_of_tools(claude: Anthropic) -> None:
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [claude_image(RED)]}
    messages: Any = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    answer = claude.messages.create(model="seeing", messages=messages, max_tokens=500)
    assert answer.content[0].type == "text"
    assert seen(answer.content[0].text) == ["4x3"]


BROKEN = [
    (BLUE[:50], "image_parse_error"),
    (b"no image at all", "invalid_image_format"),
    (b"", "empty_image_file"),
]


@pytest.mark.parametrize(("data", "code"), BROKEN)
def test_a_broken_image_is_refused_by_its_place_in_each_api(
    client: OpenAI, claude: Anthropic, data: bytes, code: str
) -> None:
    for make in (client.responses.create, client.responses.input_tokens.count):
        with pytest.raises(openai.BadRequestError) as caught:
            make(model="seeing", input=asked("a", RED, "b", data))  # type: ignore[operator]
        assert caught.value.param == "input[0].content[3].image_url"
        assert caught.value.code == code
    part = {"type": "image_url", "image_url": {"url": data_url(data)}}
    messages: Any = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [CHAT_RED, part]},
    ]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="seeing", messages=messages)
    assert caught.value.param == "messages[1].content[1].image_url.url"
    assert caught.value.code == code
    content = [{"type": "text", "text": "a"}, claude_image(data or b"\n")]
    with pytest.raises(anthropic.BadRequestError) as refused:
        claude.messages.create(
            model="seeing", max_tokens=9, messages=[{"role": "user", "content": content}]
        )
    assert "messages[0].content[1]" in str(refused.value)


def test_a_blind_model_refuses_by_the_place_in_each_api(client: OpenAI, claude: Anthropic) -> None:
    with pytest.raises(openai.BadRequestError, match="takes no images") as caught:
        client.responses.create(model="blind", input=asked("a", RED))
    assert caught.value.param == "input[0].content[1].type"
    messages: Any = [{"role": "user", "content": [CHAT_RED]}]
    with pytest.raises(openai.BadRequestError, match="takes no images") as caught:
        client.chat.completions.create(model="blind", messages=messages)
    assert caught.value.param == "messages[0].content[0].type"
    content = [{"type": "text", "text": "a"}, claude_image(RED)]
    with pytest.raises(anthropic.BadRequestError, match="takes no images") as refused:
        claude.messages.create(
            model="blind", max_tokens=9, messages=[{"role": "user", "content": content}]
        )
    assert "messages[0].content[1]" in str(refused.value)


def test_models_say_what_they_see(server: Any) -> None:
    listed = httpx.get(f"{server.url}/v1/models").json()["data"]
    told = {each["id"]: {"images", "audio"} & set(each["capabilities"]) for each in listed}
    assert told == {
        "seeing": {"images", "audio"},
        "shown": {"images"},
        "remembering": {"images"},
        "blind": set(),
    }


@pytest.mark.parametrize("text", ["<|image|>", "\u2060\u2063-0-\u2063\u2060"])
@pytest.mark.parametrize("model", ["seeing", "shown"])
def test_text_that_looks_like_a_place_is_text(client: OpenAI, model: str, text: str) -> None:
    said = client.responses.create(model=model, input=asked(f"{text}a", RED, f"b{text}"))
    assert re.sub(IMAGE, "*", said.output_text) == f"{text}a*b{text}"
    (found,) = IMAGE.finditer(said.output_text)
    assert found[1] == "4x3"
