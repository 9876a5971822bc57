"""Images and sounds for llama-server: prompts as text with its marker in the place of each, and their numbers of tokens."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway.sdk import EngineUnavailable, InvalidRequest, Media, PlacedMedia, Unsupported
from gateway.sdk.caches import LruCache
from gateway.sdk.engines import MediaText
from gateway_remote.client import ReplicaClient
from gateway_remote.failures import ReplicaFailure, read_error
from gateway_remote.pool import Pool
from gateway_remote.reading import reader_of
from gateway_remote.replica import Endpoint
from gateway_remote.tokenizer import JsonTokenizer

COUNT_PATH: Final = "/v1/chat/completions/input_tokens"
_TIMEOUT: Final = 30.0
_COUNTS: Final = 1024
"""Numbers of tokens that are kept, by the media's hashes."""
_ANY_MARKER: Final = "<__media__>"
"""Of servers that have no other."""


class _Props(Struct):
    media_marker: str = ""


class _Count(Struct):
    input_tokens: int


class LlamaServerMedia:
    """Media in the prompts of one model. Bound to an event loop."""

    def __init__(self, client: ReplicaClient, pool: Pool, tokenizer: JsonTokenizer) -> None:
        self._client = client
        self._pool = pool
        bytes_of = tokenizer.bytes_of
        self._texts = MediaText(
            tokenizer.added_tokens,
            encode=tokenizer.encode,
            decode=lambda ids: b"".join(bytes_of[each] for each in ids).decode("utf-8", "replace"),
        )
        self._counts = LruCache[str, int](_COUNTS)

    def check(self, ids: Sequence[int], media: Sequence[PlacedMedia]) -> None:
        """Raise `InvalidRequest` if the prompt's text would be read as other control tokens than it has."""
        self._texts.check(ids, media, _ANY_MARKER)

    async def prompt(
        self, where: Endpoint, ids: Sequence[int], media: Sequence[PlacedMedia]
    ) -> dict[str, Any]:
        """The field `prompt` for the replica at `where`. Raises `ReplicaFailure`.

        A server's marker may be random, and another one after each start.
        """
        props = await self._client.get(where, "/props", _Props, within=_TIMEOUT)
        return {
            "prompt_string": self._texts.write(ids, media, props.media_marker or _ANY_MARKER),
            "multimodal_data": [placed.media.data for placed in media],
        }

    async def count(self, media: Sequence[PlacedMedia]) -> int:
        """The number of tokens of images and sounds. Asks a server once for each."""
        return sum([await self._tokens(placed) for placed in media])

    def counted(self, media: Sequence[PlacedMedia]) -> int:
        """The same for what has been counted."""
        return sum(self._counts.get(placed.media.sha256) or 0 for placed in media)

    async def _tokens(self, placed: PlacedMedia) -> int:
        media = placed.media
        known = self._counts.get(media.sha256)
        if known is None:
            try:
                known = await self._counted([_part(media)]) - await self._counted([])
            except InvalidRequest as error:
                error.at = placed.param
                raise
            self._counts.put(media.sha256, known)
        return known

    async def _counted(self, parts: Sequence[dict[str, Any]]) -> int:
        content = [{"type": "text", "text": "a"}, *parts]
        body = msgspec.json.encode({"messages": [{"role": "user", "content": content}]})
        replicas = (each for each in self._pool.replicas if not each.draining and not each.down)
        replica = next(replicas, None)
        if replica is None:
            raise self._pool.unavailable()
        try:
            status, answer = await self._client.post(
                replica.endpoint, COUNT_PATH, body, within=_TIMEOUT
            )
            if status == 200:
                return reader_of(_Count)(answer).input_tokens
        except (ReplicaFailure, msgspec.DecodeError) as error:
            raise EngineUnavailable(f"The engine does not count the tokens of images: {error}.") from error  # fmt: skip
        if status in (400, 413, 422):
            raise InvalidRequest(read_error(answer, status).message)
        raise Unsupported("The engine of this model does not tell how many tokens images have.")


async def counts_media(client: ReplicaClient, where: Endpoint) -> bool:
    """Whether the server tells how many tokens a message has."""
    body = msgspec.json.encode({"messages": [{"role": "user", "content": "a"}]})
    return await client.status(where, COUNT_PATH, within=_TIMEOUT, body=body) == 200


def _part(media: Media) -> dict[str, Any]:
    data = b64encode(media.data).decode()
    if media.kind == "image":
        url = f"data:{media.media_type};base64,{data}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
