"""Opens the configured provider."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from importlib import import_module

from gateway.sdk import ConfigurationError
from gateway_browser.config import BrowserConfig
from gateway_browser.providers import OpenProvider, SearchProvider


def open_provider(config: BrowserConfig) -> AbstractAsyncContextManager[SearchProvider]:
    """Open the provider. Raises `ConfigurationError` if a provider of another distribution cannot be imported."""
    match config.provider:
        case "searxng":
            from gateway_browser.providers.searxng import open_searxng

            assert config.searxng is not None, "the configuration was checked"
            return open_searxng(config.searxng)
        case "brave":
            from gateway_browser.providers.brave import open_brave

            assert config.brave is not None, "the configuration was checked"
            return open_brave(config.brave)
        case "exa":
            from gateway_browser.providers.exa import open_exa

            assert config.exa is not None, "the configuration was checked"
            return open_exa(config.exa)
        case "local":
            from gateway_browser.providers.local import open_local

            assert config.local is not None, "the configuration was checked"
            return open_local(config.local)
        case reference:
            return _named(reference)(config.options)


def _named(reference: str) -> OpenProvider:
    module, _, name = reference.partition(":")
    try:
        found: OpenProvider = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"tools.browser.provider: {reference!r} cannot be imported ({error}); is its distribution installed?"
        ) from error
    return found
