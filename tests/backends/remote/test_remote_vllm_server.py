"""The engine's promises on a real vLLM server, in both of the ways in which it is spoken to."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from gateway.hookspecs import EngineContext
from gateway.protocols import Engine, EngineRequest, Sampling, TokensPrompt
from gateway.testing import EngineContract
from gateway_remote import RemoteConfig, open_remote

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed here"
)

MODEL = Path(__file__).parents[2] / "models" / "tiny-qwen3"
QUIET = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TORCH_COMPILE_DISABLE": "1",
}


@pytest.fixture(scope="module")
def vllm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(MODEL), "--host", "127.0.0.1",
        "--port", str(port), "--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "16",
        "--enable-prompt-tokens-details", "--enable-scale-out", "--seed", "0",
    ]  # fmt: skip
    log = tmp_path_factory.mktemp("vllm") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env={**os.environ, **QUIET}, stdout=out, stderr=subprocess.STDOUT
        )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(180):
            assert process.poll() is None, log.read_text()[-3000:]
            try:
                urlopen(f"{url}/health", timeout=2).close()
                break
            except (URLError, OSError):
                time.sleep(1)
        else:
            pytest.fail("vLLM did not start: " + log.read_text()[-3000:])
        yield url
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


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


class TestVllmCompletions(VllmServerContract):
    dialect = "vllm"


class TestVllmGenerate(VllmServerContract):
    dialect = None
