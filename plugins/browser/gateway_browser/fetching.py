"""Fetches pages that a model names: from allowed hosts, at checked addresses, within limits."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx2

from gateway.sdk.http import FetchFailure, fetched, web_tls_context
from gateway.sdk.net import HostGuard, Resolve, resolve
from gateway_browser.config import BrowserConfig
from gateway_browser.documents import PageText, is_readable
from gateway_browser.domains import ANY_PAGE, DomainFilter
from gateway_browser.errors import PageFailure
from gateway_browser.reader import PageReader

_LONGEST_URL = 4096
_ACCEPT = "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.8,*/*;q=0.1"


class PageFetcher:
    """Fetches pages."""

    def __init__(
        self, config: BrowserConfig, reader: PageReader, *, resolve: Resolve = resolve
    ) -> None:
        self._config = config
        self._reader = reader
        self._resolve = resolve
        self._tls = web_tls_context()

    async def fetch(self, url: str, domains: DomainFilter = ANY_PAGE, *, key: str = "") -> PageText:
        """The page at `url`, after redirects. Raises `PageFailure`.

        The page and every redirect to it must be of `domains`. `key` identifies the owner on whose behalf the page is
        read.
        """
        config = self._config
        try:
            async with fetched(
                url,
                guard=_DomainGuard(config, domains, self._resolve),
                check=lambda each: check_url(each, domains),
                headers={"user-agent": config.user_agent, "accept": _ACCEPT},
                max_bytes=None,  # longer pages are cut
                max_redirects=config.max_redirects,
                seconds=config.time_limit,
                tls=self._tls,
            ) as response:
                url, kind, content = await self._read(response)
        except FetchFailure as failure:
            match failure.kind:
                case "timeout":
                    reason = f"the page did not come within {config.time_limit:g} seconds"
                case "redirects":
                    reason = "the page redirects too often"
                case _:
                    reason = str(failure)
            raise PageFailure(reason) from None
        most = config.max_page_bytes
        document = await self._reader.document(url, content[:most], kind, key)
        return _with_cut_note(document, most) if len(content) > most else document

    async def _read(self, response: httpx2.Response) -> tuple[str, str, bytes]:
        """The page's URL, content type and bytes; of a page beyond the limit, slightly more than the limit."""
        if response.has_redirect_location or response.status_code >= 400:
            raise PageFailure(f"its server answered with HTTP status {response.status_code}")
        kind = response.headers.get("content-type", "text/html")
        if not is_readable(kind):
            raise PageFailure(f"it is of the type {kind[:80]!r}, which cannot be read here")
        most = self._config.max_page_bytes
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > most:
                break
        return str(response.url), kind, bytes(content)


class _DomainGuard(HostGuard):
    """The rules of the configuration and those of the request."""

    def __init__(self, config: BrowserConfig, domains: DomainFilter, resolve: Resolve) -> None:
        super().__init__(
            config.allow_hosts,
            deny_hosts=[each.host for each in domains.blocked if not each.path],
            allow_private=config.allow_private,
            allow_plain=True,
            resolve=resolve,
        )
        self._domains = domains

    def allows_host(self, host: str, port: int) -> bool:
        return super().allows_host(host, port) and self._domains.allows_host(host)


def check_url(url: str, domains: DomainFilter) -> None:
    """Raises `PageFailure` for URLs that are not of a page or are outside of `domains`."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or len(url) > _LONGEST_URL:
        raise PageFailure("that is not the http(s) URL of a page")
    if parts.username is not None or parts.password is not None:
        raise PageFailure("a URL with a user or a password is not opened")
    if not domains.allows(url):
        allowed = ", ".join(map(str, domains.allowed))
        raise PageFailure(
            f"only pages of {allowed} may be opened, and not all of these"
            if allowed and domains.blocked
            else f"only pages of {allowed} may be opened"
            if allowed
            else "the request blocks its domain"
        )


def _with_cut_note(document: PageText, most: int) -> PageText:
    note = f"(Only the first {most} bytes of this page were read.)"
    return PageText(
        url=document.url,
        title=document.title,
        lines=(*document.lines, note),
        links=document.links,
    )
