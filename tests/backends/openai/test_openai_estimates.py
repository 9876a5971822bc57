"""What upstreams do not report, because the client leaves, the stream breaks or they report nothing, is estimated: it counts in
usage and in the limits of keys."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.access import hash_key
from gateway.engines.estimates import TokenEstimate, estimated_prompt
from gateway.plugins.protocols import ChatPrompt, EmbeddingRequest
from gateway_testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

PROMPT = "word " * 400
"""500 estimated tokens."""
WORDS = 100
PATHS = ["/chat/completions", "/responses", "/messages"]
APIS = ["chat", "responses"]


@asynccontextmanager
async def front(stub: Any, folder: Path, **settings: Any) -> AsyncIterator[RunningGateway]:
    upstream = {"base_url": stub.url, "model": "m", "health_path": "", "stall_timeout": 20}
    config = {
        "server": {
            **{name: value for name, value in settings.items() if name != "api"},
            "api_keys": [
                {"name": "ada", "sha256": hash_key("sk-ada")},
                {"name": "bob", "sha256": hash_key("sk-bob"), "tokens_per_minute": 700},
            ],
        },
        "models": {
            "m": {"engine": "openai", "openai": {**upstream, "api": settings.get("api", "chat")}}
        },
    }
    with run_gateway(config, folder) as running:
        yield running


def body_of(path: str, *, stream: bool) -> dict[str, Any]:
    if path == "/responses":
        return {"model": "m", "input": PROMPT, "stream": stream}
    said = [{"role": "user", "content": PROMPT}]
    return {"model": "m", "messages": said, "stream": stream, "max_tokens": 200}


def chunks(stub: Any, api: str) -> list[Any]:
    if api == "chat":
        return [stub.chunk(content="word ") for _ in range(WORDS)]
    kind = "response.output_text.delta"
    return [{"type": kind, "output_index": 0, "delta": "word "} for _ in range(WORDS)]


async def ask(
    gateway: RunningGateway, client: httpx.AsyncClient, path: str, *, stream: bool
) -> httpx.Response:
    body = body_of(path, stream=stream)
    return await client.post(gateway.base_url + path, json=body, headers=HEADERS)


def live_tokens(gateway: RunningGateway) -> int:
    """How many tokens the running generations have, as an administrator sees it."""
    running = [each for run in tuple(gateway.services.runs) for each in run.stats.generations]
    return sum(each.run.generated for each in running)


HEADERS = {"authorization": "Bearer sk-ada", "anthropic-version": "2023-06-01"}


async def used(gateway: RunningGateway) -> tuple[int, int]:
    """Input and output tokens that are counted."""
    day = int(time.time() // 86_400)
    rows = await asyncio.to_thread(gateway.run, gateway.services.usage.read(day - 1, day + 1))
    return sum(row.input_tokens for row in rows), sum(row.output_tokens for row in rows)


class Endless:
    """An upstream that sends words until it is left."""

    def __init__(self, stub: Any, api: str) -> None:
        self.sent = 0
        self._events = chunks(stub, api)
        stub.answer = self.answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(b"data: %b\n\n" % json.dumps(self._events[0]).encode())
            self.sent += 1
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_what_went_through_counts_when_the_client_leaves(
    stub: Any, tmp_path: Path, api: str, path: str, *, stream: bool
) -> None:
    upstream = Endless(stub, api)
    async with front(stub, tmp_path, api=api) as gateway, httpx.AsyncClient(timeout=60) as client:
        asking = asyncio.create_task(ask(gateway, client, path, stream=stream))
        await wait_until_async(lambda: live_tokens(gateway) >= WORDS)
        asking.cancel()
        await wait_until_async(lambda: not stub.running)
        await wait_until_async(lambda: not gateway.services.models["m"].admission.running)
        reads, makes = await used(gateway)
    assert 400 <= reads <= 600
    assert WORDS <= makes <= 1.25 * upstream.sent + 1


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_what_went_through_counts_when_the_stream_breaks(
    stub: Any, tmp_path: Path, api: str, path: str, *, stream: bool
) -> None:
    stub.says(*chunks(stub, api), then="die")
    async with front(stub, tmp_path, api=api) as gateway, httpx.AsyncClient(timeout=60) as client:
        await ask(gateway, client, path, stream=stream)
        reads, makes = await used(gateway)
    assert 400 <= reads <= 600
    assert 0 < makes <= 1.25 * WORDS + 1


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("path", PATHS)
async def test_what_went_through_counts_when_the_time_is_up(
    stub: Any, tmp_path: Path, api: str, path: str
) -> None:
    Endless(stub, api)
    settings = {"request_timeout": 1.0}
    async with (
        front(stub, tmp_path, api=api, **settings) as gateway,
        httpx.AsyncClient(timeout=60) as client,
    ):
        await ask(gateway, client, path, stream=True)
        reads, makes = await used(gateway)
    assert 400 <= reads <= 600
    assert makes > 0


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("reported", [None, "zeros", "details"])
async def test_an_answer_without_usage_shows_and_counts_an_estimate(
    stub: Any, tmp_path: Path, api: str, path: str, reported: str | None
) -> None:
    usage: Any = {
        None: None,
        "zeros": dict.fromkeys(
            ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"), 0
        ),
        "details": {"prompt_tokens_details": {"cached_tokens": 0}},
    }[reported]
    if api == "chat":
        ends = [
            stub.chunk("stop"),
            *([{"choices": [], "usage": usage}] if usage else []),
            stub.done,
        ]
    else:
        ended = {"status": "completed", **({"usage": usage} if usage else {})}
        ends = [{"type": "response.completed", "response": ended}]
    stub.says(*chunks(stub, api), *ends)
    async with front(stub, tmp_path, api=api) as gateway, httpx.AsyncClient(timeout=60) as client:
        answer = (await ask(gateway, client, path, stream=False)).json()
        reads, makes = await used(gateway)
    assert 500 <= reads < 510
    assert makes == 125
    shown = list(answer["usage"].values())
    assert reads in shown
    assert makes in shown


async def test_a_key_is_limited_by_what_is_estimated(stub: Any, tmp_path: Path) -> None:
    """500 tokens are read, and more than 100 are written, by each: of twelve, two fit into 700."""
    Endless(stub, "chat")
    statuses = []
    async with front(stub, tmp_path) as gateway, httpx.AsyncClient(timeout=60) as client:
        for _ in range(12):
            body = body_of("/chat/completions", stream=True)
            del body["max_tokens"]
            url = gateway.base_url + "/chat/completions"
            headers = {"authorization": "Bearer sk-bob"}
            async with client.stream("POST", url, json=body, headers=headers) as answer:
                statuses.append(answer.status_code)
                if answer.status_code == 200:
                    await wait_until_async(lambda: live_tokens(gateway) >= WORDS)
            await wait_until_async(lambda: not gateway.services.limiter._running)
    assert statuses == [200] * 2 + [429] * 10


async def test_a_request_that_the_upstream_does_not_serve_counts_nothing(
    stub: Any, tmp_path: Path
) -> None:
    stub.refuses(500, {})
    async with front(stub, tmp_path) as gateway, httpx.AsyncClient(timeout=60) as client:
        assert (await ask(gateway, client, PATHS[0], stream=False)).status_code == 503
        assert await used(gateway) == (0, 0)


async def test_embeddings_without_usage_are_estimated(stub: Any, asker: Any) -> None:
    vectors = {"data": [{"index": index, "embedding": [1.0]} for index in range(2)]}
    stub.refuses(200, vectors)
    async with asker.open(stub, task="embed") as engine:
        request = EmbeddingRequest(request_id="r", inputs=["word " * 4, [1, 2, 3]])
        assert (await engine.embed(request)).prompt_tokens == 5 + 3


@given(st.text(), st.lists(st.integers(0, 100), max_size=5))
def test_how_a_text_is_cut_does_not_change_its_estimate(text: str, cuts: list[int]) -> None:
    whole, parts = TokenEstimate(), TokenEstimate()
    whole.add(text)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in pairwise(places):
        parts.add(text[start:end])
    assert parts.tokens == whole.tokens
    assert (whole.tokens > 0) == bool(text)
    assert whole.tokens <= len(text)


def test_media_count_by_number_and_not_by_size() -> None:
    def estimate(data: str) -> int:
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        said = {"role": "user", "content": [{"type": "text", "text": "Look"}, image]}
        return estimated_prompt(ChatPrompt(messages=[said]))

    assert estimate("A") == estimate("A" * 100_000)
    assert estimate("A") > 256


@pytest.mark.parametrize("path", PATHS)
async def test_the_id_that_the_upstream_gets_is_in_the_line_of_the_request(
    stub: Any, tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    stub.says(stub.chunk(content="Yes"), stub.chunk("stop"), stub.usage, stub.done)
    with caplog.at_level("INFO", logger="gateway.requests"):
        async with front(stub, tmp_path) as gateway, httpx.AsyncClient(timeout=60) as client:
            await ask(gateway, client, path, stream=False)
    (fields,) = [
        record.gateway_fields for record in caplog.records if record.name == "gateway.requests"
    ]
    assert fields["engine_request_id"] == stub.headers[-1]["x-request-id"]
