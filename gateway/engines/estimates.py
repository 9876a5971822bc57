"""Estimating token counts, for use without a tokenizer and without a count from the server.

Four ASCII characters or two other characters count as a token. This is about right for English and for Chinese text,
and never much too small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from gateway.base.deltas import CallStarted, Delta
from gateway.plugins.protocols import ChatPrompt

_MEDIA_TOKENS: Final = 256
"""Number of tokens that an image, a sound or a file counts as. The real number cannot be derived from its data."""
_MEDIA: Final = frozenset(
    {
        "audio",
        "document",
        "file",
        "image",
        "image_url",
        "input_audio",
        "input_file",
        "input_image",
        "input_video",
        "video",
        "video_url",
    }
)
"""Types of content parts with media, in Chat Completions and Responses."""


class TokenEstimate:
    """Adds up an estimate from pieces of text. The result does not depend on how the text is divided into pieces."""

    __slots__ = ("_quarters",)

    def __init__(self) -> None:
        self._quarters = 0

    @property
    def tokens(self) -> int:
        """The estimate so far, rounded up."""
        return -(-self._quarters // 4)

    def add(self, text: str) -> None:
        """Add a piece of text."""
        size = len(text)
        if not text.isascii():
            size += size - len(text.encode("ascii", "ignore"))
        self._quarters += size

    def add_media(self) -> None:
        """Add an image, a sound or a file."""
        self._quarters += 4 * _MEDIA_TOKENS

    def see(self, deltas: Iterable[Delta]) -> None:
        """Add the text of parsed output."""
        for delta in deltas:
            text = delta.name if type(delta) is CallStarted else getattr(delta, "text", None)
            if text:
                self.add(text)


def estimated_tokens(texts: Iterable[str | Sequence[int]]) -> int:
    """The estimate for all `texts` together. Texts that are given as tokens are counted exactly."""
    tokens = 0
    for text in texts:
        if isinstance(text, str):
            estimate = TokenEstimate()
            estimate.add(text)
            tokens += estimate.tokens
        else:
            tokens += len(text)
    return tokens


def estimated_prompt(prompt: ChatPrompt) -> int:
    """The estimate for a prompt of messages: their texts, the definitions of tools, and the markup that a template
    adds."""
    estimate = TokenEstimate()
    _add(prompt.messages, estimate)
    if prompt.tools or prompt.extra:
        estimate.add(msgspec.json.encode((prompt.tools, prompt.extra)).decode())
    return estimate.tokens


def _add(value: Any, estimate: TokenEstimate) -> None:
    match value:
        case str():
            estimate.add(value)
        case dict():
            if value.get("type") in _MEDIA:
                estimate.add_media()
                return
            for name, each in value.items():
                if name != "type":
                    _add(each, estimate)
        case list() | tuple():
            for each in value:
                _add(each, estimate)
        case _:
            pass
