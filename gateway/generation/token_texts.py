"""Decoding many tokens without blocking other requests. The functions are called in a thread, and decode in pieces,
because a tokenizer may hold the interpreter's lock while it decodes."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.plugins.protocols import Tokenizer

_AT_ONCE = 8192
"""Number of tokens that are decoded in one piece, which takes some milliseconds."""
_CHARACTER = 4
"""Maximum number of tokens of one character: one for each of its bytes."""


def text_of_tokens(
    tokenizer: Tokenizer, token_ids: Sequence[int], *, skip_special_tokens: bool = False
) -> str:
    """Like `tokenizer.decode`, for any number of tokens, in linear time."""
    if len(token_ids) <= _AT_ONCE:
        return tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)
    parts: list[str] = []
    begin = 0
    while begin < len(token_ids):
        end = begin + _AT_ONCE
        # A piece is decoded with the tokens before it, because the text that a token adds may depend on them.
        context = max(0, begin - _CHARACTER)
        for _ in range(_CHARACTER):
            text = tokenizer.decode(token_ids[context:end], skip_special_tokens=skip_special_tokens)
            if not text.endswith("\ufffd"):
                break
            end += 1
        before = tokenizer.decode(token_ids[context:begin], skip_special_tokens=skip_special_tokens)
        parts.append(text[len(before) :])
        begin = end
    return "".join(parts)


def token_texts(tokenizer: Tokenizer, token_ids: Sequence[int]) -> list[str]:
    """Return the text of each token, decoded by itself. Repeated tokens are decoded once."""
    texts: dict[int, str] = {}
    found: list[str] = []
    for token in token_ids:
        text = texts.get(token)
        if text is None:
            text = texts[token] = tokenizer.decode([token])
        found.append(text)
    return found
