"""The engine's promises on a real vLLM server, in both of the ways in which it is spoken to."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from gateway.generation.beam_search import Beams
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import BeamSearch, Engine, EngineRequest, Sampling, TokensPrompt
from gateway_remote import RemoteConfig, open_remote
from gateway_testing import EngineContract

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed here"
)


class VllmServerContract(EngineContract):
    dialect: Any = None
    prompt = "<|im_start|>user\nHello there, my name is Bob.<|im_end|>\n<|im_start|>assistant\n"

    @pytest.fixture(scope="module")
    @classmethod
    async def engine(cls, vllm_server: str, anyio_backend: str) -> AsyncIterator[Engine]:
        # The tokenizer, the context's length and the kind of server are asked of the server.
        config = RemoteConfig(urls=[vllm_server], dialect=cls.dialect, max_json_whitespace=2)
        async with open_remote(config, EngineContext(name="tiny", path=None)) as opened:
            yield opened

    async def test_it_is_spoken_to_as_it_can_be(self, engine: Any) -> None:
        assert engine._dialect.name == (self.dialect or "vllm-generate")
        assert engine.info.architecture == "Qwen3ForCausalLM"
        assert engine.info.max_model_len == 1024

    async def test_cached_tokens_are_told(self, engine: Engine) -> None:
        assert engine.tokenizer is not None
        prompt = TokensPrompt(token_ids=engine.tokenizer.encode("a word and another " * 60))
        for number in range(2):
            asked = EngineRequest(
                request_id=f"cached-{self.dialect}-{number}",
                prompt=prompt,
                sampling=Sampling(max_tokens=1),
            )
            last = [output async for output in engine.generate(asked)][-1]
        assert last.cached_tokens
        assert last.cached_tokens >= 128

    async def test_beams_are_those_that_the_server_finds(
        self, engine: Engine, vllm_server: str
    ) -> None:
        assert engine.tokenizer is not None
        ids = engine.tokenizer.encode(self.prompt)
        search = BeamSearch(width=4)
        asked = EngineRequest(
            request_id=f"beams-{self.dialect}",
            prompt=TokensPrompt(token_ids=ids),
            sampling=Sampling(max_tokens=8),
        )
        beams = Beams(search)
        await beams.check(engine, asked)
        found = [
            output.text
            for index in range(search.width)
            async for output in beams.outputs(engine, asked, index)
        ]
        body = {"prompt": ids, "max_tokens": 8, "n": search.width, "use_beam_search": True}
        async with httpx.AsyncClient(base_url=vllm_server, timeout=60) as client:
            answer = await client.post("/v1/completions", json=body)
        assert found == [choice["text"] for choice in answer.json()["choices"]]


class TestVllmCompletions(VllmServerContract):
    dialect = "vllm"


class TestVllmGenerate(VllmServerContract):
    dialect = None
