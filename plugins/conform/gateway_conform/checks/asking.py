"""Requests that the checks of several areas send."""

from __future__ import annotations

import time
from typing import Any

from gateway_conform.client import HttpAnswer, Json
from gateway_conform.outcome import CheckFailed, CheckSkipped, require
from gateway_conform.registry import ServerUnderTest

QUESTION = "What is the capital of France? Answer in one short sentence."
FEW = 64
"""Number of tokens that is enough for a short answer."""
LONG_ANSWERS = (
    "List the capitals of France, Italy, Spain, Germany, Portugal, Austria.",
    "Count from one to one hundred, in words.",
)
"""Questions with answers of more tokens than `SMALLEST`."""
SMALLEST = 16
"""The smallest `max_output_tokens` that OpenAI accepts."""
WEATHER: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION: Json = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": WEATHER,
    "strict": True,
}


def respond(server: ServerUnderTest, **fields: Any) -> Json:
    """Create a response. Raises `CheckFailed` if this fails, and `CheckSkipped` if the server refuses to store it."""
    body = {"model": server.model, "input": QUESTION, "max_output_tokens": FEW, **fields}
    answer = server.client.post("/responses", body)
    _refuses_to_store(answer, fields)
    response = answer.expect()
    require(response["object"] == "response", f"object is {response['object']!r}")
    return response


def respond_streamed(server: ServerUnderTest, **fields: Any) -> list[Json]:
    """Create a streamed response. Returns its events. Raises `CheckFailed` if an error is among them, and
    `CheckSkipped` if the server refuses to store the response."""
    body = {"model": server.model, "input": QUESTION, "max_output_tokens": FEW, **fields}
    answer = server.client.post("/responses", {**body, "stream": True})
    _refuses_to_store(answer, fields)
    events = answer.events()
    for event in events:
        if event.get("type") == "error":
            raise CheckFailed(f"an error event: {event}")
    return events


def cut_off(server: ServerUnderTest) -> Json:
    """Fields of a request whose answer exceeds its limit of tokens. Raises `CheckSkipped` if the model's answers are
    too short."""
    for question in LONG_ANSWERS:
        asked = {"input": question, "temperature": 0}
        if respond(server, **asked)["usage"]["output_tokens"] > SMALLEST:
            return {**asked, "max_output_tokens": SMALLEST}
    raise CheckSkipped("the model's answers are shorter than the smallest limit")


def _refuses_to_store(answer: HttpAnswer, fields: Json) -> None:
    """Raise `CheckSkipped` if `answer` says that the server does not store responses."""
    if answer.status == 400 and fields.get("store"):
        error = answer.json().get("error")
        if isinstance(error, dict) and error.get("param") == "store":
            raise CheckSkipped("the server does not store responses")


def output_text(response: Json) -> str:
    """The text of all messages of a response."""
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
        if part["type"] == "output_text"
    )


def stored(server: ServerUnderTest) -> Json:
    """Create a finished response that can be retrieved. Raises `CheckSkipped` if the server does not store
    responses."""
    response = respond(server, store=True)
    if server.client.get(f"/responses/{response['id']}").status == 404:
        raise CheckSkipped("the server does not store responses")
    return response


def wait_for(server: ServerUnderTest, response_id: str, seconds: float = 60) -> Json:
    """Wait until a background response has ended. Returns the response."""
    ends = time.monotonic() + seconds
    while True:
        response = server.client.get(f"/responses/{response_id}").expect()
        if response["status"] not in ("queued", "in_progress"):
            return response
        if time.monotonic() > ends:
            raise CheckFailed(f"the response is {response['status']} after {seconds:g} seconds")
        time.sleep(0.1)


def chat(server: ServerUnderTest, **fields: Any) -> Json:
    """Create a chat completion. Raises `CheckFailed` if this fails."""
    return server.client.post("/chat/completions", chat_body(server, **fields)).expect()


def chat_streamed(server: ServerUnderTest, **fields: Any) -> list[Json]:
    """Create a streamed chat completion. Returns its chunks. Raises `CheckFailed` if an error is among them."""
    body = chat_body(server, stream=True, **fields)
    chunks = server.client.post("/chat/completions", body).events()
    for chunk in chunks:
        if "error" in chunk:
            raise CheckFailed(f"an error in the stream: {chunk}")
    return chunks


def chat_body(server: ServerUnderTest, **fields: Any) -> Json:
    """The body of a chat request."""
    messages = [{"role": "user", "content": QUESTION}]
    return {"model": server.model, "messages": messages, "max_completion_tokens": FEW, **fields}
