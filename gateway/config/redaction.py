"""Removes keys and passwords from text that is logged or printed.

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

_WORD: Final = (
    r"(?:(?:api|access|private|secret|account|signing|encryption|master|subscription|shared)[-_]?key"
    r"|token|secret|password|passwd|pwd|passphrase|credential|authorization|cookie)s?"
)
"""Words at the end of a key, a parameter or an option that mark its value as secret."""
_SECRET_KEY: Final = re.compile(rf"(?:{_WORD}|reasoning_keys)\Z", re.IGNORECASE)
_SECRET_TABLE: Final = re.compile(r"(?:[a-z0-9_-]*headers|env|environment)\Z", re.IGNORECASE)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ANY: Final = re.compile(
    rf"""(?ix)
    \b(?P<scheme>bearer|basic)\s+[^\s'",;<>]+
    | (?P<header>\b(?:proxy-)?authorization|\bx-api-key|\b(?:set-)?cookie|\bx-[a-z-]{{0,40}}token|\bapi[-_]?key(?=['"=]))
      (?P<middle>['"]?\s*[:=,]\s*(?:b(?=['"]))?['"]?)(?!\s)(?:(?:bearer|basic)\s+)?[^\s'",;<>)]+
    | (?P<illegal>illegal\ header\ value)\s+.*
    | (?P<url>://)[^\s/'"]*@
    | (?P<query>[?&](?:key|sig|signature|apikey|[a-z0-9_-]{{0,40}}{_WORD})=)[^&\s'"#]+
    """
)
"""Every repetition is bounded, or starts with something rare, so that the time is linear in the length of the text."""
_ARGUMENT: Final = re.compile(
    rf"(?i)((?<![a-z0-9_-])[a-z0-9_-]{{0,60}}{_WORD}\s*=\s*)(?:'[^']*'|\"[^\"]*\"|[^\s'\"&]+)"
)
"""`--token=...`, `PGPASSWORD=...`, and `password=...` in a connection string."""
_OPTION: Final = re.compile(rf"(?i)--?[a-z0-9_-]{{0,60}}{_WORD}\Z")
"""An option whose value is the next argument."""

_PLACE: Final = re.compile(r"[\w.:/-]+")
"""A host with a port, or a path."""


def without_credentials(url: str) -> str:
    """The URL without user, password and options, for messages. If `url` is not a URL, only its parts that can be a
    host or a path are kept."""
    if "://" not in url:
        shown = url.rpartition("@")[2].partition("?")[0]
        return shown if _PLACE.fullmatch(shown) else "the configured URL"
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    except ValueError:
        return "the configured URL"


def without_secrets(text: str) -> str:
    """Remove from `text`, which comes from outside, anything that looks like a credential in a URL, a header or a
    parameter."""
    return _ANY.sub(_replaced, text)


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
    return {secret for table in tables for secret in _within("", table, environ, within=False)}


def shown_value(path: KeyPath, value: Any, redactor: Redactor) -> Any:
    """The value of the setting `path` without secrets. A value whose key marks it as secret is hidden completely, even
    if it is short."""
    secret = False
    for key in path[:-1]:
        secret = _is_secret(key, None, within=secret)
    return _redacted(path[-1], value, redactor, within=secret)


def is_variable(name: str) -> bool:
    """Whether `name` can be the name of an environment variable. Other text may be a secret that was written in place
    of the name."""
    return _VARIABLE.match(name) is not None


def _redacted(key: str, value: Any, redactor: Redactor, *, within: bool) -> Any:
    secret = _is_secret(key, value, within=within)
    match value:
        case list():
            return [
                HIDDEN
                if number and _is_option(value[number - 1]) and isinstance(each, str)
                else _redacted("", each, redactor, within=secret)
                for number, each in enumerate(value)
            ]
        case dict():
            return {
                redactor.clean(name): _redacted(name, each, redactor, within=secret)
                for name, each in value.items()
            }
        case bool() | None | "":
            return value
        case _ if secret or key == "sha256":
            return HIDDEN
        case str() if key.endswith("_env") and not is_variable(value):
            return HIDDEN
        case str():
            return _ARGUMENT.sub(rf"\1{HIDDEN}", redactor.clean(value))
        case _:
            return value


def _is_option(value: Any) -> bool:
    return (
        isinstance(value, str)
        and _OPTION.match(value) is not None
        and not value.lower().endswith("tokens")  # a number of tokens
    )


def _is_secret(key: str, value: Any, *, within: bool) -> bool:
    """Whether `value` under `key` is secret. `within` tells whether the enclosing value is."""
    if within or _SECRET_TABLE.match(key):
        return True
    if not _SECRET_KEY.search(key):
        return False
    if isinstance(value, int | float) and key.lower().endswith("tokens"):  # a number of tokens
        return False
    # `[[server.api_keys]]` has names, limits and hashes.
    return not (key == "api_keys" and isinstance(value, list) and all(map(_is_key_table, value)))


def _is_key_table(value: Any) -> bool:
    return isinstance(value, dict) and "sha256" in value


def _within(key: str, value: Any, environ: Mapping[str, str], *, within: bool) -> Iterator[str]:
    secret = _is_secret(key, value, within=within)
    match value:
        case str():
            if secret:
                yield value
            if key.endswith("_env"):
                yield environ.get(value, "")
            yield from _of_url(value)
        case list():
            for number, each in enumerate(value):
                if number and _is_option(value[number - 1]) and isinstance(each, str):
                    yield each
                yield from _within("", each, environ, within=secret)
        case dict():
            for name, each in value.items():
                yield from _within(name, each, environ, within=secret)


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
