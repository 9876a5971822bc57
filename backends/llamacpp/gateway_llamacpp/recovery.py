"""Recovers token ids that llama.cpp's stream omits.

Its server sends no chunk for a token that ends inside a UTF-8 character. The next chunk reveals how many there were and
their text; the ids are found in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway_llamacpp.vocabulary import Vocabulary


def ends_inside_character(data: bytes) -> bool:
    """Whether `data` ends in an incomplete UTF-8 sequence, by the rule of llama.cpp's `validate_utf8`."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        length = (
            2
            if byte & 0xE0 == 0xC0
            else 3
            if byte & 0xF0 == 0xE0
            else 4
            if byte & 0xF8 == 0xF0
            else 0
        )
        if length:
            return back < length
    return False


_UNFINISHED = (
    b"\xc3",
    b"\xe3",
    b"\xf0",
    b"\xe3\x81",
    b"\xf0\x9f",
    b"\xf0\x9f\x98",
    b"\xc2",
    b"\xed",
    b"\xf4",
)
"""Incomplete characters that a replacement character may stand for."""
_REPLACEMENT = "\ufffd".encode()


def recover(
    vocabulary: Vocabulary, data: bytes, after: bytes, count: int
) -> tuple[int, ...] | None:
    """`count` tokens that spell `data`, each ending inside a character; None if there are none. `after`: the following
    bytes.

    Of several spellings, the one with the smallest maximum id is chosen: tokenizers give early merges low ids, so it is
    the one used in training. For malformed UTF-8 llama.cpp reports only its presence; then the tokens are some that
    give the same text.
    """
    found = _one_spelling(vocabulary, data, count)
    if found is not None or _REPLACEMENT not in data:
        return found
    text = (data + after).decode("utf-8", "replace")
    for start in _UNFINISHED:
        malformed = data.replace(_REPLACEMENT, start)
        if (malformed + after).decode("utf-8", "replace") == text:
            found = _one_spelling(vocabulary, malformed, count)
            if found is not None:
                return found
    return None


def _one_spelling(vocabulary: Vocabulary, data: bytes, count: int) -> tuple[int, ...] | None:
    spellings = _spellings(vocabulary, data, 0, count)
    return min(spellings, key=lambda ids: sorted(ids, reverse=True), default=None)


def _spellings(
    vocabulary: Vocabulary, data: bytes, start: int, count: int
) -> Iterator[tuple[int, ...]]:
    ends = range(start + 1, len(data) - count + 2) if count > 1 else (len(data),)
    for end in ends:
        token = vocabulary.id_of(data[start:end])
        if token is None or not ends_inside_character(data[:end]):
            continue
        if count == 1:
            yield (token,)
            continue
        for rest in _spellings(vocabulary, data, end, count - 1):
            yield (token, *rest)
