"""Searching long texts for the texts of tokens, in pieces, so that other threads can run in between.

A regular expression holds the interpreter's lock until it finds a match. In a text of megabytes without a match, this
would stop the event loop for the time of the search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

AT_ONCE: Final = 65_536
"""Number of characters that are searched in one piece. This takes milliseconds, whatever the text."""


def found_in(
    text: str, pattern: re.Pattern[str], *, longest: int, at_once: int = AT_ONCE
) -> Iterator[re.Match[str]]:
    """The matches of `pattern.finditer(text)`. A match, including the pattern's look-ahead, must have at most `longest`
    characters, and must not depend on the text before it."""
    start, end = 0, len(text)
    while start < end:
        until = start + at_once
        at = until
        for found in pattern.finditer(text, start, min(end, until + longest)):
            if found.start() >= until:
                break
            yield found
            at = max(at, found.end())
        start = at


def any_of(texts: Sequence[str], *, overlapping: bool) -> re.Pattern[str] | None:
    """A pattern that finds the longest of `texts` at each position. If `overlapping`, the match is in group 1, and
    further matches may begin inside it."""
    if not texts:
        return None
    trie: dict[str, dict[str, object]] = {}
    for text in texts:
        node: dict[str, object] = trie  # type: ignore[assignment]
        for character in text:
            node = node.setdefault(character, {})  # type: ignore[assignment]
        node[""] = {}
    source = _source(trie)
    return re.compile(f"(?=({source}))" if overlapping else source)


def _source(node: Mapping[str, object]) -> str:
    """A trie as a regular expression."""
    literal = ""
    while len(node) == 1 and "" not in node:
        ((character, node),) = node.items()  # type: ignore[assignment]
        literal += re.escape(character)
    branches = [
        re.escape(character) + _source(following)  # type: ignore[arg-type]
        for character, following in node.items()
        if character
    ]
    if not branches:
        return literal
    return f"{literal}(?:{'|'.join(branches)}){'?' if '' in node else ''}"
