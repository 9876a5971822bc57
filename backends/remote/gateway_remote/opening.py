"""Opening the engine: find the replicas, ask one what it is, load its tokenizer, take care of them until the end."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import msgspec

from gateway.errors import ConfigurationError
from gateway.hookspecs import EngineContext
from gateway.protocols import Engine, ModelInfo
from gateway_remote.assets import Assets, load_assets
from gateway_remote.client import Client, headers_of, tls_context
from gateway_remote.config import RemoteConfig
from gateway_remote.dialects import DIALECTS, Dialect, Served
from gateway_remote.discovery import Discovery, discovery, is_address
from gateway_remote.embedding import RemoteEmbedder
from gateway_remote.engine import RemoteEngine
from gateway_remote.failures import ReplicaFailure
from gateway_remote.health import Caretaker
from gateway_remote.identify import Identity, identify
from gateway_remote.pool import Pool
from gateway_remote.stalls import StallWatch
from gateway_remote.structure import (
    LlamaCppStructures,
    SglangStructures,
    Structures,
    TrtllmStructures,
    VllmStructures,
)

VLLM_JSON_WHITESPACE = 64
logger = logging.getLogger("gateway.remote")

_BETWEEN_TRIES = 0.5


@asynccontextmanager
async def open_remote(config: RemoteConfig, context: EngineContext) -> AsyncIterator[Engine]:
    """The engine of one model. Raises `ConfigurationError` if no replica comes up in `start_timeout` seconds, or where
    something about them is not known and not configured."""
    found = discovery(config, context.path)
    stalls = StallWatch(config.stall_timeout, time.monotonic)
    try:
        tls = await asyncio.to_thread(tls_context, config.ca_file, verify=config.tls_verify)
    except OSError as error:
        raise ConfigurationError(f"ca_file {config.ca_file}: {error.strerror or error}.") from error
    async with AsyncExitStack() as stack:
        client = Client(
            stalls,
            headers=headers_of(config.headers, config.key()),
            connect_timeout=config.connect_timeout,
            tls=tls,
            clock=time.monotonic,
        )
        stack.callback(client.close)
        pool = Pool(
            context.name,
            config.pool_settings(),
            clock=time.monotonic,
            # Chance spreads load here; nothing secret depends on it.
            rng=random.Random(),  # noqa: S311
        )
        stack.callback(pool.close)
        identity = _adapted(await _first_answer(found, client, config, context), config, context)
        pool.update(await found.find())
        assets = await asyncio.to_thread(_assets, config, context, identity)
        dialect = _dialect(config, context, identity, assets)
        caretaker = Caretaker(pool, client, config, found, stalls)
        await caretaker.first_look()
        task = asyncio.create_task(caretaker.run())
        stack.push_async_callback(_end, task)
        info = _info(context, dialect, identity, assets)
        if identity.embeds if config.task is None else config.task == "embed":
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


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _adapted(identity: Identity, config: RemoteConfig, context: EngineContext) -> Identity:
    """With the adapters that the configuration knows of. Raises `ConfigurationError` for servers that have none."""
    if not config.adapters:
        return identity
    if "adapters" not in DIALECTS[identity.dialect].capabilities:
        raise ConfigurationError(
            f"The model {context.name!r} has adapters, which are not asked for by name of {DIALECTS[identity.dialect].title}."
        )
    names = dict.fromkeys((*identity.adapters, *config.adapters))
    return msgspec.structs.replace(identity, adapters=tuple(names))


async def _first_answer(
    found: Discovery, client: Client, config: RemoteConfig, context: EngineContext
) -> Identity:
    """What the first replica that answers says of itself."""
    give_up = time.monotonic() + config.start_timeout
    told = False
    while True:
        reasons: list[str] = []
        for where in await found.find():
            try:
                return await identify(client, where, dialect=config.dialect, model=config.model)
            except ReplicaFailure as failure:
                reasons.append(f"{where}: {failure}")
        if time.monotonic() >= give_up:
            why = "; ".join((*reasons, *found.problems)) or "there are none"
            raise ConfigurationError(f"No engine of the model {context.name!r} answers ({why}).")
        if not told:
            told = True
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
            "tokenizer.json, a folder with one, or a hub id."
        )
    try:
        return load_assets(source)
    except ConfigurationError as error:
        if named:
            raise
        raise ConfigurationError(
            f"The engine of the model {context.name!r} says that it has loaded {source!r}. {error}"
        ) from error


def _dialect(
    config: RemoteConfig, context: EngineContext, identity: Identity, assets: Assets
) -> Dialect:
    limits = (context.max_model_len, config.max_model_len, identity.max_model_len)
    known = [limit for limit in limits if limit is not None]
    kind = DIALECTS[identity.dialect]
    if not known and kind.needs_length:
        raise ConfigurationError(
            f"The engine of the model {context.name!r} does not say how long its context is; set max_model_len."
        )
    served = Served(
        model=identity.model,
        max_model_len=min(known, default=None),
        vocabulary=max(len(assets.tokenizer.bytes_of), assets.vocab_size or 0),
        adapters=identity.adapters,
    )
    ending = frozenset(assets.eos_token_ids)
    special = assets.tokenizer.special
    structures: Structures
    match identity.dialect:
        case "vllm" | "vllm-generate":
            structures = VllmStructures(
                special, ending, config.max_json_whitespace or VLLM_JSON_WHITESPACE
            )
        case "sglang":
            structures = SglangStructures(special, ending, config.max_json_whitespace)
        case "trtllm":
            structures = TrtllmStructures(special, ending, config.max_json_whitespace)
        case "llamacpp":
            structures = LlamaCppStructures()
    return kind(served, assets.tokenizer, structures, tokens_only=config.tokens_only)


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
        bos_token=assets.bos_token or identity.bos_token,
        eos_token=assets.eos_token or identity.eos_token,
        eos_token_ids=assets.eos_token_ids,
        description=f"{dialect.title}: {identity.model}",
        adapters=identity.adapters,
    )
