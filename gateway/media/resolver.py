"""Finding the images and sounds in the turns of one answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from operator import is_

from gateway.base.errors import InvalidRequest
from gateway.media.concurrently import for_each
from gateway.media.parts import MediaPart, media_parts, result_images
from gateway.media.refused import FILE_TOO_LARGE, MediaRefused
from gateway.plugins.protocols import CallRecord, Media, MediaKind, MediaSource
from gateway.wire.items import Item


class MediaResolver:
    """Finds the images and sounds in the turns of one answer. Those of earlier turns are not read again."""

    def __init__(
        self,
        read: Callable[[MediaSource, str], Awaitable[Media]],
        owner: str,
        *,
        kinds: Collection[MediaKind],
        max_parts: int,
        max_total_bytes: int,
    ) -> None:
        """`read` reads one source for `owner`, and raises `MediaRefused`. `max_total_bytes` limits the encoded media.
        `MediaReader.resolver` makes resolvers."""
        self._read = read
        self._owner = owner
        self._kinds = kinds
        self._max_parts = max_parts
        self._max_total_bytes = max_total_bytes
        self._items: Sequence[Item] = ()
        self._parts: Sequence[MediaPart] = ()
        """The images and sounds in `_items`."""
        self._media: Mapping[MediaSource, Media] = {}
        self._of_results: dict[MediaSource, Media | None] = {}
        """Images in results of the gateway's tools; None for images that cannot be read."""

    async def resolve(self, items: Sequence[Item]) -> Mapping[MediaSource, Media]:
        """The media of all images and sounds in `items`, and possibly of those in earlier turns.

        Items of the previous call are not examined again. Raises `InvalidRequest`, with the path of the part, or
        `RateLimited`.
        """
        seen = len(self._items)
        same = len(items) >= seen and all(map(is_, self._items, items))
        new = [
            part
            for part in media_parts(items, seen if same else 0)
            if part.source.kind in self._kinds
        ]
        parts = [*self._parts, *new] if same else new
        if len(parts) > self._max_parts:
            raise InvalidRequest(
                f"The conversation has more than {self._max_parts} images and sounds, the limit of this server. "
                "Leave some out.",
                param=parts[self._max_parts].param,
                code="too_many_images",
            )
        missing = {part.source: part for part in reversed(new) if part.source not in self._media}
        if missing:
            found = await self._read_all(list(reversed(missing.values())))
            self._media = {**self._media, **found}
        if new:
            self._check_total(parts)
        self._items, self._parts = items, parts
        return self._media

    async def resolve_results(
        self, items: Sequence[Item], results: Mapping[str, CallRecord]
    ) -> Mapping[MediaSource, Media]:
        """The media of the images in results of the gateway's tools. `resolve` must have been called with `items`
        before.

        The newest images that the limits allow are included. Broken images are left out. Raises `RateLimited`.
        """
        if "image" not in self._kinds:
            return {}
        images = list(result_images(items, results))
        parts_left = self._max_parts - len(self._parts)
        bytes_left = self._max_total_bytes - self._size_of(self._parts)
        found: dict[MediaSource, Media] = {}
        for part in reversed(images[max(0, len(images) - parts_left) :] if parts_left else []):
            media = await self._result_image(part)
            if media is not None and part.source not in found and part.source not in self._media:
                bytes_left -= len(media.data)
                if bytes_left < 0:
                    break
                found[part.source] = media
        return found

    async def _result_image(self, part: MediaPart) -> Media | None:
        source = part.source
        if source not in self._of_results:
            media: Media | None = None
            with suppress(MediaRefused):
                media = await self._read(source, self._owner)
            self._of_results[source] = media
        return self._of_results[source]

    async def _read_all(self, parts: Sequence[MediaPart]) -> dict[MediaSource, Media]:
        found: dict[MediaSource, Media] = {}
        total = 0

        async def read(part: MediaPart) -> None:
            nonlocal total
            media = await self._read_part(part)
            total += len(media.data)
            if total > self._max_total_bytes:
                raise self._too_many_bytes(part)
            found[part.source] = media

        await for_each(parts, read)
        return found

    async def _read_part(self, part: MediaPart) -> Media:
        try:
            return await self._read(part.source, self._owner)
        except MediaRefused as refused:
            raise InvalidRequest(
                refused.message, param=part.value_param, code=refused.code
            ) from None

    def _size_of(self, parts: Sequence[MediaPart]) -> int:
        return sum(len(self._media[part.source].data) for part in parts)

    def _check_total(self, parts: Sequence[MediaPart]) -> None:
        total = 0
        for part in parts:
            total += len(self._media[part.source].data)
            if total > self._max_total_bytes:
                raise self._too_many_bytes(part)

    def _too_many_bytes(self, part: MediaPart) -> InvalidRequest:
        return InvalidRequest(
            f"The images and sounds of the conversation have more than {self._max_total_bytes} bytes together, the "
            "limit of this server. Leave some out, or send them with 'detail': 'low'.",
            param=part.param,
            code=FILE_TOO_LARGE,
        )
