"""The texts of many tokens, made beside other requests: in a thread, and in pieces, since a tokenizer may hold the interpreter's
lock while it decodes."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.protocols import Tokenizer

_AT_ONCE = 8192
"""Number of tokens that are decoded at once: some milliseconds."""
_CHARACTER = 4
"""Number of tokens that a character may have at most: one for each of its bytes."""


def text_of_tokens(
    tokenizer: Tokenizer, token_ids: Sequence[int], *, skip_special_tokens: bool = False
) -> str:
    """`tokenizer.decode` for any number of tokens. Takes a time in proportion to it."""
    if len(token_ids) <= _AT_ONCE:
        return tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)
    parts: list[str] = []
    begin = 0
    while begin < len(token_ids):
        end = begin + _AT_ONCE
        # A piece has the tokens before it in front, as what a token adds to a text may depend on them.
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
    """The text of each token by itself. Each that is repeated is decoded once."""
    texts: dict[int, str] = {}
    found: list[str] = []
    for token in token_ids:
        text = texts.get(token)
        if text is None:
            text = texts[token] = tokenizer.decode([token])
        found.append(text)
    return found
