"""Opens the engine: discovers the replicas, checks key and model once, and monitors them until it is closed."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import msgspec

from gateway.sdk import ConfigurationError, Engine, EngineContext, ModelInfo
from gateway_openai.config import OpenAIConfig
from gateway_openai.engine import MessageLanguage, OpenAIEngine
from gateway_openai.errors import Translator
from gateway_openai.listings import UpstreamListing
from gateway_remote.connecting import connections, monitored
from gateway_remote.discovery import Discovery, discovery, is_address
from gateway_remote.failures import ReplicaFailure
from gateway_remote.health import HealthMonitor
from gateway_remote.pool import Pool

logger = logging.getLogger("gateway.openai")


@asynccontextmanager
async def open_upstream(config: OpenAIConfig, context: EngineContext) -> AsyncIterator[Engine]:
    """The engine of one model. Starts even if the upstream is unreachable.

    Raises `ConfigurationError` if the upstream rejects the key or the configuration is invalid.
    """
    config = _addressed(config)
    address, name = _named(context.path)
    found = _discovery(config, address)
    prefix = config.prefix(address)
    key = config.key()
    translator = Translator(_secrets(config, address, key))
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(
            connections(config, context.name, key=key, meaning=translator.answer)
        )
        client, pool = made.client, made.pool
        pool.update(await found.find())
        model = config.model or name or context.name
        path = prefix + config.health_path if config.health_path else None
        listing = None if path is None else UpstreamListing(client, config, path)
        listed = None if listing is None else await _listed(listing, pool, model)
        monitor = HealthMonitor(
            pool,
            client,
            config,
            found,
            made.stalls,
            path=path,
            check=None if listing is None else listing.problem,
        )
        await stack.enter_async_context(monitored(monitor))
        limits = (context.max_model_len, config.max_model_len, listed)
        yield OpenAIEngine(
            config=config,
            info=ModelInfo(
                name=context.name,
                engine="openai",
                max_model_len=min((limit for limit in limits if limit), default=None),
                description=f"{model}, behind an upstream's {config.api} API",
            ),
            language=MessageLanguage(config, model, translator, pool, prefix, listing),
            client=client,
            pool=pool,
        )


def check_addresses(config: OpenAIConfig, path: str | None) -> None:
    """Raise `ConfigurationError` if the upstream has no address, or an invalid one."""
    _discovery(_addressed(config), _named(path)[0])


def _named(path: str | None) -> tuple[str | None, str]:
    """A model's path without its fragment, and the fragment: the model's name at the address, as on the command line."""
    if path is None or not is_address(path):
        return path, ""
    address, _, name = path.partition("#")
    return address, name


def _addressed(config: OpenAIConfig) -> OpenAIConfig:
    """With `base_url` among the addresses."""
    if config.base_url is None:
        return config
    return msgspec.structs.replace(config, urls=[config.base_url, *config.urls])


def _discovery(config: OpenAIConfig, path: str | None) -> Discovery:
    try:
        return discovery(config, path)
    except ConfigurationError as error:
        if config.urls or config.dns or config.file or is_address(path):
            raise
        raise ConfigurationError(
            'The engine "openai" needs the address of its upstream: set base_url = "https://host/v1".'
        ) from error


def _secrets(config: OpenAIConfig, path: str | None, key: str | None) -> list[str]:
    """Strings that must not appear in messages to clients: keys and the upstream's addresses."""
    urls = [url for url in (*config.urls, config.dns, path) if url and "://" in url]
    places = [urlsplit(url) for url in urls]
    hosts = [place.netloc for place in places] + [place.hostname or "" for place in places]
    return [key or "", *config.headers.values(), *hosts]


async def _listed(listing: UpstreamListing, pool: Pool, model: str) -> int | None:
    """Context length of the model in tokens; None if the upstream does not respond or does not state it. Raises
    `ConfigurationError` if it rejects the key."""
    for replica in pool.replicas:
        where = replica.endpoint
        try:
            found = await listing.get(where)
        except ReplicaFailure as failure:
            logger.warning("%s does not answer yet: %s", where, failure)
            continue
        if found.status == 401:
            raise ConfigurationError(
                f"The upstream {where} refuses the gateway (401); check api_key, api_key_env and headers."
            )
        if found.status != 200:
            logger.warning(
                "%s answers %d to the listing of its models (health_path); requests will show whether it serves %r",
                where,
                found.status,
                model,
            )
            continue
        if found.models is None:
            return None  # the path is the operator's choice and may not exist
        if found.models and model not in found.models:
            names = ", ".join([*found.models][:10])
            logger.warning("%s lists no model %r, but: %s", where, model, names)
        return found.models.get(model)
    return None
