"""Opening a GGUF file with llama.cpp."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from gateway.errors import ConfigurationError, GatewayError
from gateway.hookspecs import EngineContext
from gateway.protocols import EmbeddingInfo, ModelInfo, Sampling
from gateway_llamacpp.chunks import decode_chunk
from gateway_llamacpp.completion import CompletionBuilder
from gateway_llamacpp.config import LlamaCppConfig
from gateway_llamacpp.embedding import LlamaCppEmbedder, dimensions_of
from gateway_llamacpp.engine import LlamaCppEngine
from gateway_llamacpp.gguf_header import read_metadata
from gateway_llamacpp.tokenizer import LlamaCppTokenizer
from gateway_llamacpp.vocabulary import Vocabulary
from gateway_llamacpp.worker import NativeServer

TINY_MODEL = Path(__file__).parent / "models" / "tiny-qwen3.gguf"
_DEFAULT_CONTEXT = 8192
_SMALL = 64 * 2**20
"""Bytes of weights below which one thread is faster than several."""
Pooling: TypeAlias = Literal["mean", "cls", "last"]
_POOLING: dict[int, Pooling] = {0: "last", 1: "mean", 2: "cls", 3: "last"}
"""llama.cpp's numbers; 0 is a model that was not made to embed, whose last token has read all others."""
_END_TOKENS = ("eos", "eot", "eom")


async def load(config: LlamaCppConfig, context: EngineContext) -> LlamaCppEngine | LlamaCppEmbedder:
    """The engine for `context.path`. Raises `ConfigurationError`, with a sentence, for what cannot be loaded."""
    path = model_file(context.path)
    adapters = adapter_files(config)
    metadata, vocabulary = await asyncio.to_thread(_read, path)
    pooling = pooling_of(config, metadata, path)
    n_ctx = _context_length(config, context, metadata)
    folder = Path(tempfile.mkdtemp(prefix="litegate-"))
    key = secrets.token_urlsafe()
    try:
        server = await asyncio.to_thread(
            _open, path, config, n_ctx, folder / "s", key, pooling, adapters
        )
        tokenizer = LlamaCppTokenizer(server.listening_address, key, vocabulary)
        actual = await asyncio.to_thread(_slot_context, tokenizer)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    info = _info(context, path, metadata, vocabulary, min(n_ctx, actual))
    if pooling is not None:
        # The slot keeps one place free, but where a text has to fit into one computation.
        most = min(n_ctx, actual) - (pooling == "last")
        return LlamaCppEmbedder(
            server,
            config,
            info=msgspec.structs.replace(info, max_model_len=most, chat_template=None),
            embedding=EmbeddingInfo(
                dimensions=await asyncio.to_thread(dimensions_of, server),
                shorter=config.matryoshka,
                max_input_tokens=most,
            ),
            vocabulary=vocabulary,
            tokenizer=tokenizer,
            clean_up=lambda: shutil.rmtree(folder, ignore_errors=True),
        )
    tokenizer.refuse_beyond(min(n_ctx, actual))
    return LlamaCppEngine(
        server,
        info=msgspec.structs.replace(info, adapters=tuple(adapters)),
        vocabulary=vocabulary,
        tokenizer=tokenizer,
        builder=CompletionBuilder(config, vocabulary, tokenizer, min(n_ctx, actual)),
        n_parallel=config.n_parallel,
        clean_up=lambda: shutil.rmtree(folder, ignore_errors=True),
    )


def model_file(path: str | None) -> Path:
    """The GGUF file that `path` means: itself, the one (or first of the split ones) in a folder; None: the tiny model."""
    if path is None:
        return TINY_MODEL
    found = Path(path).expanduser()
    if found.is_dir():
        files = sorted(found.glob("*.gguf"))
        first = [file for file in files if "-00001-of-" in file.name] or files
        if len(first) != 1:
            raise ConfigurationError(
                f"The folder {path} has {len(first)} GGUF models; name the file that llamacpp shall load."
            )
        return first[0]
    if not found.is_file():
        raise ConfigurationError(
            f"There is no file {path}; llamacpp loads a GGUF file from this machine, and downloads nothing."
        )
    return found


def adapter_files(config: LlamaCppConfig) -> dict[str, Path]:
    """The LoRA adapters, each of which must be a file. Raises `ConfigurationError`."""
    files = {name: Path(path).expanduser() for name, path in config.lora_modules.items()}
    for name, file in files.items():
        if not file.is_file():
            raise ConfigurationError(
                f"lora_modules: there is no file {file} for the adapter '{name}'; llama.cpp takes adapters as GGUF files."
            )
    return files


def pooling_of(config: LlamaCppConfig, metadata: Mapping[str, Any], path: Path) -> Pooling | None:
    """How vectors are made of the model's output; None: it generates. Raises `ConfigurationError`."""
    said = metadata.get(f"{metadata.get('general.architecture')}.pooling_type", 0)
    embeds = said != 0 if config.task is None else config.task == "embed"
    if not embeds:
        if config.pooling is not None or config.matryoshka:
            raise ConfigurationError(
                f'pooling and matryoshka are for a model that embeds; set task = "embed" for {path}, or leave them out.'
            )
        return None
    if config.lora_modules:
        raise ConfigurationError(
            f"lora_modules: llamacpp applies adapters to models that generate, and {path} embeds."
        )
    if config.pooling is not None:
        return config.pooling
    if said not in _POOLING:
        raise ConfigurationError(
            f"The file {path} is of a model that ranks, and makes no vectors; set pooling to use it all the same."
        )
    return _POOLING[said]


def _read(path: Path) -> tuple[dict[str, Any], Vocabulary]:
    try:
        metadata = read_metadata(path)
        return metadata, Vocabulary(metadata)
    except ValueError as error:
        raise ConfigurationError(f"llamacpp cannot load {path}: {error}.") from error
    except OSError as error:
        raise ConfigurationError(f"llamacpp cannot read {path}: {error.strerror}.") from error


def _context_length(
    config: LlamaCppConfig, context: EngineContext, metadata: Mapping[str, Any]
) -> int:
    trained = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    limit = context.max_model_len
    if config.n_ctx is not None:
        return config.n_ctx if limit is None else min(config.n_ctx, limit)
    if limit is not None:
        return limit
    return min(int(trained), _DEFAULT_CONTEXT) if trained else _DEFAULT_CONTEXT


def _open(
    path: Path,
    config: LlamaCppConfig,
    n_ctx: int,
    address: Path,
    key: str,
    pooling: Pooling | None,
    adapters: Mapping[str, Path],
) -> NativeServer:
    import xllamacpp  # type: ignore[import-untyped, import-not-found, unused-ignore]

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_parallel = config.n_parallel
    # llama.cpp divides the context among the slots.
    params.n_ctx = n_ctx * config.n_parallel
    params.n_batch = config.n_batch
    params.n_ubatch = min(config.n_ubatch, config.n_batch)
    if pooling is not None:
        params.embedding = True
        params.pooling_type = {
            "mean": xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN,
            "cls": xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_CLS,
            "last": xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_LAST,
        }[pooling]
        # With a cache for each slot, texts that are computed together get wrong vectors ("mean" and "cls").
        params.kv_unified = True
        if pooling != "last":  # a text is not cut in pieces then
            params.n_batch = params.n_ubatch = max(n_ctx, params.n_ubatch)
    # Off, but where a request asks for one.
    params.lora_adapters = [
        xllamacpp.CommonAdapterLoraInfo(str(file), 0.0) for file in adapters.values()
    ]
    n_threads = config.n_threads
    if n_threads is None and path.stat().st_size < _SMALL:
        n_threads = 1
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.poll = config.poll
        if n_threads is not None:
            cpu.n_threads = n_threads
    if config.n_gpu_layers is not None:
        params.n_gpu_layers = config.n_gpu_layers
    params.flash_attn_type = {
        "auto": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_AUTO,
        "on": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED,
        "off": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    }[config.flash_attention]
    params.cache_type_k = xllamacpp.ggml_type[f"GGML_TYPE_{config.cache_type_k.upper()}"]
    params.cache_type_v = xllamacpp.ggml_type[f"GGML_TYPE_{config.cache_type_v.upper()}"]
    params.cache_ram_mib = config.cache_ram_mib
    params.warmup = False  # `_prove` does that
    params.verbosity = 3 if config.verbose else -1
    # Text is made from token ids here; llama.cpp's own must then show every token, so that lost ones can be told.
    params.special = True
    params.ui = False
    params.endpoint_slots = False
    params.endpoint_props = False
    # The routes are for this process alone: a private socket where there are such, and a secret key.
    params.api_keys = [key]
    params.n_threads_http = 2
    if hasattr(socket, "AF_UNIX") and os.name == "posix":
        params.hostnames = [f"{address}.sock"]
    try:
        server: NativeServer = xllamacpp.Server(params)
    except (RuntimeError, ValueError) as error:
        raise ConfigurationError(
            f"llama.cpp could not load {_all_of(path, adapters)}: {error} Set `verbose = true` to read its log."
        ) from error
    if pooling is None:
        _prove(server, path)
    else:
        _prove_vectors(server, path)
    return server


def _all_of(path: Path, adapters: Mapping[str, Path]) -> str:
    names = ", ".join(map(str, adapters.values()))
    return f"{path}, or one of its adapters {names}" if adapters else str(path)


def _prove_vectors(server: NativeServer, path: Path) -> None:
    """As `_prove`, with a vector."""
    try:
        dimensions_of(server)
    except GatewayError as error:
        raise ConfigurationError(
            f"The model {path} loads, but does not embed: {error.message}."
        ) from error


def _prove(server: NativeServer, path: Path) -> None:
    """Generate one token: it warms the model up, and it shows that llama.cpp's loop has begun.

    A server that is destroyed before its loop has begun never ends: the loop then overlooks that it was told to.
    """
    failures: list[str] = []

    def look(data: bytes) -> bool:
        error = decode_chunk(data).error
        if error is not None:
            failures.append(error.message)
        return False

    server.handle_completions(b'{"prompt":[0],"n_predict":1,"cache_prompt":false}', look)
    if failures:
        raise ConfigurationError(f"The model {path} loads, but does not generate: {failures[0]}.")


class _Settings(msgspec.Struct):
    n_ctx: int


class _Props(msgspec.Struct):
    default_generation_settings: _Settings


def _slot_context(tokenizer: LlamaCppTokenizer) -> int:
    """How many tokens a slot really has: llama.cpp may have rounded, or fitted it to the memory."""
    props = msgspec.json.decode(tokenizer.request("GET", "/props"), type=_Props)
    return props.default_generation_settings.n_ctx


def _info(
    context: EngineContext,
    path: Path,
    metadata: Mapping[str, Any],
    vocabulary: Vocabulary,
    max_model_len: int,
) -> ModelInfo:
    def token(name: str) -> int | None:
        index = metadata.get(f"tokenizer.ggml.{name}_token_id")
        return index if index is not None and index < len(vocabulary) else None

    def text(index: int | None) -> str | None:
        return None if index is None else vocabulary.text_of[index]

    ends = dict.fromkeys(index for name in _END_TOKENS if (index := token(name)) is not None)
    architecture = metadata.get("general.architecture")
    return ModelInfo(
        name=context.name,
        engine="llamacpp",
        architecture=architecture,
        model_type=architecture,
        path=str(path),
        max_model_len=max_model_len,
        chat_template=metadata.get("tokenizer.chat_template"),
        bos_token=text(token("bos")),
        eos_token=text(token("eos")),
        eos_token_ids=tuple(ends),
        description=metadata.get("general.description") or metadata.get("general.name"),
        sampling=_recommended(context, metadata),
    )


def _recommended(context: EngineContext, metadata: Mapping[str, Any]) -> Sampling | None:
    """What the file recommends under llama.cpp's keys; the tiny model knows what it knows by heart, and is greedy."""
    if context.path is None:
        return Sampling(temperature=0.0)
    names = {
        "temp": "temperature",
        "top_k": "top_k",
        "top_p": "top_p",
        "min_p": "min_p",
        "penalty_repeat": "repetition_penalty",
    }
    found = {
        field: metadata[key]
        for name, field in names.items()
        if (key := f"general.sampling.{name}") in metadata
    }
    return Sampling(**found) if found else None
