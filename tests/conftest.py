"""Fixtures that every test may use."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.error import URLError
from urllib.request import urlopen

import pytest

MODELS = Path(__file__).parent / "models"
GGUF = Path(__file__).parents[1] / "backends/llamacpp/gateway_llamacpp/models/tiny-qwen3.gguf"
VLLM_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TORCH_COMPILE_DISABLE": "1",
}
VLLM_SECONDS = 240
"""How long vLLM's server may take to start, on a machine that has others to serve."""


@pytest.fixture
def anyio_backend() -> str:
    """Asynchronous tests (`pytestmark = pytest.mark.anyio`) run on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def llama_server() -> Iterator[str]:
    """The address of a real llama-server with the tiny model, which xllamacpp runs in this process."""
    yield from run_llama_server(embeds=False)


@pytest.fixture(scope="session")
def llama_embedding_server() -> Iterator[str]:
    """The same with the model as one that embeds."""
    yield from run_llama_server(embeds=True)


def run_llama_server(*, embeds: bool) -> Iterator[str]:
    xllamacpp = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(GGUF)
    params.n_parallel = 4
    params.n_ctx = 4 * 1024
    params.warmup = False
    params.verbosity = -1
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    if embeds:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
        # With a cache for each slot, texts that are computed together get wrong vectors.
        params.kv_unified = True
    server = xllamacpp.Server(params)
    yield server.listening_address
    del server


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real vLLM server with the tiny model: one process for the whole run, some half a minute to start.

    For tests that skip where vLLM is not installed.
    """
    yield from run_vllm_server(
        tmp_path_factory, "--enable-prompt-tokens-details", "--enable-scale-out"
    )


@pytest.fixture(scope="session")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a LoRA adapter with which the tiny model talks noise."""
    folder = tmp_path_factory.mktemp("adapters") / "noise"
    write_noise_adapter(folder)
    return folder


@pytest.fixture(scope="module")
def vllm_adapter_server(tmp_path_factory: pytest.TempPathFactory, noise: Path) -> Iterator[str]:
    """The same with an adapter `listed`, and with `noise`, which is loaded when it is first asked for."""
    yield from run_vllm_server(
        tmp_path_factory,
        "--enable-scale-out", "--enable-lora", "--max-loras", "2", "--lora-modules", f"listed={noise}",
        environment={
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            "VLLM_PLUGINS": "lora_filesystem_resolver",
            "VLLM_LORA_RESOLVER_CACHE_DIR": str(noise.parent),
        },
    )  # fmt: skip


@pytest.fixture(scope="module")
def vllm_embedding_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same with the model as one that embeds, and has shorter vectors."""
    yield from run_vllm_server(
        tmp_path_factory,
        "--runner", "pooling", "--convert", "embed", "--hf-overrides", '{"is_matryoshka": true}',
    )  # fmt: skip


def run_vllm_server(
    tmp_path_factory: pytest.TempPathFactory,
    *arguments: str,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(MODELS / "tiny-qwen3"),
        "--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--max-model-len", "1024",
        "--max-num-seqs", "16", "--seed", "0", *arguments,
    ]  # fmt: skip
    log = tmp_path_factory.mktemp("vllm") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            env={**os.environ, **VLLM_ENVIRONMENT, **environment},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        give_up = time.monotonic() + VLLM_SECONDS
        while True:
            assert process.poll() is None, log.read_text()[-3000:]
            try:
                urlopen(f"{url}/health", timeout=2).close()
                break
            except (URLError, OSError):
                assert time.monotonic() < give_up, "vLLM did not start: " + log.read_text()[-3000:]
                time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def write_noise_adapter(folder: Path) -> None:
    """A LoRA adapter of large random weights: with it the trained model writes any token after any other."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    save_file = pytest.importorskip("safetensors.torch").save_file
    model = json.loads((MODELS / "tiny-qwen3" / "config.json").read_text())
    hidden, rank = model["hidden_size"], 8
    heads = model["num_attention_heads"] * model["head_dim"]
    random = torch.Generator().manual_seed(0)
    weights = {}
    for layer in range(model["num_hidden_layers"]):
        for name, width in (
            ("self_attn.o_proj", heads),
            ("mlp.down_proj", model["intermediate_size"]),
        ):
            key = f"base_model.model.model.layers.{layer}.{name}"
            weights[f"{key}.lora_A.weight"] = torch.randn(rank, width, generator=random)
            weights[f"{key}.lora_B.weight"] = torch.randn(hidden, rank, generator=random)
    folder.mkdir()
    save_file(weights, folder / "adapter_model.safetensors")
    adapter = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 64,
        "target_modules": ["o_proj", "down_proj"],
        "bias": "none",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(MODELS / "tiny-qwen3"),
    }
    (folder / "adapter_config.json").write_text(json.dumps(adapter))
