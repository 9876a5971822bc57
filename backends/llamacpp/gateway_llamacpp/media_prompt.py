"""Prompts with images or sounds, in the form that llama.cpp takes them: a text with a marker in the place of each."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from gateway.sdk import InvalidRequest, Media, PlacedMedia
from gateway_llamacpp.tokenizer import LlamaCppTokenizer
from gateway_llamacpp.vocabulary import Vocabulary

_BREAK = "\u2060"
"""Word joiner. It is put into texts that spell a control token, so that they are not read as one."""
_COUNTS = 1024


class _Count(msgspec.Struct):
    input_tokens: int


class Cached:
    """Media as the key of a cache: equal if their hashes are."""

    def __init__(self, media: Media) -> None:
        self.media = media

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cached) and other.media.sha256 == self.media.sha256

    def __hash__(self) -> int:
        return hash(self.media.sha256)


class MediaPrompts:
    """Makes the prompts of one loaded model. Thread-safe."""

    def __init__(self, tokenizer: LlamaCppTokenizer, vocabulary: Vocabulary, marker: str) -> None:
        """`marker` is llama.cpp's own, random for each process."""
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._marker = marker
        added = tokenizer.added_tokens
        self._added = frozenset(token.id for token in added.values())
        longest_first = sorted(filter(None, added), key=len, reverse=True)
        self._spelled = re.compile("|".join(map(re.escape, longest_first))) if added else None
        self._tokens = lru_cache(maxsize=_COUNTS)(self._count)
        self._without = 0

    def tokens(self, media: Media) -> int:
        """Number of tokens of an image or a sound in a prompt. Asks llama.cpp once for each."""
        return self._tokens(Cached(media))

    def check(self, ids: Sequence[int], media: Sequence[PlacedMedia]) -> None:
        """Raise `InvalidRequest` if the text of the prompt would be read as other control tokens than it has.

        With media, llama.cpp takes text alone and reads control tokens in it.
        """
        read = self._tokenizer.encode(self.text(ids, media))
        if [token for token in read if token in self._added] != [
            token for token in ids if token in self._added
        ]:
            raise InvalidRequest(
                "The text of this prompt cannot be told apart from the model's control tokens. Remove them from the text,"
                " or send it without images and sounds.",
                param="input",
            )

    def text(self, ids: Sequence[int], media: Sequence[PlacedMedia]) -> str:
        """The prompt as text, with a marker for each image and sound."""
        parts: list[str] = []
        start = 0
        for placed in media:
            parts += self._text(ids[start : placed.at]), self._marker
            start = placed.at
        parts.append(self._text(ids[start:]))
        return "".join(parts)

    def body(self, ids: Sequence[int], media: Sequence[PlacedMedia]) -> Any:
        """The field `prompt` of a completion."""
        if not media:
            return list(ids)
        return {
            "prompt_string": self.text(ids, media),
            "multimodal_data": [placed.media.data for placed in media],
        }

    def _text(self, ids: Sequence[int]) -> str:
        """The text of tokens. What is not an added token spells none."""
        parts: list[str] = []
        start = 0
        for place, token in enumerate(ids):
            if token in self._added:
                parts += self._ordinary(ids[start:place]), self._vocabulary.text_of[token]
                start = place + 1
        parts.append(self._ordinary(ids[start:]))
        return "".join(parts)

    def _ordinary(self, ids: Sequence[int]) -> str:
        text = self._vocabulary.decode(ids)
        if self._spelled is None:
            return text
        return self._spelled.sub(lambda found: found[0][0] + _BREAK + found[0][1:], text)

    def _count(self, cached: Cached) -> int:
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
