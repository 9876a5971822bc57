"""Opens the engine: discovers the replicas, identifies one, loads its tokenizer and monitors them until it is
closed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal

import msgspec

from gateway.sdk import ConfigurationError, Engine, EngineContext, ModelInfo
from gateway_remote.assets import Assets, load_assets
from gateway_remote.client import ReplicaClient
from gateway_remote.compiling import PreparedStructures
from gateway_remote.config import RemoteConfig
from gateway_remote.connecting import connections, monitored
from gateway_remote.dialects import DIALECTS, Dialect, ServedModelInfo
from gateway_remote.discovery import Discovery, discovery, is_address
from gateway_remote.embedding import RemoteEmbedder
from gateway_remote.engine import RemoteEngine
from gateway_remote.failures import ReplicaFailure, UnknownServer
from gateway_remote.health import HealthMonitor
from gateway_remote.identify import Identity, identify
from gateway_remote.reranking import RemoteReranker

VLLM_JSON_WHITESPACE = 64
logger = logging.getLogger("gateway.remote")

_BETWEEN_TRIES = 0.5


@asynccontextmanager
async def open_remote(config: RemoteConfig, context: EngineContext) -> AsyncIterator[Engine]:
    """The engine of one model.

    Raises `ConfigurationError` if no replica comes up within `start_timeout` seconds, or a required property is neither
    reported nor configured.
    """
    found = discovery(config, context.path)
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(connections(config, context.name, key=config.key()))
        client, pool = made.client, made.pool
        identity = _adapted(await _first_answer(found, client, config, context), config, context)
        pool.update(await found.find())
        task = config.task or _task(identity)
        if task == "rerank":
            info = _reranker_info(context, config, identity)
            monitor = HealthMonitor(pool, client, config, found, made.stalls)
            await stack.enter_async_context(monitored(monitor))
            yield RemoteReranker(
                config=config,
                info=info,
                model=identity.model,
                truncates=identity.dialect in ("vllm", "vllm-generate"),
                client=client,
                pool=pool,
            )
            return
        assets = await asyncio.to_thread(_assets, config, context, identity)
        dialect = _dialect(config, context, identity, assets, stack)
        monitor = HealthMonitor(pool, client, config, found, made.stalls)
        await stack.enter_async_context(monitored(monitor))
        info = _info(context, dialect, identity, assets)
        if task == "embed":
            yield RemoteEmbedder(
                config=config,
                info=info,
                served=dialect.served,
                cuts=identity.dialect in ("vllm", "vllm-generate", "sglang"),
                tokenizer=assets.tokenizer,
                client=client,
                pool=pool,
            )
            return
        yield RemoteEngine(
            config=config,
            info=info,
            dialect=dialect,
            tokenizer=assets.tokenizer,
            client=client,
            pool=pool,
        )


def _task(identity: Identity) -> Literal["generate", "embed", "rerank"]:
    if identity.reranks:
        return "rerank"
    return "embed" if identity.embeds else "generate"


def _reranker_info(context: EngineContext, config: RemoteConfig, identity: Identity) -> ModelInfo:
    """Needs no tokenizer. Raises `ConfigurationError` for servers whose rerank route has another shape, or is missing."""
    title = DIALECTS[identity.dialect].title
    if identity.dialect not in ("vllm", "vllm-generate", "llamacpp"):
        raise ConfigurationError(
            f"The model {context.name!r} is to rerank (task), and its server is {title}; of servers, vLLM and llama-server "
            "can be used for that."
        )
    limits = (context.max_model_len, config.max_model_len, identity.max_model_len)
    return ModelInfo(
        name=context.name,
        engine="remote",
        path=identity.source,
        max_model_len=min((limit for limit in limits if limit is not None), default=None),
        description=f"{title}: {identity.model}",
        adapters=identity.adapters,
    )


def _adapted(identity: Identity, config: RemoteConfig, context: EngineContext) -> Identity:
    """Add the configured adapters. Raises `ConfigurationError` for servers without adapter support."""
    if not config.adapters:
        return identity
    if "adapters" not in DIALECTS[identity.dialect].capabilities:
        raise ConfigurationError(
            f"The model {context.name!r} has adapters, but {DIALECTS[identity.dialect].title} cannot select them by name."
        )
    names = dict.fromkeys((*identity.adapters, *config.adapters))
    return msgspec.structs.replace(identity, adapters=tuple(names))


_WITHOUT_TOKENIZER = (
    'Without a tokenizer here, use the server\'s own API of OpenAI with engine = "openai" (`gateway serve '
    "http://host:port/v1#NAME`, with the model's name there)."
)


async def _first_answer(
    found: Discovery, client: ReplicaClient, config: RemoteConfig, context: EngineContext
) -> Identity:
    """Model information from the first replica that responds. Raises `ConfigurationError` if none does in time, or if all that
    are there are servers of an unknown kind."""
    give_up = time.monotonic() + config.start_timeout
    logged = False
    while True:
        reasons: list[str] = []
        unknown: list[UnknownServer] = []
        for where in await found.find():
            try:
                return await identify(client, where, dialect=config.dialect, model=config.model)
            except ReplicaFailure as failure:
                reasons.append(f"{where}: {failure}")
                if isinstance(failure, UnknownServer):
                    unknown.append(failure)
        if unknown and len(unknown) == len(reasons):
            raise ConfigurationError(
                f"The server of the model {context.name!r} is none of vLLM, SGLang, TensorRT-LLM and llama.cpp ({reasons[0]}). "
                'Any server with OpenAI\'s API is used with engine = "openai" (`gateway serve https://host/v1#NAME`, with the '
                "model's name there). If it is one of the four, set dialect."
            )
        if time.monotonic() >= give_up:
            why = "; ".join((*reasons, *found.problems)) or "there are none"
            raise ConfigurationError(f"No engine of the model {context.name!r} answers ({why}).")
        if not logged:
            logged = True
            why = "; ".join((*reasons, *found.problems)) or "there are none"
            logger.warning(
                "no engine of the model %r answers yet (%s); waiting up to %g s for one",
                context.name,
                why,
                config.start_timeout,
            )
        await asyncio.sleep(_BETWEEN_TRIES)


def _assets(config: RemoteConfig, context: EngineContext, identity: Identity) -> Assets:
    named = config.tokenizer or (None if is_address(context.path) else context.path)
    source = named or identity.source
    if source is None:
        raise ConfigurationError(
            f"The model {context.name!r}: its engine does not say what it has loaded; set `tokenizer` to a "
            f"tokenizer.json, a folder with one, or a hub id. {_WITHOUT_TOKENIZER}"
        )
    try:
        return load_assets(source)
    except ConfigurationError as error:
        if named:
            raise
        raise ConfigurationError(
            f"The engine of the model {context.name!r} says that it has loaded {source!r}. {error} {_WITHOUT_TOKENIZER}"
        ) from error


def _dialect(
    config: RemoteConfig,
    context: EngineContext,
    identity: Identity,
    assets: Assets,
    stack: AsyncExitStack,
) -> Dialect:
    limits = (context.max_model_len, config.max_model_len, identity.max_model_len)
    known = [limit for limit in limits if limit is not None]
    kind = DIALECTS[identity.dialect]
    if not known and kind.needs_length:
        raise ConfigurationError(
            f"The engine of the model {context.name!r} does not say how long its context is; set max_model_len."
        )
    served = ServedModelInfo(
        model=identity.model,
        max_model_len=min(known, default=None),
        vocabulary=max(len(assets.tokenizer.bytes_of), assets.vocab_size or 0),
        adapters=identity.adapters,
    )
    ending = frozenset(assets.eos_token_ids)
    special = assets.tokenizer.special
    whitespace = config.max_json_whitespace
    if identity.dialect in ("vllm", "vllm-generate"):
        whitespace = whitespace or VLLM_JSON_WHITESPACE
    settings = {
        "special": dict(special),
        "ending": sorted(ending),
        "max_json_whitespace": whitespace,
        "vocabulary": served.vocabulary,
    }
    structures = PreparedStructures(identity.dialect, settings, seconds=context.compile_seconds)
    stack.push_async_callback(structures.compiler.close)
    dialect = kind(served, assets.tokenizer, structures, tokens_only=config.tokens_only)
    if not config.tokens_only:  # prompts with images are text
        dialect.capabilities |= identity.media
    return dialect


def _info(
    context: EngineContext, dialect: Dialect, identity: Identity, assets: Assets
) -> ModelInfo:
    return ModelInfo(
        name=context.name,
        engine="remote",
        architecture=assets.architecture,
        model_type=assets.model_type,
        path=identity.source,
        max_model_len=dialect.served.max_model_len,
        chat_template=assets.chat_template or identity.chat_template,
        tool_chat_template=(
            assets.tool_chat_template if assets.chat_template else identity.tool_chat_template
        ),
        bos_token=assets.bos_token or identity.bos_token,
        eos_token=assets.eos_token or identity.eos_token,
        eos_token_ids=assets.eos_token_ids,
        description=f"{dialect.title}: {identity.model}",
        adapters=identity.adapters,
        placeholders="none" if identity.dialect == "llamacpp" else "template",
    )
