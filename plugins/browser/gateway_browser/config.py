"""`[tools.browser]` in `gateway.toml`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from gateway.sdk.configuration import Positive, Seconds
from gateway.sdk.net import check_host_patterns

BUILT_IN: Final = ("searxng", "brave", "exa", "local")
_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")


class SearxngConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.browser.searxng]`: an instance of SearXNG whose settings allow the format `json`."""

    url: str
    """URL of the instance, such as `https://searx.example.com`."""
    engines: list[str] = []
    """Search engines to query; empty: those that the instance chooses."""
    categories: list[str] = []
    language: str = ""
    """Such as `en` or `de-DE`; empty: the instance's default."""
    safesearch: Annotated[int, Meta(ge=0, le=2)] | None = None
    """0 disables filtering; unset: the instance's default."""
    headers: dict[str, str] = {}
    """Headers of every request, for instances that require authentication."""

    def __post_init__(self) -> None:
        _check_url(self.url)


class BraveConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.browser.brave]`: the Brave Search API."""

    api_key: str
    url: str = "https://api.search.brave.com/res/v1/web/search"

    def __post_init__(self) -> None:
        _check_url(self.url)


class ExaConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.browser.exa]`: the Exa API."""

    api_key: str
    url: str = "https://api.exa.ai/search"

    def __post_init__(self) -> None:
        _check_url(self.url)


class LocalConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.browser.local]`: an index over the HTML, Markdown and text files of a folder, built at start-up."""

    path: str
    """The folder; relative to the working directory."""
    base_url: str = "http://local.invalid/"
    """URL prefix of the files' paths, under which they are found, opened and cited."""

    def __post_init__(self) -> None:
        _check_url(self.base_url)


class BrowserConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.browser]`."""

    provider: str
    """The search provider: `searxng`, `brave`, `exa`, `local`, or `package.module:function` of another distribution.
    """
    searxng: SearxngConfig | None = None
    brave: BraveConfig | None = None
    exa: ExaConfig | None = None
    local: LocalConfig | None = None
    options: dict[str, Any] = {}
    """Options passed to a provider of another distribution."""
    results: Annotated[int, Meta(ge=1, le=50)] = 10
    """Number of search results if the model asks for none; half and twice that for a low and high
    `search_context_size`."""
    view_characters: Annotated[int, Meta(ge=200)] = 6000
    """Characters of a page that are shown at once; scaled likewise."""
    allow_hosts: tuple[str, ...] = ("*",)
    """Hosts whose pages may be opened: `example.com`, `*.example.com`, `example.com:8443`, or `*` for every host."""
    allow_private: bool = False
    """Whether allowed hosts may have addresses of this machine and of private networks."""
    max_page_bytes: Positive = 2_097_152
    """Maximum number of bytes of a page that are read; the rest is left out, with a note."""
    reading_time: Seconds = 10.0
    """Seconds in which a helper process must convert or search a page."""
    reading_memory: Annotated[int, Meta(ge=134_217_728)] = 536_870_912
    """Memory limit of a helper process, in bytes."""
    reading_processes: Annotated[int, Meta(ge=1, le=64)] = 2
    """Maximum number of helper processes."""
    max_pages: Positive = 64
    """Maximum number of pages that a response keeps for scrolling, searching and following links, with at most
    16,000,000 characters together."""
    max_redirects: Annotated[int, Meta(ge=0)] = 5
    time_limit: Seconds = 20.0
    """Seconds for one search, and for fetching one page."""
    output_limit: Annotated[int, Meta(ge=1000)] = 65_536
    """Maximum size in bytes of one result that the model reads."""
    user_agent: str = "Litegate"

    def __post_init__(self) -> None:
        check_host_patterns(self.allow_hosts, "allow_hosts")
        if self.provider in BUILT_IN:
            if getattr(self, self.provider) is None:
                raise ValueError(
                    f'provider = "{self.provider}" needs a table [tools.browser.{self.provider}]'
                )
        elif not _REFERENCE.match(self.provider):
            raise ValueError(
                f"`provider` is {', '.join(BUILT_IN)} or package.module:function, not {self.provider!r}"
            )


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a URL begins with http:// or https:// and names a host")
