"""Stop strings cost in proportion to the output, whichever a request sends and whatever the model writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.null_engine import NullConfig, NullEngine
from gateway import hookimpl
from gateway.base.deltas import TextDelta
from gateway.engines.stopping import StopAutomaton
from gateway.engines.tokenizer import HfTokenizer
from gateway.generation.text_stops import MAX_STOP_CHARACTERS, RequestStops, TextStops
from gateway.items.logprobs import LogprobAligner
from gateway.plugins.hookspecs import EngineContext, OpenEngine, Register
from gateway.plugins.protocols import EngineOutput, EngineRequest, Sampling, TokenLogprob
from gateway_llamacpp.chunks import Details, Probability
from gateway_llamacpp.generation import GenerationState
from gateway_llamacpp.gguf_header import read_metadata
from gateway_llamacpp.model_files import TINY_MODEL
from gateway_llamacpp.vocabulary import Vocabulary
from gateway_remote.output import OutputBuilder, SampledToken
from gateway_remote.tokenizer import load_tokenizer
from gateway_testing.server import RunningGateway, run_gateway
from gateway_trtllm.generation import TrtllmGeneration
from tests.lines import lines_run

A = 4000
"""Number of times that the model writes the letter."""
OPENAI = ["a" * 4095 + "c", "b" * 4096, "b" * 4095 + "d", "a" * 4094 + "b"]
"""As many and as long as OpenAI's API takes."""
HOSTILE = {
    "OpenAI's number": OPENAI,
    "as long as they may be": [letter * 4096 for letter in "bcdefg"] + ["a" * 4095 + "c", "b" * 4095 + "d"],
    "as many as they may be": ["a" * 128, *(f"{'a' * n}b" for n in range(255))],
}  # fmt: skip
WORK = ("gateway/engines/stopping.py", "text_stops.py", "generation.py", "output.py", "logprobs.py", "alignment.py")  # fmt: skip
MOST_MORE = 60
"""Lines of source that a token may take beyond those with a stop string that is not in the text, which are 10 to 90."""
MODEL = Path(__file__).parents[1] / "models" / "tiny-qwen3"
VOCABULARY = Vocabulary(read_metadata(TINY_MODEL))
TOKENS = load_tokenizer(MODEL / "tokenizer.json")


def in_text(stops: Sequence[str], *, scored: bool) -> None:
    aligner = LogprobAligner() if scored else None
    finder = TextStops(RequestStops(stops).automaton, included=False, aligner=aligner)
    for at in range(A):
        if aligner is not None:
            aligner.push(EngineOutput(text="a", logprobs=[TokenLogprob(1, "a", -1.0, b"a")]))
        for delta in finder.read([TextDelta("a", at)]):
            assert isinstance(delta, TextDelta)
            if aligner is not None:
                aligner.take(delta.start, delta.text)
    finder.rest()


def llamacpp(stops: Sequence[str], *, scored: bool) -> None:
    vocabulary = VOCABULARY
    sampling = Sampling(stop=tuple(stops), logprobs=0 if scored else None)
    state = GenerationState(vocabulary, sampling, limit=10**6)
    letter = vocabulary.id_of(b"a")
    for number in range(1, A + 1):
        scores = [Probability(letter, -1.0)] if scored else []
        state.feed(Details(tokens=[letter], content="a", tokens_predicted=number, completion_probabilities=scores))  # fmt: skip
    state.feed(Details(stop=True, stop_type="limit", tokens_predicted=A))


def remote(stops: Sequence[str], *, scored: bool) -> None:
    sampling = Sampling(stop=tuple(stops), logprobs=0 if scored else None)
    builder = OutputBuilder(TOKENS, sampling, eos_is_last=True, prompt_tokens=1)
    [letter] = TOKENS.encode("a")
    for _ in range(A):
        builder.add([letter], [SampledToken(letter, -1.0)] if scored else None)
        builder.take()
    builder.end("length", None)
    builder.complete = True
    builder.take()


@cache
def hf_tokenizer() -> HfTokenizer:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

    class Fast:
        backend_tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))

    return HfTokenizer(Fast())


def trtllm(stops: Sequence[str], *, scored: bool) -> None:
    class Score:
        logprob, rank = -1.0, 1

    sampling = Sampling(stop=tuple(stops), logprobs=0 if scored else None)
    state = TrtllmGeneration(hf_tokenizer(), sampling, ends=())
    [letter] = TOKENS.encode("a")
    for number in range(A):
        scores = [{letter: Score()}] if scored else []
        state.feed([letter], scores, None if number < A - 1 else "length")


@pytest.mark.parametrize("scored", [False, True], ids=["plain", "scored"])
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("search", [in_text, llamacpp, remote, trtllm])
def test_a_token_takes_as_much_work_with_any_stop_strings(
    search: Callable[..., None], name: str, scored: bool
) -> None:
    stops = HOSTILE[name]
    assert sum(map(len, stops)) <= MAX_STOP_CHARACTERS
    with lines_run(*WORK) as with_one:
        search(["xyz"], scored=scored)
    with lines_run("gateway/engines/stopping.py") as building:
        StopAutomaton(stops)
    with lines_run(*WORK) as with_these:
        search(stops, scored=scored)
    added = with_these.count - building.count - with_one.count
    assert added / A < MOST_MORE


class EagerEngine(NullEngine):
    """Is far ahead of its reader: no output is waited for."""

    async def generate_pushing(self, request: EngineRequest, push: Any) -> AsyncGenerator[EngineOutput, None]:  # fmt: skip
        left = request.sampling.max_tokens or 16
        for number in range(1, left + 1):
            yield EngineOutput(text="a", token_ids=(0,), finish_reason="length" if number == left else None)  # fmt: skip


class Plugin:
    __name__ = "gateway_eager"

    @hookimpl
    def gateway_register_engines(self, register: Register[OpenEngine]) -> None:
        @asynccontextmanager
        async def opened(config: NullConfig, context: EngineContext) -> AsyncIterator[NullEngine]:
            yield EagerEngine(context.name, config)

        register("eager", opened, config=NullConfig, summary="For tests.")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("stops")
    config = {
        "models": {"m": {"engine": "eager"}},
        "apis": {"messages": {}, "batches": {}},
        "resources": {"files": {"path": str(folder / "files")}},
    }
    with run_gateway(config, folder, plugins=[Plugin()]) as running:
        yield running


ROUTES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "responses": ("responses", "stop", {"input": "a", "max_output_tokens": 1}),
    "chat": ("chat/completions", "stop", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
    "completions": ("completions", "stop", {"prompt": "a", "max_tokens": 1}),
    "messages": ("messages", "stop_sequences", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
}  # fmt: skip
TOO_LONG = {
    "one character more": ["a" * 4096] * 8 + ["b"],
    "sixteen": ["a" * 4095 + "c", *("b" * (4096 - n) for n in range(15))],
    "what the schema allows": ["a" * 4096] * 256,
}
ALLOWED = {
    "OpenAI's number": OPENAI,
    "OpenAI's number, in other scripts": ["あ" * 4096, "🙂" * 4096, "é" * 4096, "a" * 4096],
    "256 sentences": [f"{n:03}" + "a" * 125 for n in range(256)],
}


def post(gateway: RunningGateway, path: str, body: dict[str, Any]) -> httpx.Response:
    sent = {"model": "m", **body}
    return httpx.post(f"{gateway.base_url}/{path}", json=sent, timeout=60)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stops", TOO_LONG)
def test_too_much_is_refused_with_its_place(
    gateway: RunningGateway, route: str, stops: str
) -> None:
    path, param, body = ROUTES[route]
    answer = post(gateway, path, {**body, param: TOO_LONG[stops]})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert f"{MAX_STOP_CHARACTERS} characters together" in error["message"]
    assert "Send fewer or shorter ones." in error["message"]
    if route != "messages":
        assert (error["param"], error["code"]) == (param, "string_above_max_length")
    else:
        assert "stop_sequences" in error["message"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stops", ALLOWED)
def test_what_is_of_use_is_allowed(gateway: RunningGateway, route: str, stops: str) -> None:
    path, param, body = ROUTES[route]
    answer = post(gateway, path, {**body, param: ALLOWED[stops]})
    assert answer.status_code == 200, answer.text


def test_a_line_of_a_batch_is_refused_alone(gateway: RunningGateway) -> None:
    def line(name: str, stops: list[str]) -> str:
        path, _, body = ROUTES["chat"]
        sent = {"model": "m", **body, "stop": stops}
        return json.dumps({"custom_id": name, "method": "POST", "url": f"/v1/{path}", "body": sent})

    with httpx.Client(base_url=gateway.base_url, timeout=60) as http:
        lines = "\n".join([line("long", TOO_LONG["sixteen"]), line("good", OPENAI)])
        file = http.post(
            "/files", files={"file": ("b.jsonl", lines)}, data={"purpose": "batch"}
        ).json()
        asked = {
            "input_file_id": file["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        }
        batch = http.post("/batches", json=asked).json()
        while batch["status"] not in ("completed", "failed", "expired", "cancelled"):
            batch = http.get(f"/batches/{batch['id']}").json()
        assert batch["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
        [failed] = http.get(f"/files/{batch['error_file_id']}/content").text.splitlines()
    error = json.loads(failed)["response"]["body"]["error"]
    assert (error["param"], error["code"]) == ("stop", "string_above_max_length")


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stops", [[], OPENAI], ids=["no stops", "stops"])
def test_others_have_their_turn_while_an_engine_is_ahead(
    gateway: RunningGateway, route: str, stops: list[str], stream: bool
) -> None:
    path, param, body = ROUTES[route]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(count())

    async def finish(task: asyncio.Task[None]) -> None:
        task.cancel()

    limit = {each: 8000 for each in body if each.startswith("max_")}
    task = gateway.run(begin())
    try:
        answer = post(gateway, path, {**body, **limit, param: stops, "stream": stream})
    finally:
        gateway.run(finish(task))
    assert answer.status_code == 200, answer.text
    assert turns >= 8000 // 64
