"""Strings whose delimiter models also use as a quotation mark inside, or omit at the start (Gemma)."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

from gateway_parsers.kit.markers import WHITESPACE, MarkerSet
from gateway_parsers.kit.reader import skip

_MAX_GAP: Final = 30
_KEY: Final = re.compile(
    rf"""\s{{0,{_MAX_GAP}}}["']?([\w$.-]{{1,64}})["']?\s{{0,{_MAX_GAP}}}[:=]"""
)
_KEY_SO_FAR: Final = re.compile(
    rf"""\s{{0,{_MAX_GAP}}}["']?[\w$.-]{{0,64}}["']?\s{{0,{_MAX_GAP}}}"""
)
_SCALAR: Final = re.compile(
    rf"\s{{0,{_MAX_GAP}}}(?:-?[0-9][0-9.]{{0,20}}|true|false|null|True|False|None)\s{{0,{_MAX_GAP}}}[,)}}\]]"
)
_SCALAR_SO_FAR: Final = re.compile(
    rf"\s{{0,{_MAX_GAP}}}-?\w{{0,24}}[0-9.]{{0,20}}\s{{0,{_MAX_GAP}}}"
)
_MAX_KEY: Final = 128
_MAX_WORD: Final = 400
"""Characters after a comma or bracket within which the end of an unmarked string is searched."""
_OPENERS: Final = ":=[,{("


def closes(
    text: str,
    after: int,
    *,
    mark: str,
    keys: Container[str] | None,
    in_object: bool,
    stops: MarkerSet,
    final: bool,
) -> bool | None:
    """Whether the mark before `after` ends its string rather than being text in it; None if more text is needed.

    It does if something that can follow a value comes next. `keys`: possible members of the enclosing object; None:
    any.
    """
    start = skip(text, after, WHITESPACE)
    rest = len(text) - start
    if start - after > _MAX_KEY:
        return True
    if not rest:
        return True if final else None
    if stops.at(text, start) is not None:
        return True
    if stops.begins_at(text, start) or (rest < len(mark) and mark.startswith(text[start:])):
        return True if final else None
    char = text[start]
    if char in "]}":
        return True
    if char == ")":
        following = skip(text, start + 1, WHITESPACE + "})")
        if following - start > _MAX_KEY:
            return False
        if following == len(text):
            return True if final else None
        if not final and stops.begins_at(text, following):
            return None
        return stops.at(text, following) is not None
    if not in_object:
        return char == ","
    at = start + 1 if char == "," else start
    hit = _KEY.match(text, at)
    if hit is not None:
        return keys is None or hit[1] in keys or _is_scalar_next(text, hit.end(), final=final)
    so_far = _KEY_SO_FAR.match(text, at)
    if so_far is not None and so_far.end() == len(text) and len(text) - at < _MAX_KEY:
        return char == "," if final else None
    return char == "," and text[at : at + 2 * _MAX_GAP + 1].lstrip(WHITESPACE)[:1] == "}"


def _is_scalar_next(text: str, pos: int, *, final: bool) -> bool | None:
    """Whether a number or a literal follows, as it does after a key that the schema does not list; None if more text is
    needed."""
    if _SCALAR.match(text, pos):
        return True
    begun = _SCALAR_SO_FAR.match(text, pos)
    waits = begun is not None and begun.end() == len(text) and len(text) - pos < _MAX_KEY
    return None if waits and not final else False


def continues(text: str, at: int, *, mark: str, stops: MarkerSet, final: bool) -> bool | None:
    """Whether an unmarked string continues after the comma or bracket at `at`, because a mark ends it later; None if
    more text is needed."""
    limit = at + _MAX_WORD
    end = text.find(mark, at, limit)
    stop = stops.near(text, at, _MAX_WORD)
    if stop is not None and (end < 0 or at + stop[0] < end):
        return False
    if end < 0:
        return False if final or len(text) >= limit + max(len(mark), stops.longest) else None
    return text[at:end].rstrip(WHITESPACE)[-1:] not in _OPENERS
