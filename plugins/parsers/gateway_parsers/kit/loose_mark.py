"""Strings whose mark models also write for a quotation mark inside them, or leave out at their beginning (Gemma)."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

from gateway_parsers.kit.markers import WHITESPACE, MarkerSet, Position
from gateway_parsers.kit.reader import skip

_ANYWHERE: Final = Position()
_KEY: Final = re.compile(r"""\s*["']?([\w$.-]{1,64})["']?\s*:""")
_KEY_SO_FAR: Final = re.compile(r"""\s*["']?[\w$.-]{0,64}["']?\s*""")
_MAX_KEY: Final = 128
_MAX_WORD: Final = 400
"""Characters behind a comma or bracket within which the end of an unmarked string is looked for."""
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
    """Whether the mark before `after` ends its string, and is no quotation mark in it. None: more text must come.

    It ends it if what can follow a value does. `keys`: the members that the object around it may have; None: any.
    """
    start = skip(text, after, WHITESPACE)
    rest = len(text) - start
    if not rest:
        return True if final or start - after > _MAX_KEY else None
    if stops.at(text, start) is not None:
        return True
    if stops.begins_at(text, start) or (rest < len(mark) and mark.startswith(text[start:])):
        return True if final else None
    char = text[start]
    if char in "]}":
        return True
    if char == ")":
        following = skip(text, start + 1, WHITESPACE + "})")
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
        return keys is None or hit[1] in keys
    so_far = _KEY_SO_FAR.match(text, at)
    if so_far is not None and so_far.end() == len(text) and len(text) - at < _MAX_KEY:
        return char == "," if final else None
    return char == "," and text[skip(text, at, WHITESPACE)] == "}"


def goes_on(text: str, at: int, *, mark: str, stops: MarkerSet, final: bool) -> bool | None:
    """Whether an unmarked string goes on behind the comma or bracket at `at`: then its end has a mark. None: more text must
    come."""
    limit = at + _MAX_WORD
    end = text.find(mark, at, limit)
    stop = stops.find(text, at, _ANYWHERE, final=True)
    if stop is not None and (end < 0 or stop[0] < end):
        return False
    if end < 0:
        return False if final or len(text) >= limit + len(mark) else None
    return text[at:end].rstrip(WHITESPACE)[-1:] not in _OPENERS
