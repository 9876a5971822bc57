"""Checks of `POST /v1/responses` without a stream."""

from __future__ import annotations

from gateway_conform.checks.asking import cut_off, output_text, respond
from gateway_conform.client import Json
from gateway_conform.outcome import require
from gateway_conform.registry import ServerUnderTest, check
from gateway_conform.types import validate


def _require_usage(usage: Json) -> None:
    require(usage["input_tokens"] > 0, "usage has no input tokens")
    require(
        usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"],
        f"usage does not add up: {usage}",
    )
    require("cached_tokens" in usage["input_tokens_details"], "usage has no cached_tokens")
    require("reasoning_tokens" in usage["output_tokens_details"], "usage has no reasoning_tokens")


@check("responses", "a text is answered by a completed response with a message")
def answers(server: ServerUnderTest) -> None:
    response = respond(server, max_output_tokens=512)
    require(response["status"] == "completed", f"status is {response['status']!r}")
    require(response["error"] is None, f"error is {response['error']}")
    require(response["incomplete_details"] is None, "incomplete_details is not null")
    messages = [item for item in response["output"] if item["type"] == "message"]
    require(messages, "the output has no message")
    require(messages[-1]["role"] == "assistant", "the message is not the assistant's")
    require(messages[-1]["status"] == "completed", "the message is not completed")
    require(output_text(response), "the message has no text")


@check("responses", "a response is valid by the types of OpenAI's SDK")
def types(server: ServerUnderTest) -> None:
    validate("openai.types.responses.Response", respond(server))


@check("responses", "ids are of their kind and differ")
def ids(server: ServerUnderTest) -> None:
    first, second = respond(server), respond(server)
    require(first["id"].startswith("resp_"), f"the id is {first['id']!r}")
    require(first["id"] != second["id"], "two responses have one id")
    items = [item["id"] for response in (first, second) for item in response["output"]]
    require(len(set(items)) == len(items), "two items have one id")


@check("responses", "usage adds up and has its details")
def usage(server: ServerUnderTest) -> None:
    _require_usage(respond(server)["usage"])


@check("responses", "messages with roles and parts are input")
def message_input(server: ServerUnderTest) -> None:
    respond(
        server,
        input=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
            {"type": "message", "role": "assistant", "content": "Hello! How can I help?"},
            {"role": "user", "content": "What is the capital of France?"},
        ],
    )


@check("responses", "output items are input of the next request")
def output_as_input(server: ServerUnderTest) -> None:
    first = respond(server)
    question = {"role": "user", "content": "Thank you. And of Italy?"}
    respond(server, input=[{"role": "user", "content": "Hello"}, *first["output"], question])


@check("responses", "the request's settings are in the response")
def echoes(server: ServerUnderTest) -> None:
    asked = {
        "instructions": "Be brief.",
        "temperature": 0.5,
        "top_p": 0.9,
        "metadata": {"topic": "test"},
        "parallel_tool_calls": False,
        "truncation": "auto",
    }
    response = respond(server, **asked)
    for name, value in asked.items():
        require(response.get(name) == value, f"{name} is {response.get(name)!r}, not {value!r}")
    require(response.get("max_output_tokens") == 64, "max_output_tokens is not the request's")
    for name in ("tools", "tool_choice", "text", "reasoning", "previous_response_id", "model"):
        require(name in response, f"the response has no {name!r}")


@check("responses", "a response that reaches its token limit is incomplete and says so")
def incomplete(server: ServerUnderTest) -> None:
    response = respond(server, **cut_off(server))
    require(response["status"] == "incomplete", f"status is {response['status']!r}")
    reason = response["incomplete_details"]["reason"]
    require(reason == "max_output_tokens", f"the reason is {reason!r}")


@check("responses", "log probabilities that are included are those of the text's tokens")
def logprobs(server: ServerUnderTest) -> None:
    response = respond(server, include=["message.output_text.logprobs"], top_logprobs=2)
    parts = [
        part for item in response["output"] if item["type"] == "message" for part in item["content"]
    ]
    require(parts, "there is no message")
    for part in parts:
        require(part["logprobs"], "there are none")
        text = "".join(token["token"] for token in part["logprobs"])
        require(text == part["text"], "the tokens do not add up to the text")
        alternatives = {len(token["top_logprobs"]) for token in part["logprobs"]}
        require(alternatives == {2}, f"there are {alternatives} alternatives, not 2")


@check("responses", "instructions are not part of a chained response's context")
def instructions_do_not_last(server: ServerUnderTest) -> None:
    first = respond(server, instructions="Speak like a pirate.", store=True)
    answer = server.client.post(
        "/responses",
        {
            "model": server.model,
            "input": "And of Italy?",
            "previous_response_id": first["id"],
            "max_output_tokens": 64,
        },
    )
    if answer.status == 200:
        require(answer.json()["instructions"] is None, "the new response has the old instructions")


@check("responses", "tokens are counted without a generation")
def counts(server: ServerUnderTest) -> None:
    body = {"model": server.model, "input": "What is the capital of France?"}
    counted = server.client.post("/responses/input_tokens", body).expect()
    require(counted["object"] == "response.input_tokens", f"object is {counted['object']!r}")
    used = respond(server, **body)["usage"]["input_tokens"]
    require(counted["input_tokens"] == used, f"{counted['input_tokens']} tokens are counted, and {used} used")  # fmt: skip
