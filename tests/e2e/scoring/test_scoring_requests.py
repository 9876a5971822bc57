"""/v1/rerank and /v1/score over HTTP: the shapes of Jina, Cohere and vLLM, queue, limits and errors."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.answers.scoring.answer import reranked
from gateway.plugins.protocols import ScoreResult
from gateway.wire.scoring import RerankRequest
from gateway_testing.server import RunningGateway, run_gateway
from tests.full_queue import leave_after_refusals
from tests.waiting import wait_until, wait_until_async

QUERY = "Where did the cat sit?"
DOCUMENTS = ["Revenue rose by four percent.", "The cat sat on the mat.", "A cat."]
RERANK: dict[str, Any] = {"model": "ranks", "query": QUERY, "documents": DOCUMENTS}
SCORE: dict[str, Any] = {"model": "ranks", "text_1": QUERY, "text_2": DOCUMENTS}


def post(raw: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = raw.post(path, json=body)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_documents_come_back_by_relevance(raw: httpx.Client, path: str) -> None:
    made = post(raw, path, RERANK)
    assert made["id"].startswith("rerank-")
    assert (made["object"], made["model"]) == ("list", "ranks")
    assert made["usage"]["prompt_tokens"] == made["usage"]["total_tokens"] > 0
    results = made["results"]
    assert results[-1]["index"] == 0, "the document about money is the last"
    scores = [each["relevance_score"] for each in results]
    assert scores == sorted(scores, reverse=True)
    assert [each["document"]["text"] for each in results] == [
        DOCUMENTS[each["index"]] for each in results
    ]


@pytest.mark.parametrize(("top_n", "number"), [(0, 3), (None, 3), (1, 1), (2, 2), (9, 3)])
def test_top_n_are_the_first(raw: httpx.Client, top_n: int | None, number: int) -> None:
    whole = post(raw, "/v1/rerank", RERANK)["results"]
    assert post(raw, "/v1/rerank", {**RERANK, "top_n": top_n})["results"] == whole[:number]


def test_documents_are_left_out_on_request(raw: httpx.Client) -> None:
    made = post(raw, "/v1/rerank", {**RERANK, "return_documents": False})
    assert all(each.keys() == {"index", "relevance_score"} for each in made["results"])


def test_texts_may_be_objects_as_with_jina_and_cohere(raw: httpx.Client) -> None:
    objects = [{"text": each, "title": "ignored"} for each in DOCUMENTS]
    made = post(raw, "/v1/rerank", {**RERANK, "query": {"text": QUERY}, "documents": objects})
    assert made["results"] == post(raw, "/v1/rerank", RERANK)["results"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([0.0, -1.5, 0.25, 7.0, 1e-12]), min_size=1), st.integers(0, 9))
def test_equal_scores_keep_the_order_of_the_request(scores: list[float], top_n: int) -> None:
    documents = [str(index) for index in range(len(scores))]
    request = RerankRequest(query="x", documents=documents, top_n=top_n)
    results = reranked(request, "m", ScoreResult(scores=scores, prompt_tokens=1)).results
    expected = sorted(enumerate(scores), key=lambda each: (-each[1], each[0]))
    assert [(each.index, each.relevance_score) for each in results] == expected[: top_n or None]


@pytest.mark.parametrize("path", ["/v1/score", "/score"])
@pytest.mark.parametrize(
    "names",
    [("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2")],
)
def test_pairs_are_scored_in_their_order(
    raw: httpx.Client, path: str, names: tuple[str, str]
) -> None:
    ranked = {
        each["index"]: each["relevance_score"]
        for each in post(raw, "/v1/rerank", RERANK)["results"]
    }
    made = post(raw, path, {"model": "ranks", names[0]: QUERY, names[1]: DOCUMENTS})
    assert (made["object"], made["model"]) == ("list", "ranks")
    assert abs(made["created"] - time.time()) < 60
    assert made["usage"]["prompt_tokens"] > 0
    assert made["data"] == [
        {"index": index, "object": "score", "score": ranked[index]} for index in range(3)
    ]


def test_pairs_may_each_have_a_query(raw: httpx.Client) -> None:
    one = post(raw, "/v1/score", SCORE)["data"]
    each = post(raw, "/v1/score", {**SCORE, "text_1": [QUERY] * 3})["data"]
    assert each == one
    single = post(raw, "/v1/score", {**SCORE, "text_2": DOCUMENTS[1]})["data"]
    assert single == [{**one[1], "index": 0}]
    broadcast = post(raw, "/v1/score", {**SCORE, "text_1": [QUERY]})["data"]
    assert broadcast == one


def test_the_model_is_listed_with_what_it_does(raw: httpx.Client) -> None:
    listed = {model["id"]: model for model in raw.get("/v1/models").json()["data"]}
    assert listed["ranks"]["capabilities"] == ["rerank"]
    assert listed["french"]["parent"] == "ranks"
    assert post(raw, "/v1/rerank", {**RERANK, "model": "rerank-v3.5"})["model"] == "ranks"
    assert post(raw, "/v1/rerank", {**RERANK, "model": "french"})["model"] == "french"


def test_other_apis_refuse_it(raw: httpx.Client) -> None:
    answer = raw.post("/v1/responses", json={"model": "ranks", "input": "Hello"})
    message = "The model 'ranks' only reranks: use it with /v1/rerank. Models that generate: words."
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, message)
    answer = raw.post("/v1/embeddings", json={"model": "ranks", "input": "Hello"})
    assert answer.json()["error"]["code"] == "model_not_supported"


def test_where_no_model_is_named_it_is_the_only_one(gateway_server: Any) -> None:
    models = {
        "words": {"engine": "scripted", "scripted": {"task": "generate"}},
        "ranks": {"engine": "scripted", "scripted": {"task": "rerank"}},
    }
    url = gateway_server({"models": models}).base_url
    body = {key: value for key, value in RERANK.items() if key != "model"}
    assert httpx.post(f"{url}/rerank", json=body).json()["model"] == "ranks"


def test_keys_are_required_for_every_path(gateway_server: Any) -> None:
    models = {"ranks": {"engine": "scripted", "scripted": {"task": "rerank"}}}
    key = "sk-0123456789abcdef"
    keys = [{"name": "me", "sha256": hashlib.sha256(key.encode()).hexdigest()}]
    gateway = gateway_server({"server": {"api_keys": keys}, "models": models})
    root = gateway.base_url.removesuffix("/v1")
    headers = {"authorization": f"Bearer {key}"}
    for path in ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score"):
        body = {**RERANK, "queries": QUERY}
        assert httpx.post(root + path, json=body).status_code == 401
        assert httpx.post(root + path, json=body, headers=headers).status_code == 200


def test_errors_of_the_engine_are_the_clients(raw: httpx.Client) -> None:
    limited = raw.post("/v1/rerank", json={**RERANK, "documents": ["x", "too much"]})
    assert (limited.status_code, limited.headers["retry-after"]) == (429, "1")
    failed = raw.post("/v1/score", json={**SCORE, "text_2": "break"})
    assert (failed.status_code, failed.json()["error"]["type"]) == (500, "server_error")
    assert post(raw, "/v1/rerank", RERANK)["results"]


@pytest.mark.anyio
async def test_a_full_queue_is_a_429_that_says_when_to_come_back(
    scoring_server: RunningGateway,
) -> None:
    """One runs, one waits. These two would take minutes: which are refused does not depend on how soon the others arrive."""
    body = {"model": "busy", "query": "x", "documents": ["be slow"]}
    refused: list[httpx.Response] = []

    async def ask(client: httpx.AsyncClient) -> None:
        answer = await client.post("/rerank", json=body)
        assert answer.status_code == 429
        refused.append(answer)

    async with httpx.AsyncClient(base_url=scoring_server.base_url) as client:
        asked = [asyncio.create_task(ask(client)) for _ in range(6)]
        await leave_after_refusals(asked, refused, 4)
        assert all(int(each.headers["retry-after"]) >= 1 for each in refused)

        async def is_served() -> bool:
            quick = {**body, "documents": ["y"]}
            return (await client.post("/rerank", json=quick)).status_code == 200

        await wait_until_async(is_served, "they have left, and their places are free")


def test_a_client_that_leaves_aborts(scoring_server: RunningGateway, raw: httpx.Client) -> None:
    engine: Any = scoring_server.services.models["ranks"].engine
    cancelled = 'gateway_responses_total{model="ranks",status="cancelled"}'
    before = counted(raw, cancelled)
    host, port = raw.base_url.host, raw.base_url.port
    assert port is not None
    body = b'{"model": "ranks", "query": "x", "documents": ["be slow"]}'
    with socket.create_connection((host, port)) as connection:
        connection.sendall(
            b"POST /v1/rerank HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        wait_until(lambda: len(engine.running) == 1)
    wait_until(lambda: counted(raw, cancelled) == before + 1)
    wait_until(lambda: not engine.running)
    tokens = 'gateway_tokens_total{kind="input",model="ranks"}'
    had = counted(raw, tokens)
    used = post(raw, "/v1/rerank", RERANK)["usage"]
    assert counted(raw, tokens) == had + used["prompt_tokens"]


def test_a_run_that_takes_too_long_is_ended(tmp_path: Any) -> None:
    rules = [{"when": "be slow", "delay_ms": 20000}]
    models = {"m": {"engine": "scripted", "scripted": {"task": "rerank", "rules": rules}}}
    config = {"server": {"request_timeout": 0.2}, "models": models}
    with run_gateway(config, tmp_path) as gateway:
        body = {"query": "x", "documents": ["be slow"]}
        answer = httpx.post(f"{gateway.base_url}/rerank", json=body)
    assert answer.status_code == 504
    assert answer.json()["error"]["message"] == (
        "The scoring took longer than 0.2 seconds, which is this server's limit."
    )


def counted(raw: httpx.Client, line: str) -> float:
    for each in raw.get("/metrics").text.splitlines():
        if each.startswith(line):
            return float(each.split()[-1])
    return 0.0
