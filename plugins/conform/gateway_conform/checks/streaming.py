"""Checks of `POST /v1/responses` with a stream."""

from __future__ import annotations

from gateway_conform.checks.asking import cut_off, output_text, respond, respond_streamed
from gateway_conform.outcome import CheckSkipped, require
from gateway_conform.registry import ServerUnderTest, check
from gateway_conform.response_stream import fold
from gateway_conform.types import validate


@check("streaming", "the stream keeps its grammar: created first, items and parts nested, one end")
def grammar(server: ServerUnderTest) -> None:
    fold(respond_streamed(server))


@check("streaming", "each event is valid by the types of OpenAI's SDK")
def types(server: ServerUnderTest) -> None:
    for event in respond_streamed(server):
        validate("openai.types.responses.ResponseStreamEvent", event)


@check("streaming", "a stream with instructions, history and metadata keeps its grammar")
def grammar_of_a_longer_request(server: ServerUnderTest) -> None:
    history = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello! How can I help?"},
        {"role": "user", "content": "What is the capital of Italy?"},
    ]
    final = fold(
        respond_streamed(server, input=history, instructions="Be brief.", metadata={"a": "b"})
    )
    require(final["metadata"] == {"a": "b"}, "the final response has other metadata")


@check("streaming", "deltas add up to the text of the final response")
def deltas(server: ServerUnderTest) -> None:
    events = respond_streamed(server)
    text = "".join(
        event["delta"] for event in events if event["type"] == "response.output_text.delta"
    )
    final = events[-1]["response"]
    require(
        text == output_text(final), f"the deltas are {text!r}, the text is {output_text(final)!r}"
    )


@check("streaming", "a stream that reaches its token limit ends with response.incomplete")
def incomplete(server: ServerUnderTest) -> None:
    events = respond_streamed(server, **cut_off(server))
    final = fold(events)
    require(events[-1]["type"] == "response.incomplete", f"it ends with {events[-1]['type']}")
    reason = final["incomplete_details"]["reason"]
    require(reason == "max_output_tokens", f"the reason is {reason!r}")


@check("streaming", "the final response has usage that adds up")
def usage(server: ServerUnderTest) -> None:
    used = respond_streamed(server)[-1]["response"]["usage"]
    require(used["total_tokens"] == used["input_tokens"] + used["output_tokens"], f"{used}")


@check("streaming", "streamed and plain answers have the same fields")
def same_fields(server: ServerUnderTest) -> None:
    streamed, plain = respond_streamed(server)[-1]["response"], respond(server)
    require(set(streamed) == set(plain), f"they differ in {sorted(set(streamed) ^ set(plain))}")


@check("streaming", "the retrieved response equals the streamed one")
def retrieved(server: ServerUnderTest) -> None:
    final = respond_streamed(server, store=True)[-1]["response"]
    answer = server.client.get(f"/responses/{final['id']}")
    if answer.status == 404:
        raise CheckSkipped("the server does not store responses")
    require(answer.expect() == final, "the retrieved response differs from the last event's")
