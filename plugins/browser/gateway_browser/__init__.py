"""Web search and browsing as tools that the gateway runs.

To add a search provider, write a function `open_provider(options)` that returns an asynchronous context manager of
a `SearchProvider`, and select it with `provider = "package.module:open_provider"` in `[tools.browser]`.
"""

from gateway_browser.plugin import gateway_register_tools
from gateway_browser.providers import (
    ProviderFailure,
    QueryLocation,
    SearchHit,
    SearchProvider,
    SearchQuery,
    StoredPage,
    StoringProvider,
)

__all__ = [
    "ProviderFailure",
    "QueryLocation",
    "SearchHit",
    "SearchProvider",
    "SearchQuery",
    "StoredPage",
    "StoringProvider",
    "gateway_register_tools",
]
