"""Prompts with images or sounds, in the form that llama.cpp takes them: a text with a marker in the place of each."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from gateway.sdk import Media, PlacedMedia
from gateway.sdk.engines import MediaText
from gateway_llamacpp.tokenizer import LlamaCppTokenizer
from gateway_llamacpp.vocabulary import Vocabulary

_COUNTS = 1024


class _Count(msgspec.Struct):
    input_tokens: int


class MediaKey:
    """Media as the key of a cache: equal if their hashes are."""

    def __init__(self, media: Media) -> None:
        self.media = media

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MediaKey) and other.media.sha256 == self.media.sha256

    def __hash__(self) -> int:
        return hash(self.media.sha256)


class MediaPrompts:
    """Makes the prompts of one loaded model. Thread-safe."""

    def __init__(self, tokenizer: LlamaCppTokenizer, vocabulary: Vocabulary, marker: str) -> None:
        """`marker` is llama.cpp's own, random for each process."""
        self._tokenizer = tokenizer
        self._marker = marker
        self._texts = MediaText(
            tokenizer.added_tokens, encode=tokenizer.encode, decode=vocabulary.decode
        )
        self._tokens = lru_cache(maxsize=_COUNTS)(self._count)
        self._without = 0

    def tokens(self, media: Media) -> int:
        """Number of tokens of an image or a sound in a prompt. Asks llama.cpp once for each."""
        return self._tokens(MediaKey(media))

    def check(self, ids: Sequence[int], media: Sequence[PlacedMedia]) -> None:
        """Raise `InvalidRequest` if the text of the prompt would be read as other control tokens than it has.

        With media, llama.cpp takes text alone and reads control tokens in it.
        """
        self._texts.check(ids, media, self._marker)

    def text(self, ids: Sequence[int], media: Sequence[PlacedMedia]) -> str:
        """The prompt as text, with a marker for each image and sound."""
        return self._texts.write(ids, media, self._marker)

    def body(self, ids: Sequence[int], media: Sequence[PlacedMedia]) -> Any:
        """The field `prompt` of a completion."""
        if not media:
            return list(ids)
        return {
            "prompt_string": self.text(ids, media),
            "multimodal_data": [placed.media.data for placed in media],
        }

    def _count(self, cached: MediaKey) -> int:
        if not self._without:
            self._without = self._counted([])
        media = cached.media
        data = b64encode(media.data).decode()
        part: dict[str, Any]
        if media.kind == "image":
            url = f"data:{media.media_type};base64,{data}"
            part = {"type": "image_url", "image_url": {"url": url}}
        else:
            part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
        return self._counted([part]) - self._without

    def _counted(self, parts: list[dict[str, Any]]) -> int:
        content = [{"type": "text", "text": "a"}, *parts]
        reply = self._tokenizer.request(
            "POST",
            "/v1/chat/completions/input_tokens",
            {"messages": [{"role": "user", "content": content}]},
        )
        return msgspec.json.decode(reply, type=_Count).input_tokens
