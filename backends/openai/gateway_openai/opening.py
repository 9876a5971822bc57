"""Opening the engine: find the replicas, look once whether the upstream knows the key and the model, take care until the end."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from gateway.errors import ConfigurationError
from gateway.hookspecs import EngineContext
from gateway.protocols import Engine, ModelInfo
from gateway_openai.config import OpenAIConfig
from gateway_openai.engine import MessageLanguage, OpenAIEngine
from gateway_openai.errors import Translator
from gateway_remote.client import Client, headers_of, tls_context
from gateway_remote.discovery import Discovery, discovery
from gateway_remote.failures import ReplicaFailure
from gateway_remote.health import Caretaker
from gateway_remote.pool import Pool
from gateway_remote.stalls import StallWatch

logger = logging.getLogger("gateway.openai")


class _Card(Struct):
    id: str
    max_model_len: int | None = None


class _Models(Struct):
    data: list[_Card] = []


@asynccontextmanager
async def open_upstream(config: OpenAIConfig, context: EngineContext) -> AsyncIterator[Engine]:
    """The engine of one model. An upstream that is away does not stop the start; one that refuses the key does.

    Raises `ConfigurationError`.
    """
    if config.base_url is not None:
        config = msgspec.structs.replace(config, urls=[config.base_url, *config.urls])
    found = _discovery(config, context.path)
    prefix = config.prefix(context.path)
    key = config.key()
    stalls = StallWatch(config.stall_timeout, time.monotonic)
    translator = Translator(_secrets(config, context.path, key))
    try:
        tls = await asyncio.to_thread(tls_context, config.ca_file, verify=config.tls_verify)
    except OSError as error:
        raise ConfigurationError(f"ca_file {config.ca_file}: {error.strerror or error}.") from error
    async with AsyncExitStack() as stack:
        client = Client(
            stalls,
            headers=headers_of(config.headers, key),
            connect_timeout=config.connect_timeout,
            tls=tls,
            clock=time.monotonic,
            meaning=translator.answer,
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
        pool.update(await found.find())
        model = config.model or context.name
        path = prefix + config.health_path if config.health_path else None
        listed = await _listed(client, pool, config, path, model)
        caretaker = Caretaker(pool, client, config, found, stalls, path=path)
        await caretaker.first_look()
        task = asyncio.create_task(caretaker.run())
        stack.push_async_callback(_end, task)
        limits = (context.max_model_len, config.max_model_len, listed)
        yield OpenAIEngine(
            config=config,
            info=ModelInfo(
                name=context.name,
                engine="openai",
                max_model_len=min((limit for limit in limits if limit), default=None),
                description=f"{model}, behind an upstream's {config.api} API",
            ),
            language=MessageLanguage(config, model, translator, pool, prefix),
            client=client,
            pool=pool,
        )


def _discovery(config: OpenAIConfig, path: str | None) -> Discovery:
    try:
        return discovery(config, path)
    except ConfigurationError as error:
        if config.urls or config.dns or config.file:
            raise
        raise ConfigurationError(
            'The engine "openai" needs to know where its upstream is: set base_url = "https://host/v1".'
        ) from error


def _secrets(config: OpenAIConfig, path: str | None, key: str | None) -> list[str]:
    """What is in no message to a client: keys, and the upstream's addresses."""
    urls = [url for url in (*config.urls, config.dns, path) if url and "://" in url]
    places = [urlsplit(url) for url in urls]
    hosts = [place.netloc for place in places] + [place.hostname or "" for place in places]
    return [key or "", *config.headers.values(), *hosts]


async def _listed(
    client: Client, pool: Pool, config: OpenAIConfig, path: str | None, model: str
) -> int | None:
    """The length of the model's context, if the upstream answers and says it."""
    for replica in pool.replicas if path else ():
        try:
            status, body = await client.answer(
                replica.endpoint, path or "", within=config.health_timeout
            )
        except ReplicaFailure as failure:
            logger.warning("%s does not answer yet: %s", replica.endpoint, failure)
            continue
        if status in (401, 403):
            raise ConfigurationError(
                f"The upstream {replica.endpoint} refuses the gateway ({status}); check api_key, api_key_env and headers."
            )
        if status != 200:
            logger.warning("%s answers %d on %s", replica.endpoint, status, path)
            continue
        try:
            cards = msgspec.json.decode(body, type=_Models).data
        except msgspec.DecodeError:
            return None  # the path is of the operator's choosing
        card = next((each for each in cards if each.id == model), None)
        if card is None and cards:
            names = ", ".join(each.id for each in cards[:10])
            logger.warning("%s lists no model %r, but: %s", replica.endpoint, model, names)
        return card.max_model_len if card is not None else None
    return None


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
