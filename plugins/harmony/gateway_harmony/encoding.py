"""Encodes prompts: markers as special tokens, all other text as ordinary tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from gateway.sdk import ConfigurationError, Tokenizer
from gateway.sdk.engines import OriginEncoder, TokenCache
from gateway_harmony.markers import MARKERS, Markup

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding  # type: ignore[import-untyped]

_PIECE = 8192
"""Length in characters of a piece of a long text: some milliseconds."""
_PART = 65_536
"""Number of token ids that are copied at once: less than a millisecond."""
_BETWEEN_WORDS = re.compile(r"(?<=[A-Za-z]) (?=[A-Za-z])")
"""Where the vocabulary's pattern always divides a text: a letter and a space after it are never in one token, and what begins
with a space does not depend on what is before it."""
_SAMPLE = "In 2024, naïve café-goers' 12345 emails\n\n\tcost €9.99; 日本語 and 🙂 aren't the same as ÀÉ.  "


@lru_cache(maxsize=1)
def harmony() -> HarmonyEncoding:
    """OpenAI's encoding with the vocabulary of gpt-oss. Loaded once, from the installed package."""
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


class TextEncoder(Protocol):
    """Encodes text as ordinary tokens; no part of it becomes a special token."""

    def ordinary(self, text: str) -> list[int]: ...


class O200kEncoder:
    """Encoder for models with the vocabulary of gpt-oss. Encodes long texts in pieces, because the library holds the
    interpreter's lock, so that no other request is served meanwhile."""

    def ordinary(self, text: str) -> list[int]:
        ids: list[int] = []
        at = 0
        while len(text) - at > _PIECE and (space := _BETWEEN_WORDS.search(text, at + _PIECE)):
            ids += harmony().encode(text[at : space.start()], disallowed_special=())
            at = space.start()
        ids += harmony().encode(text[at:], disallowed_special=())
        return ids


class PromptEncoder:
    """Encodes prompts for one model. Raises `ConfigurationError` if the model has no tokenizer.

    The token ids of contents are kept for later prompts, in at most `cache_bytes` bytes. A marker that is not a special token in the model's vocabulary is encoded as ordinary text.
    """

    def __init__(self, tokenizer: Tokenizer | None, model: str, *, cache_bytes: int = 0) -> None:
        if tokenizer is None:
            raise ConfigurationError(
                f"The renderer 'harmony' produces token ids, but the engine of model {model!r} has no tokenizer: choose "
                "the renderer that belongs to this engine."
            )
        self.markers = {marker: tokenizer.encode(marker) for marker in MARKERS}
        self._text: TextEncoder = (
            O200kEncoder() if _is_o200k(tokenizer) else OriginEncoder(tokenizer, markers=MARKERS)
        )
        self._header = lru_cache(maxsize=512)(self._text.ordinary)
        self._cache = TokenCache(cache_bytes) if cache_bytes else None

    def add(
        self,
        ids: list[int],
        header: Markup,
        content: str,
        end: Markup,
        *,
        scope: str | None = None,
    ) -> None:
        """Encode one message, and add its token ids to `ids`. No text in it becomes a special token. For `scope` see
        `OriginEncoder.encode`."""
        ids += self.markup(header)
        said = self._content(content, scope)
        # In parts, because nothing else runs while a part is added.
        for at in range(0, len(said), _PART):
            ids += said[at : at + _PART]
        ids += self.markup(end)

    def _content(self, text: str, scope: str | None) -> Sequence[int]:
        if self._cache is None or scope is None:
            return self._text.ordinary(text)
        key = (scope, text)
        ids = self._cache.get(key)
        if ids is None:
            ids = self._text.ordinary(text)
            self._cache.keep(key, key, ids)
        return ids

    def markup(self, markup: Markup) -> list[int]:
        """Encode markers as special tokens, and the text after each as ordinary tokens."""
        ids: list[int] = []
        for marker, text in markup:
            ids += self.markers[marker]
            if text:
                ids += self._header(text)
        return ids

    def single(self, markers: Sequence[str]) -> list[int]:
        """Token ids of those `markers` that are a single token."""
        return [self.markers[marker][0] for marker in markers if len(self.markers[marker]) == 1]


def _is_o200k(tokenizer: Tokenizer) -> bool:
    known = harmony()
    if any(
        tokenizer.encode(each) != known.encode(each, allowed_special={each}) for each in MARKERS
    ):
        return False
    return bool(tokenizer.encode(_SAMPLE) == known.encode(_SAMPLE))
