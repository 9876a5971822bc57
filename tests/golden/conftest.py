"""The engines of the golden suite: each is started once, and all of them run the tiny model."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway import hookimpl
from gateway.plugins.hookspecs import EngineContext, OpenEngine, Register
from gateway.plugins.protocols import Engine, EngineOutput, EngineRequest, NoConfig, TokensPrompt
from gateway_testing.server import RunningGateway, run_gateway

SAFETENSORS = Path(__file__).parents[1] / "models" / "tiny-qwen3"


class Tape:
    """An engine that runs another and keeps what it has said last, as a rule for the scripted engine."""

    def __init__(self) -> None:
        self.rule: dict[str, Any] = {}

    @asynccontextmanager
    async def open(self, config: NoConfig, context: EngineContext) -> AsyncIterator[Engine]:
        from gateway_llamacpp import LlamaCppConfig, open_llamacpp

        async with open_llamacpp(LlamaCppConfig(), context) as engine:
            yield Taped(engine, self)

    @hookimpl
    def gateway_register_engines(self, register: Register[OpenEngine]) -> None:
        register("taped", self.open, summary="llama.cpp, and what it said is kept")


class Taped:
    def __init__(self, engine: Engine, tape: Tape) -> None:
        self._engine = engine
        self._tape = tape

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        assert isinstance(request.prompt, TokensPrompt)
        assert self._engine.tokenizer is not None
        prompt = self._engine.tokenizer.decode(request.prompt.token_ids)
        said = ""
        async with aclosing(self._engine.generate(request)) as outputs:
            async for output in outputs:
                said += output.text
                if (finish := output.finish_reason) is not None:
                    self._tape.rule = {
                        "when": prompt,
                        "pieces": [{"raw": said}],
                        "finish": finish,
                    }
                yield output


@pytest.fixture(scope="session")
def tape() -> Tape:
    return Tape()


@pytest.fixture(scope="session")
def in_process(tmp_path_factory: pytest.TempPathFactory, tape: Tape) -> Iterator[RunningGateway]:
    """llama.cpp in process: what all others are held against."""
    models = {"llamacpp": {"engine": "llamacpp"}, "taped": {"engine": "taped"}}
    with run_gateway({"models": models}, tmp_path_factory.mktemp("own"), plugins=[tape]) as running:
        yield running


@pytest.fixture(scope="session")
def behind_http(
    in_process: RunningGateway, llama_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """llama-server at token level; and the first gateway as an upstream at message level."""
    models: dict[str, Any] = {
        f"upstream-{api}": {
            "engine": "openai",
            "openai": {
                "base_url": in_process.base_url,
                "model": "llamacpp",
                "api": api,
                "extensions": ["chat_template_kwargs"],
            },
        }
        for api in ("chat", "responses")
    }
    models["llama-server"] = {
        "engine": "remote",
        "remote": {"urls": [llama_server], "tokenizer": str(SAFETENSORS)},
    }
    with run_gateway({"models": models}, tmp_path_factory.mktemp("behind")) as running:
        yield running


@pytest.fixture(scope="session")
def vllm_in_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    # In enforced JSON, llama.cpp's grammar lets one blank follow another token, and no more.
    models = {
        "vllm": {
            "engine": "vllm",
            "path": str(SAFETENSORS),
            "max_model_len": 1024,
            "vllm": {"enforce_eager": True, "max_num_seqs": 8, "max_json_whitespace": 1},
        }
    }
    with run_gateway({"models": models}, tmp_path_factory.mktemp("vllm-own")) as running:
        yield running


@pytest.fixture(scope="session")
def vllm_over_http(
    vllm_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """vLLM's server by both of its routes for tokens."""
    models = {
        dialect: {
            "engine": "remote",
            "remote": {"urls": [vllm_server], "dialect": dialect, "max_json_whitespace": 1},
        }
        for dialect in ("vllm-generate", "vllm")
    }
    with run_gateway({"models": models}, tmp_path_factory.mktemp("vllm-http")) as running:
        yield running


@pytest.fixture
def gateway_of(request: pytest.FixtureRequest) -> Any:
    """The gateway that has an engine, started when the first asks for it."""

    def find(engine: str) -> RunningGateway:
        match engine:
            case "llamacpp" | "taped":
                name = "in_process"
            case "vllm in process":
                name = "vllm_in_process"
            case "vllm" | "vllm-generate":
                name = "vllm_over_http"
            case _:
                name = "behind_http"
        if "vllm" in name and importlib.util.find_spec("vllm") is None:
            pytest.skip("vLLM is not installed here; .ci/run installs its CPU build")
        running: RunningGateway = request.getfixturevalue(name)
        return running

    return find
