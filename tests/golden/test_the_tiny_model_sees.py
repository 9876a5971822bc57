"""The tiny model says what is in a picture, and says the same on llama.cpp and on vLLM, by the engines' own servers."""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Mapping
from typing import Any, Literal
from urllib.request import Request, urlopen

import pytest
from msgspec import Struct

QUESTION = "What is in this image?"
TOKENS = 16
"""Tokens of one picture."""


class Answer(Struct, frozen=True):
    text: str
    prompt_tokens: int


@pytest.fixture(scope="module", params=["llama_vision_server", "vllm_vision_server"])
def address(request: pytest.FixtureRequest) -> str:
    if request.param.startswith("vllm") and importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed here")
    found: str = request.getfixturevalue(request.param)
    return found


def ask(address: str, *messages: str | list[dict[str, Any]]) -> Answer:
    """The greedy answer to messages of the user and the assistant in turn."""
    body = {
        "messages": [
            {"role": ("user", "assistant")[index % 2], "content": content}
            for index, content in enumerate(messages)
        ],
        "temperature": 0,
        "max_tokens": 60,
    }
    with urlopen(f"{address}/v1/models", timeout=60) as reply:
        body["model"] = json.load(reply)["data"][0]["id"]
    request = Request(
        f"{address}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urlopen(request, timeout=60) as reply:
        answer = json.load(reply)
    return Answer(answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens"])


def content(
    *pictures: bytes, question: str = QUESTION, place: Literal["before", "after"] = "before"
) -> list[dict[str, Any]]:
    """A question about pictures, which stand before it or after it."""
    shown = [
        {
            "type": "image_url",
            "image_url": {"url": "data:image/png;base64," + base64.b64encode(png).decode()},
        }
        for png in pictures
    ]
    asked = {"type": "text", "text": question}
    return [*shown, asked] if place == "before" else [asked, *shown]


@pytest.mark.parametrize("place", ["before", "after"])
def test_it_says_what_is_in_a_picture(
    address: str, pictures: Mapping[str, bytes], place: Literal["before", "after"]
) -> None:
    answers = {said: ask(address, content(png, place=place)).text for said, png in pictures.items()}
    assert answers == {said: said for said in pictures}


def test_a_picture_is_sixteen_tokens_of_the_prompt(
    address: str, pictures: Mapping[str, bytes]
) -> None:
    blind = ask(address, QUESTION)
    for png in pictures.values():
        assert ask(address, content(png)).prompt_tokens == blind.prompt_tokens + TOKENS
    two = ask(address, content(*list(pictures.values())[:2]))
    assert two.prompt_tokens == blind.prompt_tokens + 2 * TOKENS


def test_the_next_question_may_be_about_anything_else(
    address: str, pictures: Mapping[str, bytes]
) -> None:
    said, png = next(iter(pictures.items()))
    answer = ask(address, content(png), said, "What is the capital of France?")
    assert answer.text == "The capital of France is Paris."


def test_the_next_picture_is_another(address: str, pictures: Mapping[str, bytes]) -> None:
    (first, before), (second, after) = list(pictures.items())[:2]
    assert ask(address, content(before), first, content(after)).text == second


def test_without_a_picture_it_answers_as_it_does_blind(address: str) -> None:
    assert ask(address, "What color is the sky?").text == "The sky is blue."
    assert ask(address, "Repeat after me: tea").text == "tea"
