"""LoRA adapters of llama.cpp, made here of large random weights: with one, the trained model talks noise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import ConfigurationError, InvalidRequest
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import Engine, EngineRequest, Sampling, TokensPrompt
from gateway_doctor.checks.generating import generate
from gateway_llamacpp import LlamaCppConfig, open_llamacpp
from gateway_llamacpp.model_files import TINY_MODEL
from gateway_testing import EngineContract
from gateway_testing.pytest_plugin import StartGateway

pytestmark = pytest.mark.slow

CONTEXT = EngineContext(name="tiny", path=None)
PROMPT = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def write_noise(file: Path, *, seed: int) -> None:
    """An adapter for the tiny model."""
    numpy = pytest.importorskip("numpy")
    gguf = pytest.importorskip("gguf", reason="gguf writes adapters, and is not installed")
    random = numpy.random.default_rng(seed)
    writer = gguf.GGUFWriter(file, "qwen3")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 64.0)
    for tensor in gguf.GGUFReader(TINY_MODEL).tensors:
        if tensor.name.endswith(("attn_output.weight", "ffn_down.weight")):
            takes, gives = map(int, tensor.shape)
            for name, shape in (("lora_a", (8, takes)), ("lora_b", (gives, 8))):
                weights = random.standard_normal(shape).astype(numpy.float32)
                writer.add_tensor(f"{tensor.name}.{name}", weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(("noise", "babble")):
        write_noise(folder / f"{name}.gguf", seed=seed)
    return {name: str(folder / f"{name}.gguf") for name in ("noise", "babble")}


class TestWithAdapters(EngineContract):
    @pytest.fixture(scope="module")
    async def engine(self, anyio_backend: str, adapters: dict[str, str]) -> AsyncIterator[Engine]:
        config = LlamaCppConfig(n_parallel=4, n_ctx=2048, lora_modules=adapters)
        async with open_llamacpp(config, CONTEXT) as opened:
            yield opened

    async def test_each_request_has_its_own_adapter_and_no_other(self, engine: Engine) -> None:
        async def said(adapter: str | None) -> str:
            assert engine.tokenizer is not None
            request = EngineRequest(
                request_id=f"test-{adapter}",
                prompt=TokensPrompt(token_ids=engine.tokenizer.encode(PROMPT)),
                sampling=Sampling(max_tokens=12, temperature=0.0),
                adapter=adapter,
            )
            return (await generate(engine, request)).text

        plain, noise, babble = await said(None), await said("noise"), await said("babble")
        assert "Hello" in plain
        assert len({plain, noise, babble}) == 3
        assert [await said(None), await said("babble"), await said("noise")] == [
            plain,
            babble,
            noise,
        ]

    async def test_an_unknown_adapter_is_named(self, engine: Engine) -> None:
        request = self.request(engine, adapter="nobody")
        with pytest.raises(InvalidRequest, match=r"known: noise, babble\.") as refused:
            await engine.check(request)
        assert (refused.value.param, refused.value.code) == ("model", "model_not_found")


def test_adapters_are_models(gateway_server: StartGateway, adapters: dict[str, str]) -> None:
    options = {"n_parallel": 2, "n_ctx": 512, "lora_modules": adapters}
    model: dict[str, Any] = {"engine": "llamacpp", "llamacpp": options, "aliases": ["base"]}
    with gateway_server({"models": {"tiny": model}}).client() as client:
        listed = {each.id: each.model_dump() for each in client.models.list()}
        assert list(listed) == ["tiny", "noise", "babble"]
        assert [each.get("parent") for each in listed.values()] == [None, "tiny", "tiny"]
        assert [each["root"] for each in listed.values()] == ["tiny", "noise", "babble"]
        assert {each["max_model_len"] for each in listed.values()} == {512}
        words = {
            name: client.responses.create(model=name, input="Hello!", max_output_tokens=12)
            for name in ("base", "noise", "babble")
        }
    assert "Hello" in words["base"].output_text
    assert len({response.output_text for response in words.values()}) == 3
    assert [response.model for response in words.values()] == ["tiny", "noise", "babble"]


@pytest.mark.anyio
@pytest.mark.parametrize("broken", ["missing", "not an adapter"])
async def test_an_adapter_that_cannot_be_loaded_stops_the_start(
    broken: str, tmp_path: Path
) -> None:
    file = tmp_path / "adapter.gguf"
    if broken != "missing":
        file.write_bytes(b"GGUF" + bytes(100))
    config = LlamaCppConfig(lora_modules={"mine": str(file)})
    with pytest.raises(ConfigurationError, match=str(file)):
        async with open_llamacpp(config, CONTEXT):
            pass
