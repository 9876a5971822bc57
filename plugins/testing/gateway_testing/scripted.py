"""Finding the engine `scripted` of the package `litegate-scripted` by its name, as a gateway does."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import cache
from typing import Protocol, runtime_checkable

from gateway.config import PluginsConfig
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.loading import PluginSet, load_plugins
from gateway.plugins.protocols import Engine, KnowsAddedTokens, Tokenizer
from gateway.startup.registry import PluginRegistry


class ScriptedTokenizer(Tokenizer, KnowsAddedTokens, Protocol):
    """The tokenizer of the engine. It encodes any text; each marker of a known family is one token."""


@runtime_checkable
class ScriptedEngine(Engine, Protocol):
    """The part of the engine that the kits use."""

    @property
    def running(self) -> Collection[str]:
        """The request ids of running generations."""
        ...


def scripted_tokenizer(markers: Sequence[str] = ()) -> ScriptedTokenizer:
    """The tokenizer of an engine `scripted`. Each of `markers` is one additional token.

    Raises `ConfigurationError` if `litegate-scripted` is not installed.
    """

    async def of_engine() -> Tokenizer | None:
        context = EngineContext(name="m", path=None)
        options = {"special_tokens": list(markers)}
        async with PluginRegistry(_plugins()).engine("scripted", context, options) as engine:
            return engine.tokenizer

    tokenizer = asyncio.run(of_engine())
    assert isinstance(tokenizer, KnowsAddedTokens)
    return tokenizer


@cache
def _plugins() -> PluginSet:
    return load_plugins(PluginsConfig(allow=["scripted"]))
