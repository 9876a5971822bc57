"""Checks of `/v1/completions`, the older API for raw prompts."""

from __future__ import annotations

from typing import Any

from gateway_conform.client import HttpAnswer
from gateway_conform.outcome import CheckSkipped, require
from gateway_conform.registry import ServerUnderTest, check
from gateway_conform.types import validate


def _complete(server: ServerUnderTest, **fields: Any) -> HttpAnswer:
    body = {"model": server.model, "prompt": "The capital of France is", "max_tokens": 8, **fields}
    answer = server.client.post("/completions", body)
    if answer.status in (404, 405, 501):
        raise CheckSkipped("the server has no /v1/completions")
    return answer


@check("completions", "a prompt is continued")
def plain(server: ServerUnderTest) -> None:
    completion = _complete(server).expect()
    require(completion["object"] == "text_completion", f"object is {completion['object']!r}")
    [choice] = completion["choices"]
    require(choice["finish_reason"] in ("stop", "length"), f"{choice['finish_reason']!r}")
    used = completion["usage"]
    total = used["prompt_tokens"] + used["completion_tokens"]
    require(used["total_tokens"] == total, "usage does not add up")


@check("completions", "a completion is valid by the types of OpenAI's SDK")
def types(server: ServerUnderTest) -> None:
    validate("openai.types.Completion", _complete(server).expect())


@check("completions", "a stream has the same text, and one end for each choice")
def streamed(server: ServerUnderTest) -> None:
    text = _complete(server, temperature=0, seed=1).expect()["choices"][0]["text"]
    chunks = _complete(server, temperature=0, seed=1, stream=True).events()
    parts = [choice for chunk in chunks for choice in chunk["choices"]]
    found = "".join(part["text"] for part in parts)
    require(found == text, f"the stream is {found!r}, and the plain answer {text!r}")
    ends = [part for part in parts if part["finish_reason"] is not None]
    require(len(ends) == 1, f"{len(ends)} finish reasons")
    require(ends[0] is parts[-1], "the finish reason is not in the last chunk")


@check("completions", "several prompts are answered in order")
def several(server: ServerUnderTest) -> None:
    completion = _complete(server, prompt=["One, two,", "Red, green,"]).expect()
    require(
        [each["index"] for each in completion["choices"]] == [0, 1], "the choices are not 0 and 1"
    )


@check("completions", "a stop sequence ends the text before it")
def stop(server: ServerUnderTest) -> None:
    [choice] = _complete(server, stop=["e"]).expect()["choices"]
    require("e" not in choice["text"], "the text has the stop sequence")


@check("completions", "echo gives the prompt before the text")
def echo(server: ServerUnderTest) -> None:
    [choice] = _complete(server, echo=True).expect()["choices"]
    require(
        choice["text"].startswith("The capital of France is"), f"the text is {choice['text']!r}"
    )


@check("completions", "log probabilities are given for each token, with its offset in the text")
def logprobs(server: ServerUnderTest) -> None:
    [choice] = _complete(server, logprobs=2, temperature=0).expect()["choices"]
    found = choice["logprobs"]
    fields = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    lengths = {len(found[name]) for name in fields}
    require(lengths and lengths != {0}, "there are none")
    require(len(lengths) == 1, f"the lists have different lengths: {sorted(lengths)}")
    told = "".join(found["tokens"])
    require(told.startswith(choice["text"]), "the tokens do not add up to the text")
