"""Removing keys and passwords from text that is logged or printed.

The gateway itself logs no secrets. Errors of libraries may contain them: a header in an exception's text, the URL of a
database in a traceback.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import msgspec

from gateway.config.structs import Config
from gateway.config.tables import KeyPath

HIDDEN: Final = "[hidden]"
_SHORTEST: Final = 6
"""Minimum length of a configured secret to search for. Shorter ones also occur as ordinary words."""

_SECRET_KEY: Final = re.compile(
    r"(?:api_?key|token|secret|password|passwd|credential|authorization|reasoning_keys)s?\Z", re.IGNORECASE
)  # fmt: skip
_SECRET_TABLES: Final = frozenset(("headers", "env", "environment"))
_ANY: Final = re.compile(
    r"""(?ix)
    \b(?P<scheme>bearer|basic)\s+[^\s'",;<>]+
    | (?P<header>\b(?:proxy-)?authorization|\bx-api-key|\b(?:set-)?cookie|\bx-[a-z-]*token|\bapi[-_]?key(?=['"=]))
      (?P<middle>['"]?\s*[:=,]\s*(?:b(?=['"]))?['"]?)(?!\s)(?:(?:bearer|basic)\s+)?[^\s'",;<>)]+
    | (?P<illegal>illegal\ header\ value)\s+.*
    | (?P<url>[a-z][a-z0-9+.-]*://)[^\s/'"@]*@
    | (?P<query>[?&](?:api[-_]?key|key|token|access[-_]?token|password|secret)=)[^&\s'"#]+
    """
)


class Redactor:
    """Replaces secrets in text: configured ones, and anything that looks like a credential."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets for form in _forms(secret) if len(form) >= _SHORTEST}
        words = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, words))) if words else None

    def clean(self, text: str) -> str:
        """`text` without secrets."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        return _ANY.sub(_replaced, text)


def secrets_of(config: Config, environ: Mapping[str, str]) -> set[str]:
    """The keys, tokens and passwords in a configuration, and in the environment variables that it names."""
    tables = msgspec.to_builtins((config.server, config.models, config.tools, config.stores, config.apis, config.resources, config.authenticators, config.policies, config.routers))  # fmt: skip
    return {secret for table in tables for secret in _within(table, environ, secret=False)}


def shown_value(path: KeyPath, value: Any, redactor: Redactor) -> Any:
    """The value of the setting `path` without secrets. What is one by its name is hidden whole, however short it is."""
    secret = False
    for key in path:
        secret = _is_secret(key, within=secret)
    return _shown(value, redactor, secret=secret)


def _shown(value: Any, redactor: Redactor, *, secret: bool) -> Any:
    match value:
        case list():
            return [_shown(each, redactor, secret=secret) for each in value]
        case dict():
            return {
                key: _shown(
                    each, redactor, secret=key == "sha256" or _is_secret(key, within=secret)
                )
                for key, each in value.items()
            }
        case bool() | None | "":
            return value
        case _ if secret:
            return HIDDEN
        case str():
            return redactor.clean(value)
        case _:
            return value


def _is_secret(key: str, *, within: bool) -> bool:
    """Whether what is under `key` is secret, within what is or is not. `[[server.api_keys]]` has names, limits and hashes."""
    found = within or key in _SECRET_TABLES or bool(_SECRET_KEY.search(key))
    return found and key not in ("api_keys", "name")


def _within(value: Any, environ: Mapping[str, str], *, secret: bool) -> Iterator[str]:
    match value:
        case str():
            if secret:
                yield value
            yield from _of_url(value)
        case list():
            for each in value:
                yield from _within(each, environ, secret=secret)
        case dict():
            for key, each in value.items():
                if key.endswith("_env") and isinstance(each, str):
                    yield environ.get(each, "")
                yield from _within(each, environ, secret=_is_secret(key, within=secret))


def _of_url(text: str) -> Iterator[str]:
    if "://" not in text or "@" not in text:
        return
    try:
        password = urlsplit(text).password
    except ValueError:
        return
    if password:
        yield password


def _forms(secret: str) -> Iterator[str]:
    """The forms in which a secret may occur: verbatim, URL-encoded, and quoted."""
    secret = secret.strip()
    yield secret
    yield unquote(secret)
    yield quote(secret, safe="")
    yield repr(secret)[1:-1]
    scheme, _, credential = secret.partition(" ")
    if scheme.lower() in ("bearer", "basic", "token"):
        yield credential


def _replaced(found: re.Match[str]) -> str:
    if scheme := found["scheme"]:
        return f"{scheme} {HIDDEN}"
    if header := found["header"]:
        return f"{header}{found['middle']}{HIDDEN}"
    if illegal := found["illegal"]:
        return f"{illegal} {HIDDEN}"
    if url := found["url"]:
        return f"{url}{HIDDEN}@"
    return f"{found['query']}{HIDDEN}"
