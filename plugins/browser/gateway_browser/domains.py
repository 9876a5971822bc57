"""The domains that a request allows and blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote, unquote

import httpx2
from msgspec import Struct

from gateway.sdk import InvalidRequest, ParamPath
from gateway.sdk.net import ascii_host

MAX_DOMAINS = 100
"""Maximum number of domains in a list, as at OpenAI."""
_LONGEST_ENTRY = 1000
_NOT_IN_NAME = re.compile(r"[\s%\[\]\\]")
_NOT_IN_HOST = re.compile(r"[\s:@*?#%\\\[\]]")
_NOT_IN_PATH = re.compile(r"[\s*?#\\]")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SLASHES = re.compile("/+")
_MAX_DECODINGS = 10
"""A path that is percent-encoded more often cannot be read."""


class Domain(Struct, frozen=True):
    """A host with its subdomains, or the part of them below a path."""

    host: str
    """As `gateway.sdk.net.ascii_host` writes it."""
    path: str = ""
    """As `/blog`, decoded, or empty: every path."""

    def __str__(self) -> str:
        return self.host + quote(self.path)

    def has_host(self, host: str) -> bool:
        return host == self.host or host.endswith(f".{self.host}")

    def has(self, host: str, path: str) -> bool:
        return self.has_host(host) and (
            not self.path or path == self.path or path.startswith(f"{self.path}/")
        )


class DomainFilter(Struct, frozen=True, kw_only=True):
    """Which pages a request lets the browser show. A port makes no difference."""

    allowed: tuple[Domain, ...] = ()
    """If not empty, pages must be of one of these."""
    blocked: tuple[Domain, ...] = ()
    """Pages must be of none of these, even if they are of `allowed` ones."""

    def allows(self, url: str) -> bool:
        """Whether pages at `url` may be shown. False if it cannot be read as a URL."""
        if not self.allowed and not self.blocked:
            return True
        try:
            parts = httpx2.URL(url)
        except (httpx2.InvalidURL, ValueError):
            return False
        host = _ascii(parts.raw_host.decode("ascii"))
        if not host:
            return False
        path, lenient = _normal_path(parts.path), _lenient_path(parts.path)
        if lenient is None:
            # Servers disagree on what such a path names.
            if any(each.path and each.has_host(host) for each in (*self.allowed, *self.blocked)):
                return False
            lenient = path
        if any(each.has(host, path) or each.has(host, lenient) for each in self.blocked):
            return False
        return not self.allowed or (
            any(each.has(host, path) for each in self.allowed)
            and any(each.has(host, lenient) for each in self.allowed)
        )

    def allows_host(self, host: str) -> bool:
        """Whether any page of a host may be shown."""
        if not self.allowed and not self.blocked:
            return True
        name = _ascii(host)
        if not name or any(not each.path and each.has_host(name) for each in self.blocked):
            return False
        return not self.allowed or any(each.has_host(name) for each in self.allowed)


ANY_PAGE = DomainFilter()
"""Of requests without domains."""


def read_domains(given: Sequence[str], param: ParamPath) -> tuple[Domain, ...]:
    """The domains of a list in a request. Raises `InvalidRequest` with a place below `param`."""
    if len(given) > MAX_DOMAINS:
        raise InvalidRequest(
            f"A list has at most {MAX_DOMAINS} domains, and this one has {len(given)}.",
            param=param,
            code="array_above_max_length",
        )
    found: dict[Domain, None] = {}
    for index, written in enumerate(given):
        domain = _read(written.strip())
        if domain is None:
            raise InvalidRequest(
                f"{written[:100]!r} is not a domain. Write it as 'example.com' or 'example.com/path', without scheme, "
                "port and wildcards.",
                param=(*param, index),
                code="invalid_value",
            )
        found[domain] = None
    return tuple(found)


def _read(written: str) -> Domain | None:
    name, _, path = written.partition("/")
    if len(written) > _LONGEST_ENTRY or _NOT_IN_HOST.search(name) or _NOT_IN_PATH.search(path):
        return None
    host = _ascii(name)
    if not host or "" in host.split("."):
        return None
    normal = _normal_path(unquote(path))
    return Domain(host, normal.rstrip("/")) if _lenient_path(normal) == normal else None


def _ascii(host: str) -> str:
    """The form of a host's name that is compared; empty if there is none."""
    return "" if _NOT_IN_NAME.search(host) else ascii_host(host)


def _normal_path(path: str) -> str:
    """A decoded path without empty segments and `.` and `..`, as servers resolve it."""
    segments: list[str] = []
    for segment in _SLASHES.split(path):
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    return f"/{'/'.join(segments)}"


def _lenient_path(path: str) -> str | None:
    """A decoded path as lenient servers resolve it: decoded again, with `\\` as `/` and without the parameters (`;x=1`)
    of segments. None if it then has `..` or control characters, at which some servers cut names (`..%00`), or is encoded
    too often.
    """
    for _ in range(_MAX_DECODINGS):
        decoded = unquote(path)
        if decoded == path:
            break
        path = decoded
    else:
        return None
    if _CONTROLS.search(path):
        return None
    segments = [segment.partition(";")[0] for segment in path.replace("\\", "/").split("/")]
    # Some servers ignore spaces at the ends of names.
    return None if ".." in (each.strip() for each in segments) else _normal_path("/".join(segments))
