"""The configuration, what stops the start, and that listing plugins needs no TensorRT-LLM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.base.errors import ConfigurationError
from gateway.plugins.hookspecs import EngineContext
from gateway_trtllm import TrtllmConfig, open_engine
from gateway_trtllm.config import llm_arguments
from gateway_trtllm.opening import _check_version

pytestmark = pytest.mark.anyio
MODEL = Path(__file__).parents[2] / "models" / "tiny-qwen3"
CONTEXT = EngineContext(name="m", path="~/models/m", max_model_len=4096)


def test_the_arguments_say_what_is_configured_and_nothing_else() -> None:
    config = TrtllmConfig(
        tensor_parallel_size=2,
        kv_cache_config={"free_gpu_memory_fraction": 0.8},
        speculative_config={"decoding_type": "MTP"},
        max_seq_len=100,
        args={"disable_overlap_scheduler": True},
    )
    assert llm_arguments(config, CONTEXT, {"disable_overlap_scheduler"}) == {
        "model": str(Path("~/models/m").expanduser()),
        "backend": "pytorch",
        "dtype": "auto",
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
        "kv_cache_config": {"free_gpu_memory_fraction": 0.8},
        "speculative_config": {"decoding_type": "MTP"},
        "trust_remote_code": False,
        "tokenizer_mode": "auto",
        "guided_decoding_backend": "xgrammar",
        "max_seq_len": 4096,
        "disable_overlap_scheduler": True,
    }


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (TrtllmConfig(args={"skip_tokenizer_init": True}), "use a model with a tokenizer instead"),
        (
            TrtllmConfig(args={"max_seq_len": 1}),
            "has a place of its own: models.m.trtllm.max_seq_len",
        ),
        (TrtllmConfig(args={"max_batch": 1}), 'did you mean "max_batch_wait"'),
        (TrtllmConfig(enable_lora=False, lora_modules={"a": "b"}), "enable_lora = false"),
    ],
)
def test_a_wrong_argument_is_one_sentence(config: TrtllmConfig, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        llm_arguments(config, CONTEXT, {"max_batch_wait"})
    assert told.replace('"', "'") in str(caught.value).replace('"', "'")


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="tensor_parallel"):
        msgspec.convert({"tensor_parallel": 2}, TrtllmConfig)


async def test_a_model_without_a_path_is_one_sentence() -> None:
    with pytest.raises(ConfigurationError, match="has no path"):
        async with open_engine(TrtllmConfig(), EngineContext(name="m", path=None)):
            pass


def test_without_tensorrt_llm_it_says_what_to_install() -> None:
    code = (
        "import asyncio\n"
        "from gateway.base.errors import ConfigurationError\n"
        "from gateway.plugins.hookspecs import EngineContext\n"
        "from gateway_trtllm import TrtllmConfig, open_engine\n"
        "async def main():\n"
        "    async with open_engine(TrtllmConfig(), EngineContext(name='m', path='/m')): pass\n"
        "try: asyncio.run(main())\n"
        "except ConfigurationError as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        "TensorRT-LLM is not installed in this environment: pip install tensorrt-llm" in run.stdout
    )


async def test_a_model_that_cannot_be_loaded_is_one_sentence(
    tensorrt_llm: Any, config: Any, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="cannot serve the model 'm': RuntimeError"):
        async with open_engine(config(), EngineContext(name="m", path=str(tmp_path))):
            pass


async def test_an_adapter_that_is_missing_is_one_sentence(tensorrt_llm: Any, config: Any) -> None:
    wrong = config(lora_modules={"a": "/nowhere"})
    with pytest.raises(ConfigurationError, match="cannot use the adapter 'a'"):
        async with open_engine(wrong, EngineContext(name="m", path=str(MODEL))):
            pass
    assert tensorrt_llm.LLM.opened == []


def test_versions_that_it_was_not_written_for(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigurationError, match=r"1\.2\.0 is too old"):
        _check_version("1.2.0")
    for version in ("1.3.0rc26", "1.4.0rc1"):
        _check_version(version)
    assert not caplog.records
    _check_version("1.5.0")
    assert "gateway doctor --generate" in caplog.text


async def test_what_the_model_is_is_told(start: Any) -> None:
    engine, _ = await start(max_model_len=None, max_seq_len=777)
    info = engine.info
    assert info.architecture == "Qwen3ForCausalLM"
    assert info.model_type == "qwen3"
    assert info.max_model_len == 777
    assert "<|im_start|>" in (info.chat_template or "")
    assert info.eos_token == "<|im_end|>"
    assert info.eos_token_ids == (1191, 1189)
    assert info.sampling is not None
    assert info.sampling.temperature == 0.3
