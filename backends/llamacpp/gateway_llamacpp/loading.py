"""Opens GGUF files with llama.cpp."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from gateway.sdk import (
    Capability,
    ConfigurationError,
    EmbeddingInfo,
    EngineContext,
    GatewayError,
    ModelInfo,
    Sampling,
)
from gateway.sdk.hub import human_size
from gateway.sdk.processes import TemporaryFolder
from gateway_llamacpp.chunks import decode_chunk
from gateway_llamacpp.compilation import Grammars
from gateway_llamacpp.completion import CompletionBuilder
from gateway_llamacpp.config import LlamaCppConfig
from gateway_llamacpp.diagnosis import diagnose
from gateway_llamacpp.embedding import LlamaCppEmbedder, dimensions_of
from gateway_llamacpp.engine import LlamaCppEngine
from gateway_llamacpp.gguf_header import read_metadata
from gateway_llamacpp.load_watch import loading_progress
from gateway_llamacpp.media_prompt import MediaPrompts
from gateway_llamacpp.memory import (
    available_memory,
    check_room,
    fitting_context,
    token_bytes,
    weights_of,
)
from gateway_llamacpp.model_files import TINY_MODEL, adapter_files, model_files
from gateway_llamacpp.native_route import NativeRoute
from gateway_llamacpp.reranking import LlamaCppReranker, score_pair
from gateway_llamacpp.tokenizer import LlamaCppTokenizer
from gateway_llamacpp.vocabulary import Vocabulary
from gateway_llamacpp.worker import NativeServer

logger = logging.getLogger("gateway.llamacpp")

_DEFAULT_CONTEXT = 8192
_SMALL = 64 * 2**20
"""Size of weights, in bytes, below which one thread is faster than several."""
Pooling: TypeAlias = Literal["mean", "cls", "last", "rank"]
_POOLING: dict[int, Pooling] = {0: "last", 1: "mean", 2: "cls", 3: "last"}
"""llama.cpp's pooling types. 0 is a model without pooling; its last token has attended to all others."""
_RANK = 4
"""llama.cpp's pooling type of models that rerank."""
_END_TOKENS = ("eos", "eot", "eom")
_ALWAYS_READ = 1_000_000
"""Bytes of a text that is tokenized in any case: the vocabularies of models that embed may leave out spaces, and read a word
of any length as the unknown token."""


async def load(
    config: LlamaCppConfig, context: EngineContext
) -> LlamaCppEngine | LlamaCppEmbedder | LlamaCppReranker:
    """The engine for `context.path`. Raises `ConfigurationError`, with a sentence, if it cannot be loaded."""
    adapters = adapter_files(config)
    path, projector = await model_files(config, context.path)
    metadata, vocabulary = await asyncio.to_thread(_read, path)
    pooling = pooling_of(config, metadata, path)
    if pooling is not None:
        projector = None
    weights = await asyncio.to_thread(weights_of, path)
    n_ctx = _context_length(config, context, metadata, weights)
    await asyncio.to_thread(_check_room, config, metadata, path, weights, n_ctx)
    folder = await asyncio.to_thread(TemporaryFolder, "litegate-llamacpp")
    key = secrets.token_urlsafe()
    try:
        server = await asyncio.to_thread(
            _open, path, projector, config, n_ctx, folder.path / "s", key, pooling, adapters
        )
        tokenizer = LlamaCppTokenizer(server.listening_address, key, vocabulary)
        props = await asyncio.to_thread(_props, tokenizer)
        actual = props.default_generation_settings.n_ctx
        await asyncio.to_thread(tokenizer.find_undeclared)
    except BaseException:
        folder.remove()
        raise
    info = _info(context, path, metadata, vocabulary, min(n_ctx, actual))
    if pooling == "rank":
        tokenizer.limit_prompts(min(n_ctx, actual), least_bytes=_ALWAYS_READ)
        return LlamaCppReranker(
            server,
            config,
            info=msgspec.structs.replace(info, chat_template=None),
            tokenizer=tokenizer,
            clean_up=folder.remove,
        )
    if pooling is not None:
        # The slot reserves one position, unless a text must fit into one computation.
        most = min(n_ctx, actual) - (pooling == "last")
        tokenizer.limit_prompts(most, least_bytes=_ALWAYS_READ)
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
            clean_up=folder.remove,
        )
    tokenizer.limit_prompts(min(n_ctx, actual))
    bounded = path == TINY_MODEL if config.bounded_json is None else config.bounded_json
    media = MediaPrompts(tokenizer, vocabulary, props.media_marker) if projector else None
    return LlamaCppEngine(
        server,
        info=msgspec.structs.replace(info, adapters=tuple(adapters), placeholders="none"),
        media=props.modalities.media,
        vocabulary=vocabulary,
        tokenizer=tokenizer,
        builder=CompletionBuilder(config, vocabulary, tokenizer, min(n_ctx, actual), media),
        grammars=Grammars(
            vocabulary,
            seconds=context.compile_seconds,
            bounded=bounded,
        ),
        n_parallel=config.n_parallel,
        shared_memory=config.cache_ram_mib > 0,
        clean_up=folder.remove,
    )


def pooling_of(config: LlamaCppConfig, metadata: Mapping[str, Any], path: Path) -> Pooling | None:
    """The pooling of a model that embeds or reranks; None for a generating one. Raises `ConfigurationError`."""
    said = metadata.get(f"{metadata.get('general.architecture')}.pooling_type", 0)
    if config.task == "rerank" or (
        config.task is None and said == _RANK and config.pooling is None
    ):
        return _ranking(config, path, reranks=said == _RANK)
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


def _ranking(config: LlamaCppConfig, path: Path, *, reranks: bool) -> Pooling:
    """`reranks`: whether the file says so. llama.cpp may end the process with another one."""
    if not reranks:
        raise ConfigurationError(
            f'task = "rerank" is for the file of a model that reranks (pooling type {_RANK}), and {path} is of another.'
        )
    if config.pooling is not None or config.matryoshka:
        raise ConfigurationError(
            f"pooling and matryoshka are for a model that embeds, and {path} reranks; leave them out."
        )
    if config.lora_modules:
        raise ConfigurationError(
            f"lora_modules: llamacpp applies adapters to models that generate, and {path} reranks."
        )
    return "rank"


def _read(path: Path) -> tuple[dict[str, Any], Vocabulary]:
    try:
        metadata = read_metadata(path)
        if metadata.get("general.architecture") == "clip":
            raise ConfigurationError(
                f"The file {path} is a multimodal projector: name the model's own file as path, and this one as mmproj."
            )
        return metadata, Vocabulary(metadata)
    except ValueError as error:
        raise ConfigurationError(f"llamacpp cannot load {path}: {error}.") from error
    except OSError as error:
        raise ConfigurationError(f"llamacpp cannot read {path}: {error.strerror}.") from error


def _context_length(
    config: LlamaCppConfig, context: EngineContext, metadata: Mapping[str, Any], weights: int
) -> int:
    """The context of a slot in tokens. If it is not configured, it is made to fit into the memory."""
    trained = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    limit = context.max_model_len
    if config.n_ctx is not None:
        return config.n_ctx if limit is None else min(config.n_ctx, limit)
    if limit is not None:
        return limit
    usual = min(int(trained), _DEFAULT_CONTEXT) if trained else _DEFAULT_CONTEXT
    available = available_memory()
    if available is None or _has_accelerator(config):
        return usual
    n_ctx = fitting_context(
        usual, token_bytes(metadata, config), weights, config.n_parallel, available
    )
    if n_ctx < usual:
        logger.warning(
            "%s: each of %d requests gets a context of %d tokens, because %s of memory are available; set n_ctx and n_parallel to "
            "choose otherwise",
            context.name, config.n_parallel, n_ctx, human_size(available),
        )  # fmt: skip
    return n_ctx


def _check_room(
    config: LlamaCppConfig, metadata: Mapping[str, Any], path: Path, weights: int, n_ctx: int
) -> None:
    """Raise `ConfigurationError` if the model cannot fit. With an accelerator, llama.cpp divides it by what fits."""
    if not _has_accelerator(config):
        cache = token_bytes(metadata, config) * n_ctx * config.n_parallel
        check_room(path, weights, cache, n_ctx, config.n_parallel)


def _has_accelerator(config: LlamaCppConfig) -> bool:
    """Whether layers go to a GPU."""
    import xllamacpp  # type: ignore[import-untyped, import-not-found, unused-ignore]

    devices = xllamacpp.get_device_info()
    return config.n_gpu_layers != 0 and any("GPU" in str(device["type"]) for device in devices)


def _open(
    path: Path,
    projector: Path | None,
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
    if projector is not None:
        params.mmproj.path = str(projector)
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
            "rank": xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK,
        }[pooling]
        # With separate caches per slot, texts computed together get wrong vectors ("mean" and "cls").
        params.kv_unified = True
        if pooling != "last":  # then a text is not split
            params.n_batch = params.n_ubatch = max(n_ctx, params.n_ubatch)
    # Loaded, but inactive until a request selects one.
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
    params.warmup = False  # `_warm_up` warms up
    params.verbosity = 3 if config.verbose else -1
    # Text is decoded from token ids here. llama.cpp's own text must include every token, so that lost ones can be
    # recovered.
    params.special = True
    params.ui = False
    params.endpoint_slots = False
    params.endpoint_props = False
    params.endpoint_metrics = True
    # The HTTP routes are only for this process: a private socket if available, and a secret key.
    params.api_keys = [key]
    # With a projector, each completion takes a thread.
    params.n_threads_http = 3 if projector is None else config.n_parallel + 3
    if hasattr(socket, "AF_UNIX") and os.name == "posix":
        params.hostnames = [f"{address}.sock"]
    try:
        with loading_progress(path.name, weights_of(path), logger):
            server: NativeServer = xllamacpp.Server(params)
    except (RuntimeError, ValueError) as error:
        raise ConfigurationError(
            f"llama.cpp could not load {_all_of(path, projector, adapters)}: {diagnose(path, projector)}"
        ) from error
    if projector is not None:
        server = NativeRoute(server, key)
    if pooling is None:
        _warm_up(server, path)
    elif pooling == "rank":
        _warm_up_with_score(server, path)
    else:
        _warm_up_with_vector(server, path)
    return server


def _all_of(path: Path, projector: Path | None, adapters: Mapping[str, Path]) -> str:
    names = str(path) if projector is None else f"{path}, its projector {projector}"
    if adapters:
        names += f", or one of its adapters {', '.join(map(str, adapters.values()))}"
    return names


def _warm_up_with_vector(server: NativeServer, path: Path) -> None:
    """Like `_warm_up`, by making a vector."""
    try:
        dimensions_of(server)
    except GatewayError as error:
        raise ConfigurationError(
            f"The model {path} loads, but does not embed: {error.message}."
        ) from error


def _warm_up_with_score(server: NativeServer, path: Path) -> None:
    """Like `_warm_up`, by scoring a pair."""
    try:
        score_pair(server, ("a", "b"))
    except GatewayError as error:
        raise ConfigurationError(
            f"The model {path} loads, but does not rerank: {error.message}."
        ) from error


def _warm_up(server: NativeServer, path: Path) -> None:
    """Generate one token, to warm up the model and to ensure that llama.cpp's loop has started.

    A server destroyed before its loop has started never ends, because the loop then misses the stop request.
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


class _Modalities(msgspec.Struct, frozen=True):
    vision: bool = False
    audio: bool = False

    @property
    def media(self) -> frozenset[Capability]:
        named: tuple[tuple[Capability, bool], ...] = (
            ("images", self.vision),
            ("audio", self.audio),
        )
        return frozenset(name for name, known in named if known)


class _Props(msgspec.Struct):
    default_generation_settings: _Settings
    """`n_ctx`: the actual context length of a slot; llama.cpp may have rounded it or fitted it to the memory."""
    media_marker: str = ""
    """Stands for an image in a prompt's text. Random for each process."""
    modalities: _Modalities = _Modalities()


def _props(tokenizer: LlamaCppTokenizer) -> _Props:
    return msgspec.json.decode(tokenizer.request("GET", "/props"), type=_Props)


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
        tool_chat_template=metadata.get("tokenizer.chat_template.tool_use"),
        bos_token=text(token("bos")),
        eos_token=text(token("eos")),
        eos_token_ids=tuple(ends),
        description=metadata.get("general.description") or metadata.get("general.name"),
        sampling=_recommended(context, metadata),
    )


def _recommended(context: EngineContext, metadata: Mapping[str, Any]) -> Sampling | None:
    """Recommended sampling in the file, under llama.cpp's keys. The tiny model uses greedy sampling."""
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
