"""Parses call headers: a name, and in some families an id."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Collection

_NAME = re.compile(r"[^\s<>{}\[\]()\"'|`,;]+")
_KIMI = re.compile(r"(?:functions\.)?(.+?):*(?::([0-9]+))?", re.DOTALL)
_KIMI_INDEX = re.compile(r"[._:]*([0-9]*)")
_ALPHABET = string.ascii_letters + string.digits


def plain(parts: list[str], tools: Collection[str]) -> tuple[str, str | None]:
    """The last non-empty part is the name: deepseek's `function<sep>name` and `name<sep>`."""
    filled = [part for part in parts if part]
    return (filled[-1] if filled and _NAME.fullmatch(filled[-1]) else "", None)


def kimi(parts: list[str], tools: Collection[str]) -> tuple[str, str | None]:
    """Parse `functions.NAME:INDEX`, which is also the id (Kimi K2's chat template expects it back unchanged).

    If that is not a tool's name, other punctuation is accepted: models imitate the ids that clients derive from theirs.
    """
    hit = _KIMI.fullmatch(parts[0])
    name = hit[1].rstrip() if hit is not None else ""
    if hit is None or not _NAME.fullmatch(name):
        return "", None
    if tools and name not in tools:
        corrected = _kimi_corrected(parts[0], tools)
        if corrected is not None:
            return corrected
    return name, parts[0] if hit[2] is not None else None


def _kimi_corrected(label: str, tools: Collection[str]) -> tuple[str, str | None] | None:
    """The tool named by `functions_NAME_1`, `functionsNAME1` and similar, with the corrected id."""
    rest = label.removeprefix("functions").lstrip("._:")
    for name in sorted(tools, key=len, reverse=True):
        if rest.startswith(name) and (hit := _KIMI_INDEX.fullmatch(rest, len(name))) is not None:
            return name, f"functions.{name}:{hit[1]}" if hit[1] else None
    return None


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
