"""Files that cannot be loaded, memory that does not suffice, and how far a load is."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.sdk import ConfigurationError, EngineContext
from gateway_llamacpp import loading, open_llamacpp
from gateway_llamacpp.config import LlamaCppConfig
from gateway_llamacpp.memory import (
    available_memory,
    check_room,
    fitting_context,
    token_bytes,
    total_memory,
    weights_of,
)
from gateway_llamacpp.model_files import TINY_MODEL, model_file, model_files

pytestmark = pytest.mark.anyio
GB = 10**9


async def failure(path: Path | None, **options: Any) -> str:
    config = LlamaCppConfig(**{"n_ctx": 256, "n_parallel": 1, **options})
    context = EngineContext(name="m", path=None if path is None else str(path))
    with pytest.raises(ConfigurationError) as caught:
        async with open_llamacpp(config, context):
            pass
    said = str(caught.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("length", "sentence"),
    [
        (0, "it is too short to be a GGUF file"),
        (1000, "its metadata ends in the middle"),
        (2_000_000, r"could not load \S+: tensor '\S+' data is not within the file bounds.* The file is incomplete: copy or download it again\."),
        (-1, r"The file is incomplete: copy or download it again\."),
    ],
)  # fmt: skip
async def test_a_truncated_file(tmp_path: Path, length: int, sentence: str) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(TINY_MODEL.read_bytes()[:length])
    assert re.search(sentence, await failure(file))


def with_architecture(name: bytes) -> bytes:
    assert len(name) == 5
    data = TINY_MODEL.read_bytes()
    value = b"\x05" + bytes(7)
    return data.replace(value + b"qwen3", value + name, 1).replace(b"qwen3.", name + b".")


async def test_an_architecture_that_llama_cpp_does_not_know(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(with_architecture(b"qwenX"))
    assert await failure(file) == (
        f"llama.cpp could not load {file}: unknown model architecture: 'qwenX'. A newer version of xllamacpp may know it."
    )


async def test_a_projector_is_no_model(tmp_path: Path) -> None:
    from gguf import GGUFWriter

    file = tmp_path / "mmproj-F16.gguf"
    writer = GGUFWriter(file, "clip")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert "is a multimodal projector: name the model's own file as path" in await failure(file)
    assert "mmproj: there is no file" in await failure(None, mmproj="/absent.gguf")
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    assert model_file(str(tmp_path)) == tmp_path / "m.gguf", "the projector is not a second model"
    config = LlamaCppConfig(mmproj=str(file))
    assert await model_files(config, None) == (TINY_MODEL, file)


async def test_a_context_that_no_memory_holds(tmp_path: Path) -> None:
    said = await failure(None, n_ctx=4_000_000, n_parallel=256)
    assert re.fullmatch(
        r"\S+ needs about [\d.]+ TB of memory \(3\.9 MB of weights, [\d.]+ TB for the context of 256 requests of 4000000 tokens\), "
        r"and this machine has [\d.]+ \wB: lower max_model_len, n_ctx or n_parallel, or choose a smaller quantization or model\.",
        said,
    )


async def test_the_default_context_fits_into_the_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loading, "available_memory", lambda: 260_000_000)
    context = EngineContext(name="m", path=None)
    with caplog.at_level(logging.WARNING):
        async with open_llamacpp(LlamaCppConfig(), context) as engine:
            assert engine.info.max_model_len == 5632
    assert (
        "m: each of 8 requests gets a context of 5632 tokens, because 260.0 MB of memory are"
        in caplog.text
    )


QWEN3_8B = {
    "general.architecture": "qwen3",
    "qwen3.block_count": 36,
    "qwen3.embedding_length": 4096,
    "qwen3.attention.head_count": 32,
    "qwen3.attention.head_count_kv": 8,
    "qwen3.attention.key_length": 128,
    "qwen3.attention.value_length": 128,
}


def test_the_size_of_a_token_in_the_cache() -> None:
    assert token_bytes(QWEN3_8B, LlamaCppConfig()) == 36 * 8 * 256 * 2
    quantized = LlamaCppConfig(cache_type_k="q8_0", cache_type_v="q4_0")
    assert token_bytes(QWEN3_8B, quantized) == 36 * 8 * 128 * (34 + 18) / 32
    without_lengths = {k: v for k, v in QWEN3_8B.items() if "length" not in k or "embedding" in k}
    assert token_bytes(without_lengths, LlamaCppConfig()) == 36 * 8 * 256 * 2
    by_layer = QWEN3_8B | {"qwen3.attention.head_count_kv": [8, 0] * 18}
    assert token_bytes(by_layer, LlamaCppConfig()) == 18 * 8 * 256 * 2
    for gone in ("block_count", "embedding_length", "attention.head_count"):
        other = QWEN3_8B | {f"qwen3.{gone}": None, "qwen3.attention.head_count_kv": None}
        assert token_bytes(other, LlamaCppConfig()) == 0
    assert token_bytes({}, LlamaCppConfig()) == 0


def test_the_context_that_fits() -> None:
    per_token = 147_456
    assert fitting_context(8192, per_token, 5 * GB, 8, 64 * GB) == 8192
    assert fitting_context(8192, per_token, 5 * GB, 8, 16 * GB) == 5120
    assert fitting_context(8192, per_token, 5 * GB, 8, 8 * GB) == 2048
    assert fitting_context(8192, per_token, 5 * GB, 1, 16 * GB) == 8192
    assert fitting_context(1024, per_token, 5 * GB, 8, 8 * GB) == 1024
    assert fitting_context(8192, 0, 5 * GB, 8, 1) == 8192


def test_all_parts_of_a_split_model_count(tmp_path: Path) -> None:
    for part in (1, 2, 3):
        (tmp_path / f"m-0000{part}-of-00003.gguf").write_bytes(b"x" * part)
    (tmp_path / "n-00001-of-00003.gguf").write_bytes(b"x" * 100)
    assert weights_of(tmp_path / "m-00001-of-00003.gguf") == 6


def test_how_much_memory_there_is() -> None:
    total, available = total_memory(), available_memory()
    assert total is not None
    check_room(Path("m"), 1000, 1000, 1, 1)
    with pytest.raises(ConfigurationError, match="and this machine has"):
        check_room(Path("m"), total, 1, 1, 1)
    if sys.platform == "linux":
        assert available is not None
        assert 0 < available <= total


GROWING = """
import logging, subprocess, sys, time
from gateway_llamacpp.load_watch import loading_progress
logging.basicConfig(level=logging.INFO)
held = []
with loading_progress("m.gguf", 300_000_000, logging.getLogger()):
    while len(held) < 100:
        held.append(b"x" * 3_000_000)
        time.sleep(0.05)
print("loaded")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_load_shows_how_the_memory_grows() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GROWING], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "loaded\n"
    percents = [
        int(each) for each in re.findall(r"loading m\.gguf: (\d+) % of 300\.0 MB", done.stderr)
    ]
    assert percents == sorted(percents)
    assert len(percents) >= 3
    assert "Traceback" not in done.stderr
