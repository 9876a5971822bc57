"""Prompts as token ids: markers as special tokens, everything that somebody wrote as ordinary text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from gateway.errors import ConfigurationError
from gateway.protocols.engine import Tokenizer
from gateway_harmony.markers import MARKERS, PATTERN

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding  # type: ignore[import-untyped]

_SAMPLE = "In 2024, naïve café-goers' 12345 emails\n\n\tcost €9.99; 日本語 and 🙂 aren't the same as ÀÉ.  "
_SPECIAL = re.compile(r"<(?=[|｜])")
"""Where the text of a special token may begin, in any vocabulary that has Harmony's."""


@lru_cache(maxsize=1)
def harmony() -> HarmonyEncoding:
    """OpenAI's encoding with the vocabulary of gpt-oss; loaded once, from the installed package."""
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


class TextEncoder(Protocol):
    """Encodes text of which no part becomes a special token."""

    def ordinary(self, text: str) -> list[int]: ...


class O200kEncoder:
    """For models with the vocabulary of gpt-oss."""

    def ordinary(self, text: str) -> list[int]:
        ids: list[int] = harmony().encode(text, disallowed_special=())
        return ids


class SplittingEncoder:
    """For any other vocabulary. Its tokenizer takes special tokens wherever they are written; cut in two they are none."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def ordinary(self, text: str) -> list[int]:
        encode = self._tokenizer.encode
        if not _SPECIAL.search(text):
            return encode(text)
        ids: list[int] = []
        at = 0
        for found in _SPECIAL.finditer(text):
            ids += encode(text[at : found.end()])
            at = found.end()
        return ids + encode(text[at:])


class PromptEncoder:
    """Encodes prompts for one model. Raises `ConfigurationError` where the model has no tokenizer.

    A marker that is no special token of the model's vocabulary is written in ordinary ones.
    """

    def __init__(self, tokenizer: Tokenizer | None, model: str) -> None:
        if tokenizer is None:
            raise ConfigurationError(
                f"The renderer 'harmony' makes token ids, and the engine of model {model!r} has no tokenizer: choose "
                "the renderer that belongs to this engine."
            )
        self.markers = {marker: tokenizer.encode(marker) for marker in MARKERS}
        self._text: TextEncoder = (
            O200kEncoder() if _is_o200k(tokenizer) else SplittingEncoder(tokenizer)
        )
        self._header = lru_cache(maxsize=512)(self._text.ordinary)

    def encode(self, header: str, content: str, end: str) -> list[int]:
        """One message: `header` and `end` are markup, in which markers count; in `content` they do not."""
        return [*self.markup(header), *self._text.ordinary(content), *self.markup(end)]

    def markup(self, text: str) -> list[int]:
        """Text of our own, with its markers."""
        ids: list[int] = []
        at = 0
        for found in PATTERN.finditer(text):
            if found.start() > at:
                ids += self._header(text[at : found.start()])
            ids += self.markers[found[0]]
            at = found.end()
        return ids + self._header(text[at:]) if at < len(text) else ids

    def single(self, markers: Sequence[str]) -> list[int]:
        """The ids of those of `markers` that are one token."""
        return [self.markers[marker][0] for marker in markers if len(self.markers[marker]) == 1]


def _is_o200k(tokenizer: Tokenizer) -> bool:
    known = harmony()
    if any(
        tokenizer.encode(each) != known.encode(each, allowed_special={each}) for each in MARKERS
    ):
        return False
    return bool(tokenizer.encode(_SAMPLE) == known.encode(_SAMPLE))
