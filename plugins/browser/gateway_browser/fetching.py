"""Fetching pages that a model names: from allowed hosts, at checked addresses, within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx2

from gateway.net.guard import HostGuard, Resolve, resolve
from gateway.net.http import GuardedTransport
from gateway_browser.config import BrowserConfig
from gateway_browser.documents import Document, document_of, is_readable

_LONGEST_URL = 4096
_ACCEPT = "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.8,*/*;q=0.1"


class PageFailure(Exception):
    """A page cannot be shown. The message is for the model and the client."""


class Fetcher:
    """Fetches pages. Each on connections of its own, without cookies: nothing goes from one response to another."""

    def __init__(self, config: BrowserConfig, *, resolve: Resolve = resolve) -> None:
        self._config = config
        self._resolve = resolve
        self._tls = httpx2.create_ssl_context()

    async def fetch(self, url: str, domains: Sequence[str] = ()) -> Document:
        """The page at `url`, redirects followed. Raises `PageFailure`.

        `domains`, where there are any, are the only ones that it may come from.
        """
        check_url(url, domains)
        config = self._config
        guard = _DomainGuard(config, domains, self._resolve)
        transport = GuardedTransport(
            httpx2.AsyncHTTPTransport(verify=self._tls, trust_env=False), guard
        )
        client = httpx2.AsyncClient(
            transport=transport,
            headers={
                "user-agent": config.user_agent,
                "accept": _ACCEPT,
                "accept-encoding": "identity",
            },
            timeout=None,  # the whole has a limit
            follow_redirects=True,
            max_redirects=config.max_redirects,
            trust_env=False,
        )
        try:
            async with asyncio.timeout(config.time_limit), client, client.stream("GET", url) as got:
                return await self._read(got)
        except TimeoutError:
            raise PageFailure(
                f"the page did not come within {config.time_limit:g} seconds"
            ) from None
        except httpx2.TooManyRedirects:
            raise PageFailure("the page redirects too often") from None
        except httpx2.ConnectError as error:
            refused = str(error).removeprefix("refused: ")
            told = refused if refused != str(error) else "no connection could be made to its host"
            raise PageFailure(told) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise PageFailure(f"the connection broke ({type(error).__name__})") from None

    async def _read(self, response: httpx2.Response) -> Document:
        if response.status_code >= 400:
            raise PageFailure(f"its server answered with HTTP status {response.status_code}")
        kind = response.headers.get("content-type", "text/html")
        if not is_readable(kind):
            raise PageFailure(f"it is of the type {kind[:80]!r}, which cannot be read here")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            # A small body may unpack to any size.
            raise PageFailure("its server sends it compressed, though it was not asked to")
        most = self._config.max_page_bytes
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > most:
                break
        cut = len(content) > most
        url = str(response.url)
        document = await asyncio.to_thread(document_of, url, bytes(content[:most]), kind)
        return _noted(document, most) if cut else document


class _DomainGuard(HostGuard):
    """The configuration's rules, and those of the request."""

    def __init__(self, config: BrowserConfig, domains: Sequence[str], resolve: Resolve) -> None:
        super().__init__(
            config.allow_hosts,
            allow_private=config.allow_private,
            allow_plain=True,
            resolve=resolve,
        )
        self._domains = domains

    def allows_host(self, host: str, port: int) -> bool:
        return super().allows_host(host, port) and in_domains(host, self._domains)


def check_url(url: str, domains: Sequence[str]) -> None:
    """Raises `PageFailure` for what is no page's URL, and for pages outside of `domains`."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or len(url) > _LONGEST_URL:
        raise PageFailure("that is not the http(s) URL of a page")
    if parts.username is not None or parts.password is not None:
        raise PageFailure("a URL with a user or a password is not opened")
    if not in_domains(host, domains):
        raise PageFailure(f"only pages of {', '.join(domains)} may be opened")


def in_domains(host: str, domains: Sequence[str]) -> bool:
    """Whether a host is one of `domains` or below one; true where there are none."""
    host = host.rstrip(".").lower()
    return not domains or any(host == each or host.endswith(f".{each}") for each in domains)


def _noted(document: Document, most: int) -> Document:
    note = f"(Only the first {most} bytes of this page were read.)"
    return Document(
        url=document.url,
        title=document.title,
        lines=(*document.lines, note),
        links=document.links,
    )
