"""Parses call headers: a name, and in some families an id."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Collection

_NAME = re.compile(r"[^\s<>{}\[\]()\"'|`,;]+")
_KIMI = re.compile(r"(?:functions\.)?(.+?):*(?::([0-9]+))?", re.DOTALL)
_NAMELESS = re.compile(
    r"(?:functions[._:]*([0-9]{0,6})|(?:call|toolu|chatcmpl-tool|fc)[-_]?(?=[^0-9]{0,40}[0-9])[A-Za-z0-9]{1,64})"
)
"""An id that names no tool: `functions.:0`, `call00003`."""
_KIMI_INDEX = re.compile(r"[._:]*([0-9]*)")
_SOLAR_ID = re.compile(r"[a-z0-9]{10}")
_SOLAR_ALPHABET = string.ascii_lowercase + string.digits
_ALPHABET = string.ascii_letters + string.digits


def plain(parts: list[str], tools: Collection[str]) -> tuple[str, str | None]:
    """The last non-empty part is the name: deepseek's `function<sep>name` and `name<sep>`."""
    filled = [part for part in parts if part]
    return (filled[-1] if filled and _NAME.fullmatch(filled[-1]) else "", None)


def solar(parts: list[str], tools: Collection[str]) -> tuple[str, str | None]:
    """An id and a name. An id that is not as the prompt demands is replaced by one that is."""
    call_id = parts[0] if len(parts) > 1 and _SOLAR_ID.fullmatch(parts[0]) else solar_id()
    return plain(parts[1:] or parts, tools)[0], call_id


def solar_id() -> str:
    """A call id of 10 lowercase letters and digits, as Solar Open's prompt demands."""
    return "".join(secrets.choice(_SOLAR_ALPHABET) for _ in range(10))


def kimi(parts: list[str], tools: Collection[str]) -> tuple[str, str | None]:
    """Parse `functions.NAME:INDEX`, which is also the id (Kimi K2's chat template expects it back unchanged).

    If that is not a tool's name, other punctuation is accepted: models imitate the ids that clients derive from theirs.
    An id without a name is a call of the only tool, if there is just one. Without an index it is 0; the loop counts on if
    another call has that id.
    """
    hit = _KIMI.fullmatch(parts[0])
    name = hit[1].rstrip() if hit is not None else ""
    if tools and name not in tools:
        corrected = _kimi_corrected(parts[0], tools)
        if corrected is not None:
            return corrected
    if hit is None or not _NAME.fullmatch(name):
        return "", None
    return name, f"functions.{name}:{hit[2] or 0}"


def _kimi_corrected(label: str, tools: Collection[str]) -> tuple[str, str] | None:
    """The tool named by `functions_NAME_1`, `functionsNAME1` and similar, with the corrected id."""
    rest = label.removeprefix("functions").lstrip("._:")
    for name in sorted(tools, key=len, reverse=True):
        if rest.startswith(name) and (hit := _KIMI_INDEX.fullmatch(rest, len(name))) is not None:
            return name, f"functions.{name}:{hit[1] or 0}"
    if len(tools) == 1 and (hit := _NAMELESS.fullmatch(label)) is not None:
        name = next(iter(tools))
        return name, f"functions.{name}:{hit[1] or 0}"
    return None


def is_nameless(label: str) -> bool:
    """Whether `label` looks like an id that names no tool."""
    return _NAMELESS.fullmatch(label) is not None


def mistral(parts: list[str], tools: Collection[str]) -> tuple[str, str | None]:
    """The name, optionally followed by an id. Without one an id of 9 characters is created, which the prompt
    requires."""
    if not _NAME.fullmatch(parts[0]):
        return "", None
    given = parts[1] if len(parts) > 1 else ""
    is_id = len(given) == 9 and given.isalnum() and given.isascii()
    return parts[0], given if is_id else mistral_id()


def mistral_id() -> str:
    """A call id of 9 letters and digits, as mistral-common's validator requires."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(9))
