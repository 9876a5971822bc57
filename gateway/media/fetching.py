"""Fetching images and documents by URL: from allowed hosts, at checked addresses, within limits."""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import urlsplit

import httpx2
from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.base.net.guard import HostGuard, Resolve, check_host_patterns
from gateway.base.net.http import FetchFailure, fetched
from gateway.base.net.tls import web_tls_context
from gateway.config import MediaConfig
from gateway.media.encoded import check_media_type, too_large
from gateway.media.refused import DOWNLOAD_FAILED, FILE_TOO_LARGE, INVALID_URL, MediaRefused

_LONGEST_URL: Final = 4096
_ACCEPT: Final = {
    "image": "image/png,image/jpeg,image/webp,image/gif,image/*;q=0.5",
    "file": "*/*",
}
_USER_AGENT: Final = "litegate"
"""The `User-Agent` header. Headers of the client's request are not sent."""


class Fetched(Struct, frozen=True):
    """A fetched file."""

    data: bytes
    media_type: str
    """The media type that the server declares; may be empty."""


class MediaFetcher:
    """Fetches files by URL, from the hosts and within the limits of the configuration."""

    def __init__(
        self,
        config: MediaConfig,
        resolve: Resolve,
        *,
        what: Literal["image", "file"] = "image",
        max_bytes: int | None = None,
    ) -> None:
        """`what` selects images, or files of any type. `max_bytes` replaces the limit of `config`. Raises
        `ConfigurationError` if `config` contains an invalid host."""
        try:
            check_host_patterns(config.allow_hosts, "media.allow_hosts")
            check_host_patterns(config.deny_hosts, "media.deny_hosts")
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        self._config = config
        self._what = what
        self._max_bytes = config.max_bytes if max_bytes is None else max_bytes
        self._guard = HostGuard(
            config.allow_hosts,
            deny_hosts=config.deny_hosts,
            allow_private=config.allow_private,
            allow_plain=True,
            resolve=resolve,
        )
        self._tls = web_tls_context()

    async def fetch(self, url: str) -> Fetched:
        """The file at `url`, after redirects. Raises `MediaRefused`."""
        config = self._config
        try:
            async with fetched(
                url,
                guard=self._guard,
                check=self._check_url,
                headers={"user-agent": _USER_AGENT, "accept": _ACCEPT[self._what]},
                max_bytes=self._max_bytes,
                max_redirects=config.max_redirects,
                seconds=config.fetch_seconds,
                tls=self._tls,
            ) as response:
                return await self._body(response)
        except FetchFailure as failure:
            match failure.kind:
                case "refused":
                    raise MediaRefused(INVALID_URL, f"The URL is not fetched: {failure}.") from None
                case "too_large":
                    raise MediaRefused(FILE_TOO_LARGE, too_large(self._max_bytes)) from None
                case _:
                    raise self._failed(str(failure)) from None

    async def _body(self, response: httpx2.Response) -> Fetched:
        if response.status_code != 200:
            raise self._failed(f"its server answered with HTTP status {response.status_code}")
        media_type = response.headers.get("content-type", "")
        if self._what == "image":
            check_media_type(media_type)
        length = response.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self._max_bytes:
            raise MediaRefused(FILE_TOO_LARGE, too_large(self._max_bytes))
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
        return Fetched(bytes(content), media_type)

    def _check_url(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https") or len(url) > _LONGEST_URL:
            article = "an image" if self._what == "image" else "a file"
            raise MediaRefused(
                INVALID_URL, f"This is not the http(s) URL or the data: URL of {article}."
            )
        if parts.username is not None or parts.password is not None:
            raise MediaRefused(INVALID_URL, "A URL with a user or a password is not fetched.")

    def _failed(self, why: str) -> MediaRefused:
        return MediaRefused(DOWNLOAD_FAILED, f"The {self._what} could not be downloaded: {why}.")
