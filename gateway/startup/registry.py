"""The registry that engines, renderers and output formats receive. With it, they find others by name."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from gateway.base.errors import ConfigurationError, GatewayError
from gateway.plugins.hookspecs import EngineContext, ModelContext, Offer
from gateway.plugins.loading import PluginSet
from gateway.plugins.protocols import Engine, OutputFormat, PromptRenderer

logger = logging.getLogger("gateway.startup.registry")

T = TypeVar("T")


class PluginRegistry:
    """Implements `gateway.plugins.hookspecs.Registry`."""

    def __init__(self, plugins: PluginSet, parents: Sequence[Offer[Any]] = ()) -> None:
        """`parents`: the chain of offers that led to this registry. The last one receives it; each was requested by the
        one before it."""
        self._plugins = plugins
        self._parents = tuple(parents)

    def names(self, kind: Literal["engine", "renderer", "parser"]) -> Sequence[str]:
        return self._plugins.names(kind)

    @asynccontextmanager
    async def engine(
        self, name: str, context: EngineContext, options: Mapping[str, Any] | None = None
    ) -> AsyncIterator[Engine]:
        async with AsyncExitStack() as stack:
            with self._naming_requester():
                offer, config, registry = self._resolve(self._plugins.engine(name), options)
                context = msgspec.structs.replace(context, registry=registry)
                with naming_plugin("", f"the engine {offer.name!r} cannot open the model"):
                    engine = await stack.enter_async_context(offer.make(config, context))
            yield engine

    def renderer(
        self, name: str, context: ModelContext, options: Mapping[str, Any] | None = None
    ) -> PromptRenderer:
        with self._naming_requester():
            offer, config, registry = self._resolve(self._plugins.renderer(name), options)
            with naming_plugin("", f"the renderer {offer.name!r} cannot be created"):
                return offer.make(config, msgspec.structs.replace(context, registry=registry))

    def parser(
        self, name: str, context: ModelContext, options: Mapping[str, Any] | None = None
    ) -> OutputFormat:
        with self._naming_requester():
            offer, config, registry = self._resolve(self._plugins.parser(name), options)
            with naming_plugin("", f"the parser {offer.name!r} cannot be created"):
                return offer.make(config, msgspec.structs.replace(context, registry=registry))

    def _resolve(
        self, offer: Offer[T], options: Mapping[str, Any] | None
    ) -> tuple[Offer[T], Struct, PluginRegistry]:
        """Decode the config of `offer`. Returns the offer, its config, and the registry that it receives. Raises
        `ConfigurationError`."""
        chain = (*self._parents, offer)
        if any(offer is each for each in self._parents):
            names = " -> ".join(each.name for each in chain)
            raise ConfigurationError(
                f"the {offer.kind} {offer.name!r} would be a part of itself ({names}); name another one there."
            )
        config = self._plugins.decode_config(offer, options or {}, offer.name)
        return offer, config, PluginRegistry(self._plugins, chain)

    @contextmanager
    def _naming_requester(self) -> Iterator[None]:
        """Within the context, errors name the plugin that uses this registry."""
        try:
            yield
        except ConfigurationError as error:
            if not self._parents:
                raise
            asking = self._parents[-1]
            raise ConfigurationError(
                f"the {asking.kind} {asking.name!r} asks for another: {error}"
            ) from error


@contextmanager
def naming_plugin(where: str, what: str) -> Iterator[None]:
    """Within the context, any exception of a plugin becomes a `ConfigurationError` that names the plugin."""
    place = f"{where}: " if where else ""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{place}{error}") from error
    except GatewayError as error:
        raise ConfigurationError(f"{place}{what}: {error.message}") from error
    except Exception as error:  # plugins may raise anything; users should not see a traceback
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
        logger.debug("%s%s", place, what, exc_info=error)
        raise ConfigurationError(f"{place}{what}: {reason}") from error
