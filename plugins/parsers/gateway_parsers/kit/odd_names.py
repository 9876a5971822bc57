"""Names of parameters that contain the `>` that ends their tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Final

from gateway_parsers.kit.syntax import MAX_NAME

_REST: Final = {
    quote: re.compile(
        rf"[^{quote}<\n]*{quote}[ \t]*(?:[\w:.-]{{1,64}}[ \t]*=[ \t]*{quote}[^{quote}<\n]*{quote}[ \t]*){{0,8}}>"
    )
    for quote in "\"'"
}
"""The rest of a tag with such a name, which is at most `MAX_NAME` characters long."""
_REST_SO_FAR: Final = re.compile(r"[^<\n]*")
_PART: Final = re.compile(r"[^<>\n]{1,128}")
_MANY: Final = 256
"""Parameters of a tool among which one with such a name is searched."""


def has_odd_names(names: Mapping[str, object]) -> bool:
    """Whether one of a tool's parameters has such a name."""
    return any(">" in name for name in islice(names, _MANY))


def more_of_quoted(head: str, text: str, pos: int, *, final: bool) -> int | None:
    """The number of characters from the `>` at `pos` on that belong to the quoted name that `head`, the tag so far, has
    begun; None if more text is needed."""
    quote = next((mark for mark in "\"'" if head.count(mark) % 2), "")
    if not quote:
        return 0
    hit = _REST[quote].match(text, pos, pos + MAX_NAME)
    if hit is not None:
        return hit.end() - 1 - pos
    begun = _REST_SO_FAR.match(text, pos)
    waits = begun is not None and begun.end() == len(text) and len(text) - pos <= MAX_NAME
    return None if waits and not final else 0


def more_of_known(
    head: str, names: Mapping[str, object], text: str, pos: int, *, final: bool
) -> int | None:
    """Like `more_of_quoted`, for a name without quotation marks that starts with `head`: it is one of `names`."""
    if pos + 1 == len(text) and not final:
        return None
    end = pos
    while (hit := _PART.match(text, end + 1)) is not None:
        if hit.end() - pos > MAX_NAME:
            break
        if hit.end() == len(text) and not final:
            return None
        if text[hit.end() : hit.end() + 1] != ">":
            break
        if head + text[pos : hit.end()] in names:
            return hit.end() - pos
        end = hit.end()
        if end + 1 == len(text) and not final:
            return None
    return 0
