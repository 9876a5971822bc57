"""Answers that grow with the tokens of a request are made beside the event loop, and count against the limits of keys."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest

from benchmarks.null_engine import WORD, NullConfig, NullEngine
from gateway import hookimpl
from gateway.plugins.hookspecs import EngineContext, OpenEngine, Register
from gateway.plugins.protocols import (
    Capability,
    EngineOutput,
    EngineRequest,
    TokenLogprob,
    TokensPrompt,
    TopLogprob,
)
from gateway_scripted.tokenizer import ScriptedTokenizer
from gateway_testing.server import RunningGateway, run_gateway

OWN = tuple(str(Path(__file__).parents[2] / folder) for folder in ("gateway/", "plugins/"))
MANY = 40_000
MOST = 12_000
"""Calls of functions on the event loop that one request may take, of Python and of C, with so many tokens."""
KEYS: dict[str, dict[str, int]] = {
    "one": {"requests_per_minute": 1},
    "alone": {"max_concurrent_requests": 1},
    "few": {"tokens_per_minute": 100},
}


class ScoringEngine(NullEngine):
    """Writes a few words, and gives made-up log probabilities."""

    capabilities = frozenset[Capability]({"tokens", "logprobs", "prompt_logprobs"})

    async def generate_pushing(
        self, request: EngineRequest, push: Any
    ) -> AsyncGenerator[EngineOutput, None]:
        assert isinstance(request.prompt, TokensPrompt)
        wanted, most = request.sampling.prompt_logprobs, request.sampling.max_tokens or 1
        of_prompt: list[TokenLogprob | None] | None = None
        if wanted is not None:
            tokens = request.prompt.token_ids
            of_prompt = [None, *await asyncio.to_thread(lambda: list(map(scored, tokens[1:])))]
        for number in range(1, most + 1):
            yield EngineOutput(
                text=WORD,
                token_ids=(0,),
                logprobs=None if request.sampling.logprobs is None else [scored(0)],
                prompt_logprobs=of_prompt if number == 1 else None,
                finish_reason="length" if number == most else None,
            )


def scored(token: int) -> TokenLogprob:
    text = WORD.encode()
    top = tuple(TopLogprob(each, f"t{each}", -1.0 - each, text) for each in range(5))
    return TokenLogprob(token, f"t{token}", -0.5, text, top)


class Plugin:
    __name__ = "gateway_scoring"

    @hookimpl
    def gateway_register_engines(self, register: Register[OpenEngine]) -> None:
        @asynccontextmanager
        async def opened(config: NullConfig, context: EngineContext) -> AsyncIterator[NullEngine]:
            yield ScoringEngine(context.name, config)

        register("scoring", opened, config=NullConfig, summary="For tests.")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {"models": {"m": {"engine": "scoring"}, "scripted": {"engine": "scripted"}}}
    folder = tmp_path_factory.mktemp("proportion")
    with run_gateway(config, folder, plugins=[Plugin()]) as running:
        yield running


class Calls:
    """Counts the calls of and by functions of this project in a thread while it is on."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(OWN):
            code = frame.f_code
            self.seen[f"{Path(code.co_filename).name}:{code.co_qualname}"] += 1


async def profile(calls: Calls | None) -> None:
    sys.setprofile(calls)


def root(gateway: RunningGateway) -> str:
    return gateway.base_url.removesuffix("/v1")


def ask(gateway: RunningGateway, path: str, body: dict[str, Any]) -> tuple[httpx.Response, Calls]:
    """The answer, and the calls on the event loop."""
    calls = Calls()
    gateway.run(profile(calls))
    try:
        answer = httpx.post(f"{root(gateway)}{path}", json={"model": "m", **body}, timeout=60)
    finally:
        gateway.run(profile(None))
    assert answer.status_code == 200, answer.text[:300]
    return answer, calls


TEXT = "ab " * MANY
IDS = [3, 4] * (MANY // 2)
ONE = ScriptedTokenizer().encode("a")
M = [{"role": "user", "content": TEXT}]
ROUTES: dict[str, tuple[str, dict[str, Any]]] = {
    "tokens": ("/tokenize", {"prompt": TEXT}),
    "texts of tokens": ("/tokenize", {"prompt": TEXT, "return_token_strs": True}),
    "tokens of a chat": ("/tokenize", {"messages": M, "return_token_strs": True}),
    "text of tokens": ("/detokenize", {"tokens": IDS}),
    "echo": ("/v1/completions", {"prompt": IDS, "max_tokens": 1, "echo": True}),
    "echo of several": ("/v1/completions", {"prompt": [IDS, IDS], "max_tokens": 1, "echo": True}),
    "echo with log probabilities": ("/v1/completions", {"prompt": IDS, "max_tokens": 1, "echo": True, "logprobs": 5}),
    "echo with log probabilities, streamed": ("/v1/completions", {"prompt": IDS, "max_tokens": 1, "echo": True, "logprobs": 5, "stream": True}),
    "log probabilities of a prompt": ("/v1/completions", {"prompt": IDS, "max_tokens": 1, "prompt_logprobs": 5}),
    "log probabilities of a chat": ("/v1/chat/completions", {"messages": M, "max_tokens": 1, "prompt_logprobs": 5}),
    "log probabilities of a chat with choices": ("/v1/chat/completions", {"messages": M, "max_tokens": 1, "prompt_logprobs": 5, "n": 3}),
    "tokens of a chat's prompt": ("/v1/chat/completions", {"messages": M, "max_tokens": 1, "return_token_ids": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUTES)
def test_what_grows_with_the_tokens_is_made_beside_the_event_loop(
    gateway: RunningGateway, name: str
) -> None:
    path, body = ROUTES[name]
    _, calls = ask(gateway, path, body)
    assert calls.seen.total() < MOST, calls.seen.most_common(8)


def test_a_long_answer_is_as_a_short_one(gateway: RunningGateway) -> None:
    tokenizer, text = ScriptedTokenizer(), "Einé 😀 a, " * 9000
    body = {"model": "scripted", "prompt": text, "return_token_strs": True}
    long = httpx.post(f"{root(gateway)}/tokenize", json=body, timeout=60).json()
    assert long["tokens"] == tokenizer.encode(text)
    assert long["count"] == len(long["tokens"])
    assert long["token_strs"] == [tokenizer.decode([each]) for each in long["tokens"]]
    body = {"model": "scripted", "tokens": long["tokens"]}
    told = httpx.post(f"{root(gateway)}/detokenize", json=body, timeout=60).json()
    assert told == {"prompt": text}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("more", [{}, {"return_tokens_as_token_ids": True}])
def test_a_long_echo_is_as_a_short_one(
    gateway: RunningGateway, stream: bool, more: dict[str, Any]
) -> None:
    def echoed(ids: list[int]) -> dict[str, list[Any]]:
        body = {"prompt": ids, "max_tokens": 4, "echo": True, "logprobs": 2, **more}
        answer, _ = ask(gateway, "/v1/completions", {**body, "stream": stream})
        if not stream:
            chunks = [answer.json()]
        else:
            events = answer.text.removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]
            chunks = [json.loads(each.removeprefix("data: ")) for each in events]
        told: dict[str, list[Any]] = {}
        for chunk in chunks:
            for name, values in (chunk["choices"][0]["logprobs"] or {}).items():
                told.setdefault(name, []).extend(values)
        return told

    long, short = echoed(IDS), echoed(IDS[:2])
    assert {name: len(each) - MANY for name, each in long.items()} == {name: len(each) - 2 for name, each in short.items()}  # fmt: skip
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert long[name][:2] == short[name][:2]
        assert long[name][MANY:] == short[name][2:], "the output's"
        assert long[name][2:4] == long[name][MANY - 2 : MANY]
    assert long["text_offset"][:MANY] == list(range(0, len(WORD) * MANY, len(WORD)))
    assert [each - len(WORD) * MANY for each in long["text_offset"][MANY:]] == [each - len(WORD) * 2 for each in short["text_offset"][2:]]  # fmt: skip


def test_long_log_probabilities_of_a_prompt_are_as_short_ones(gateway: RunningGateway) -> None:
    def scored(ids: list[int]) -> list[Any]:
        body = {"prompt": ids, "max_tokens": 1, "prompt_logprobs": 2}
        told: list[Any] = ask(gateway, "/v1/completions", body)[0].json()["choices"][0]["prompt_logprobs"]  # fmt: skip
        return told

    long, short = scored(IDS), scored(IDS[:3])
    assert long[0] is None
    assert long[1:] == (short[1:] * MANY)[: MANY - 1]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    keys = [
        {"name": name, "sha256": hashlib.sha256(f"sk-{name}".encode()).hexdigest(), **limits}
        for name, limits in KEYS.items()
    ]
    config = {
        "models": {"m": {"engine": "scripted"}},
        "server": {"api_keys": keys},
        "apis": {"messages": {}},
    }
    with run_gateway(config, tmp_path_factory.mktemp("limited")) as running:
        yield running


def send(gateway: RunningGateway, key: str, path: str, body: dict[str, Any]) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{root(gateway)}{path}", json={"model": "m", **body}, headers=headers, timeout=60)  # fmt: skip


def test_tokenizing_counts_as_a_request_of_its_key(limited: RunningGateway) -> None:
    first = send(limited, "sk-one", "/tokenize", {"prompt": "a"})
    assert first.status_code == 200, first.text
    assert first.headers["x-ratelimit-remaining-requests"] == "0"
    counts = {"messages": [{"role": "user", "content": "a"}]}
    for path, body in (
        ("/tokenize", {"prompt": "a"}),
        ("/detokenize", {"tokens": ONE}),
        ("/v1/responses/input_tokens", {"input": "a"}),
        ("/v1/messages/count_tokens", counts),
    ):
        refused = send(limited, "sk-one", path, body)
        assert refused.status_code == 429, refused.text
        if "messages" not in path:
            assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert int(refused.headers["retry-after"]) > 0


def test_a_key_gets_its_place_back_and_its_tokens_are_not_used(limited: RunningGateway) -> None:
    for _ in range(3):
        assert send(limited, "sk-alone", "/tokenize", {"prompt": "a"}).status_code == 200
        assert send(limited, "sk-alone", "/detokenize", {"tokens": ONE}).status_code == 200
        assert send(limited, "sk-alone", "/tokenize", {"prompt": 5}).status_code == 400
        assert send(limited, "sk-few", "/tokenize", {"prompt": "a" * 500}).status_code == 200
