"""Web search and browsing as tools that the gateway runs.

A search provider of your own is a function `open_provider(options)` that gives an asynchronous context manager of a
`SearchProvider`; `provider = "package.module:open_provider"` in `[tools.browser]` selects it.
"""

from gateway_browser.plugin import gateway_register_tools
from gateway_browser.providers import (
    Place,
    ProviderFailure,
    SearchHit,
    SearchProvider,
    SearchQuery,
    StoredPage,
    StoringProvider,
)

__all__ = [
    "Place",
    "ProviderFailure",
    "SearchHit",
    "SearchProvider",
    "SearchQuery",
    "StoredPage",
    "StoringProvider",
    "gateway_register_tools",
]
