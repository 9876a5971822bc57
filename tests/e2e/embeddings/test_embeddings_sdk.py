"""Embeddings by the official SDK, which asks for base64 and decodes it."""

from __future__ import annotations

import asyncio
import base64
import itertools
import math
import socket
from array import array
from typing import Any

import httpx
import pytest
from openai import APIError, AsyncOpenAI, BadRequestError, OpenAI, RateLimitError

from gateway_doctor.checks.embedding_checks import cosine
from gateway_scripted.made_up_vectors import made_up_vector
from tests.full_queue import leave_after_refusals
from tests.waiting import wait_until, wait_until_async

CAT, MAT, MONEY = "The cat sat on the mat", "On a mat, the cat", "Revenue rose by four percent"


def test_the_sdk_decodes_what_it_asks_for(sdk: OpenAI) -> None:
    made = sdk.embeddings.create(model="vectors", input=[CAT, MONEY])
    assert [each.index for each in made.data] == [0, 1]
    assert [each.object for each in made.data] == ["embedding", "embedding"]
    assert [array("f", each.embedding) for each in made.data] == [
        made_up_vector(CAT, 32),
        made_up_vector(MONEY, 32),
    ]
    assert (made.object, made.model) == ("list", "vectors")
    assert made.usage.prompt_tokens == made.usage.total_tokens > 0


def test_both_encodings_say_the_same(raw: httpx.Client) -> None:
    body = {"model": "vectors", "input": CAT}
    plain, floats, packed = (
        raw.post("/v1/embeddings", json=body | more).json()
        for more in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"})
    )
    assert plain == floats
    data = base64.b64decode(packed["data"][0]["embedding"], validate=True)
    assert array("f", data).tolist() == floats["data"][0]["embedding"]
    assert set(floats) == {"object", "data", "model", "usage"}
    assert floats["usage"] == packed["usage"]


@pytest.mark.parametrize("model", ["vectors", "both", "tiny"])
def test_token_ids_are_what_their_text_is(sdk: OpenAI, raw: httpx.Client, model: str) -> None:
    def tokens(text: str) -> list[int]:
        answer = raw.post("/tokenize", json={"model": model, "prompt": text}).json()
        ids: list[int] = answer["tokens"]
        return ids

    text = sdk.embeddings.create(model=model, input=CAT)
    ids = tokens(CAT)
    assert text.usage.prompt_tokens == len(ids)
    one = sdk.embeddings.create(model=model, input=ids)
    several = sdk.embeddings.create(model=model, input=[tokens(MONEY), ids])
    for other in (one.data[0], several.data[1]):
        assert cosine(text.data[0].embedding, other.embedding) > 0.999


def test_fewer_dimensions_are_the_beginning(sdk: OpenAI) -> None:
    whole = sdk.embeddings.create(model="vectors", input=CAT).data[0].embedding
    short = sdk.embeddings.create(model="vectors", input=CAT, dimensions=8).data[0].embedding
    assert len(short) == 8
    assert math.hypot(*short) == pytest.approx(1, abs=1e-5)
    assert cosine(whole[:8], short) > 0.9999
    same = sdk.embeddings.create(model="vectors", input=CAT, dimensions=32).data[0].embedding
    assert same == whole


def test_a_real_model_embeds(sdk: OpenAI) -> None:
    made = sdk.embeddings.create(model="tiny", input=["What is the capital of France?", "x"])
    assert [len(each.embedding) for each in made.data] == [160, 160]
    again = sdk.embeddings.create(model="tiny", input="What is the capital of France?")
    assert cosine(made.data[0].embedding, again.data[0].embedding) > 0.999
    assert cosine(made.data[0].embedding, made.data[1].embedding) < 0.99
    assert sdk.embeddings.create(model="tiny", input="x", dimensions=160).data[
        0
    ].embedding == pytest.approx(made.data[1].embedding, abs=1e-3)
    with pytest.raises(BadRequestError, match="160 numbers, and cannot be shortened"):
        sdk.embeddings.create(model="tiny", input="x", dimensions=80)


def test_texts_that_share_words_are_nearer(sdk: OpenAI) -> None:
    cat, mat, money = (
        each.embedding
        for each in sdk.embeddings.create(
            model="text-embedding-3-small", input=[CAT, MAT, MONEY]
        ).data
    )
    assert cosine(cat, mat) > 0.5 > cosine(cat, money)


@pytest.mark.anyio
async def test_many_clients_at_once_get_their_own(embedding_server: Any) -> None:
    words = ["red", "green", "blue", "cat"]
    texts = [" ".join(each) for each in itertools.permutations(words, 2)]
    client = AsyncOpenAI(base_url=f"{embedding_server.url}/v1", api_key="none", max_retries=0)
    async with client:
        answers = await asyncio.gather(
            *(client.embeddings.create(model="vectors", input=[text, "x"]) for text in texts * 4)
        )
    for text, answer in zip(texts * 4, answers, strict=True):
        assert array("f", answer.data[0].embedding) == made_up_vector(text, 32)


def test_a_model_that_only_embeds_is_listed_and_generates_nothing(sdk: OpenAI) -> None:
    listed = {model.id: model.model_dump() for model in sdk.models.list()}
    assert list(listed) == ["vectors", "french", "words", "both", "tiny"]
    assert listed["vectors"]["max_model_len"] == 100
    assert listed["tiny"]["max_model_len"] == 256
    assert (listed["french"]["parent"], listed["french"]["root"]) == ("vectors", "french")
    message = "The model 'vectors' only embeds: use it with /v1/embeddings. Models that generate: words, both."
    asked: list[Any] = [
        lambda: sdk.responses.create(model="vectors", input="Hello"),
        lambda: sdk.chat.completions.create(
            model="text-embedding-3-small", messages=[{"role": "user", "content": "Hello"}]
        ),
        lambda: sdk.completions.create(model="vectors", prompt="Hello"),
    ]
    for ask in asked:
        with pytest.raises(BadRequestError) as refused:
            ask()
        assert (refused.value.param, refused.value.code) == ("model", "model_not_supported")
        assert refused.value.body["message"] == message  # type: ignore[index]


def test_an_adapter_embeds_under_its_own_name(sdk: OpenAI) -> None:
    made = sdk.embeddings.create(model="french", input=CAT)
    assert made.model == "french"


def test_a_model_without_a_name_is_the_only_one_that_can(gateway_server: Any) -> None:
    models = {
        "words": {"engine": "scripted", "scripted": {"task": "generate"}},
        "vectors": {"engine": "scripted", "scripted": {"task": "embed"}},
    }
    url = gateway_server({"models": models}).base_url
    embedded = httpx.post(f"{url}/embeddings", json={"input": "x"})
    assert embedded.json()["model"] == "vectors"
    answered = httpx.post(f"{url}/responses", json={"input": "x"})
    assert answered.json()["model"] == "words"


def test_errors_of_the_engine_are_the_client_s(sdk: OpenAI) -> None:
    with pytest.raises(RateLimitError, match="Slow down") as limited:
        sdk.embeddings.create(model="vectors", input=["x", "too much"])
    assert limited.value.response.headers["retry-after"] == "1"
    with pytest.raises(APIError) as failed:
        sdk.embeddings.create(model="vectors", input="break")
    assert failed.value.type == "server_error"
    assert sdk.embeddings.create(model="vectors", input="x").data


@pytest.mark.anyio
async def test_a_full_queue_is_a_429_that_says_when_to_come_back(embedding_server: Any) -> None:
    client = AsyncOpenAI(base_url=f"{embedding_server.url}/v1", api_key="none", max_retries=0)
    """One runs, one waits. These two would take minutes: which are refused does not depend on how soon the others arrive."""
    refused: list[RateLimitError] = []

    async def ask() -> None:
        with pytest.raises(RateLimitError) as caught:
            await client.embeddings.create(model="both", input="be slow")
        refused.append(caught.value)

    async def is_served() -> bool:
        try:
            return bool((await client.embeddings.create(model="both", input="quick")).data)
        except RateLimitError:
            return False

    async with client:
        asked = [asyncio.create_task(ask()) for _ in range(6)]
        await leave_after_refusals(asked, refused, 4)
        await wait_until_async(is_served, "they have left, and their places are free")
    for each in refused:
        assert int(each.response.headers["retry-after"]) >= 1
        assert each.code == "rate_limit_exceeded"


def test_a_client_that_leaves_aborts(embedding_server: Any, raw: httpx.Client) -> None:
    def counted(line: str) -> float:
        for each in raw.get("/metrics").text.splitlines():
            if each.startswith(line):
                return float(each.split()[-1])
        return 0.0

    cancelled = 'gateway_responses_total{model="vectors",status="cancelled"}'
    running = 'gateway_running_requests{model="vectors"}'
    before = counted(cancelled)
    host, port = embedding_server.url.removeprefix("http://").split(":")
    body = b'{"model": "vectors", "input": "be slow"}'
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(
            b"POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        wait_until(lambda: counted(running) == 1)
    wait_until(lambda: counted(running) == 0)
    wait_until(lambda: counted(cancelled) == before + 1)
    tokens = 'gateway_tokens_total{kind="input",model="vectors"}'
    had = counted(tokens)
    used = raw.post("/v1/embeddings", json={"model": "vectors", "input": CAT}).json()["usage"]
    assert counted(tokens) == had + used["prompt_tokens"]
