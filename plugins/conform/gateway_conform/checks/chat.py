"""Checks of `/v1/chat/completions`."""

from __future__ import annotations

from gateway_conform.chat_stream import fold_chunks
from gateway_conform.checks.asking import chat, chat_streamed
from gateway_conform.outcome import require
from gateway_conform.registry import ServerUnderTest, check
from gateway_conform.types import validate

COUNT = [{"role": "user", "content": "Count from one to one hundred, in words."}]


@check("chat", "a message is answered")
def answers(server: ServerUnderTest) -> None:
    completion = chat(server, max_completion_tokens=512)
    require(completion["object"] == "chat.completion", f"object is {completion['object']!r}")
    [choice] = completion["choices"]
    require(choice["index"] == 0, "the choice's index is not 0")
    require(choice["finish_reason"] == "stop", f"finish_reason is {choice['finish_reason']!r}")
    require(choice["message"]["role"] == "assistant", "the message is not the assistant's")
    require(choice["message"]["content"], "the message has no content")


@check("chat", "completions and chunks are valid by the types of OpenAI's SDK")
def types(server: ServerUnderTest) -> None:
    validate("openai.types.chat.ChatCompletion", chat(server))
    for chunk in chat_streamed(server):
        validate("openai.types.chat.ChatCompletionChunk", chunk)


@check("chat", "usage adds up")
def usage(server: ServerUnderTest) -> None:
    used = chat(server)["usage"]
    total = used["prompt_tokens"] + used["completion_tokens"]
    require(used["total_tokens"] == total > 0, f"usage does not add up: {used}")


@check("chat", "system, developer and assistant messages, and parts, are taken")
def roles(server: ServerUnderTest) -> None:
    completion = chat(
        server,
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
            {"role": "assistant", "content": "Hello! How can I help?"},
            {"role": "user", "content": "What is the capital of France?"},
        ],
    )
    require(completion["choices"], "there is no choice")


@check("chat", "a limit of tokens ends with finish_reason length")
def length(server: ServerUnderTest) -> None:
    completion = chat(server, messages=COUNT, max_completion_tokens=5)
    if completion["usage"]["completion_tokens"] < 5:
        return  # the model ended its answer before the limit
    reason = completion["choices"][0]["finish_reason"]
    require(reason == "length", f"finish_reason is {reason!r}")


@check("chat", "max_tokens is taken as well")
def old_limit(server: ServerUnderTest) -> None:
    completion = chat(server, messages=COUNT, max_tokens=5, max_completion_tokens=None)
    require(completion["usage"]["completion_tokens"] <= 5, "there are more tokens")


@check("chat", "a stream keeps the grammar of chunks, without usage")
def streamed(server: ServerUnderTest) -> None:
    fold_chunks(chat_streamed(server))


@check("chat", "stream_options.include_usage gives usage in a last chunk of its own")
def streamed_usage(server: ServerUnderTest) -> None:
    chunks = chat_streamed(server, stream_options={"include_usage": True})
    completion = fold_chunks(chunks, includes_usage=True)
    require(completion["usage"]["completion_tokens"] > 0, "usage has no tokens")


@check("chat", "n choices are all answered")
def several(server: ServerUnderTest) -> None:
    completion = chat(server, n=2)
    require(
        [each["index"] for each in completion["choices"]] == [0, 1], "the choices are not 0 and 1"
    )


@check("chat", "n choices are streamed, each with its role and its end")
def several_streamed(server: ServerUnderTest) -> None:
    completion = fold_chunks(chat_streamed(server, n=2))
    require(len(completion["choices"]) == 2, "there are not two choices")


@check("chat", "a stop sequence ends the text before it")
def stop(server: ServerUnderTest) -> None:
    choice = chat(server, stop=["e"])["choices"][0]
    require("e" not in (choice["message"]["content"] or ""), "the text has the stop sequence")
    require(choice["finish_reason"] in ("stop", "length"), f"{choice['finish_reason']!r}")


@check("chat", "log probabilities are given for each token")
def logprobs(server: ServerUnderTest) -> None:
    choice = chat(server, logprobs=True, top_logprobs=2, temperature=0)["choices"][0]
    tokens = choice["logprobs"]["content"]
    require(tokens, "there are none")
    for token in tokens:
        require(token["logprob"] <= 0, f"a log probability is {token['logprob']}")
        require(
            len(token["top_logprobs"]) == 2, f"{len(token['top_logprobs'])} alternatives, not 2"
        )
