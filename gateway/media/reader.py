"""Reading images and sounds: loading their bytes, and decoding the bytes in helper processes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable
from hashlib import sha256
from importlib.util import find_spec
from typing import Final

from gateway.base.caches import ComputedCache
from gateway.base.errors import ConfigurationError, NotFound, PayloadTooLarge, RateLimited
from gateway.base.net.guard import Resolve, resolve
from gateway.base.process_pool import (
    FunctionFailed,
    HelperDeadlineExceeded,
    HelperFailure,
    PoolBusy,
    ProcessPool,
)
from gateway.config import MediaConfig
from gateway.media.encoded import data_start, decode_base64, is_data_url, too_large
from gateway.media.refused import (
    EMPTY_FILE,
    FILE_NOT_FOUND,
    FILE_TOO_LARGE,
    INVALID_IMAGE,
    INVALID_SOUND,
    INVALID_URL,
    PARSE_ERROR,
    MediaRefused,
)
from gateway.media.resolver import MediaResolver
from gateway.media.shares import OwnerShares
from gateway.media.sounds import DECODED_WIDTH, MAX_RATE, read_sound
from gateway.plugins.protocols import Media, MediaKind, MediaSource
from gateway.storage.files.uploaded import uploaded_files

_AT_ONCE: Final = 8
"""Maximum number of concurrent fetches of one owner; the same number of its files is decoded concurrently."""
_CALLS: Final = 500
"""Number of files that one process decodes before it is replaced."""
_PROCESS_BYTES: Final = 384 << 20
"""Address space in bytes of a helper process, without files and pixels."""
_PIXEL_BYTES: Final = 24
"""Maximum memory in bytes per pixel of a file: the canvases of a WebP decoder, and the image with and without
transparency."""
_WRITTEN_BYTES: Final = 16
"""Maximum memory in bytes per pixel of the image that is encoded."""
_RESULT_BYTES: Final = 4
"""Maximum size in bytes of an encoded pixel."""
_SOUND_COPIES: Final = 4
"""Maximum number of copies of a decoded sound that a process holds at the same time."""

_PRELOAD: Final = (
    "gateway.media.images",
    "gateway.media.sounds",
    "PIL.ImageFile",
    "PIL.GifImagePlugin",
    "PIL.JpegImagePlugin",
    "PIL.MpoImagePlugin",  # JPEG files of some cameras
    "PIL.PngImagePlugin",
    "PIL.TiffImagePlugin",  # reads EXIF data
    "PIL.WebPImagePlugin",
)


class MediaReader:
    """Reads images and sounds for all requests. Leaving this asynchronous context manager ends the helper processes."""

    def __init__(
        self,
        config: MediaConfig,
        *,
        resolve: Resolve = resolve,
    ) -> None:
        """Raises `ConfigurationError` if a package is missing."""
        self.config = config
        try:
            from gateway.media.images import read_image
        except ImportError as error:
            raise ConfigurationError(
                "Models that take images need the package Pillow: pip install 'litegate[media]'."
            ) from error
        self._read_image = read_image
        self._fetcher = None
        if config.allow_hosts:
            try:
                from gateway.media.fetching import MediaFetcher
            except ImportError as error:
                raise ConfigurationError(
                    "Fetching images (media.allow_hosts) needs the package httpx2: pip install 'litegate[media]'."
                ) from error
            self._fetcher = MediaFetcher(config, resolve)
        self._cache = ComputedCache[Hashable, Media](
            config.cache_bytes, lambda media: len(media.data)
        )
        self._fetches = OwnerShares(_AT_ONCE)
        self._decodes = OwnerShares(_AT_ONCE)
        largest = max(config.max_side, config.max_side_high)
        sound = int(config.max_audio_seconds) * MAX_RATE * DECODED_WIDTH
        self._pool = ProcessPool(
            processes=config.decode_processes,
            memory=(
                _PROCESS_BYTES
                + config.max_bytes * 2
                + config.max_pixels * _PIXEL_BYTES
                + max(largest * largest * _WRITTEN_BYTES, sound * _SOUND_COPIES)
            ),
            max_waiting=1024,
            max_result=max(_RESULT_BYTES * largest * largest, config.max_bytes, sound) + (1 << 20),
            max_calls=_CALLS,
            preload=[*_PRELOAD, "miniaudio"] if find_spec("miniaudio") else _PRELOAD,
        )

    def resolver(
        self, owner: str, kinds: Collection[MediaKind] = ("image", "audio")
    ) -> MediaResolver:
        """A resolver for the turns of one answer. Parts whose kind is not in `kinds` are left to the renderer, which
        refuses them."""
        return MediaResolver(
            self.read,
            owner,
            kinds=kinds,
            max_parts=self.config.max_parts,
            max_total_bytes=self.config.max_total_bytes,
        )

    async def read(self, source: MediaSource, owner: str) -> Media:
        """The image or sound that `source` describes. Raises `MediaRefused`, or `RateLimited`."""
        if source.kind == "audio":
            return await self._read_encoded(source, source.data, 0, owner)
        if is_data_url(source.url):
            return await self._read_encoded(source, source.url, data_start(source.url), owner)
        async with self._fetches.of(owner):
            if source.url:
                data = await self._fetched(source.url)
            else:
                data = await self._file(source.file_id, owner)
            async with self._decodes.of(owner):
                digest = await asyncio.to_thread(_digest, data)
                return await self._read_bytes(source, data, digest, owner)

    async def close(self) -> None:
        await self._pool.close()

    async def __aenter__(self) -> MediaReader:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _fetched(self, url: str) -> bytes:
        if self._fetcher is None:
            raise MediaRefused(
                INVALID_URL,
                "This server fetches no images. Send the image as a data: URL, or have its host added to "
                "media.allow_hosts in the server's configuration.",
            )
        return (await self._fetcher.fetch(url)).data

    async def _file(self, file_id: str, owner: str) -> bytes:
        if not file_id:
            raise MediaRefused(
                INVALID_URL, "The image has neither 'image_url' nor 'file_id'. Add one."
            )
        files = uploaded_files()
        if files is None:
            raise MediaRefused(
                FILE_NOT_FOUND,
                "File ids cannot be resolved here, since this server serves no files. Send the image as a data: URL in "
                "'image_url'.",
            )
        limit = self.config.max_bytes
        try:
            data = await files.read(owner, file_id, max_bytes=limit)
        except NotFound:
            raise MediaRefused(FILE_NOT_FOUND, "There is no file with this id.") from None
        except PayloadTooLarge:
            raise MediaRefused(FILE_TOO_LARGE, too_large(limit)) from None
        if len(data) > limit:
            raise MediaRefused(FILE_TOO_LARGE, too_large(limit))
        return data

    async def _read_encoded(self, source: MediaSource, text: str, start: int, owner: str) -> Media:
        """Decode the base64 in `text` that begins at the index `start`, and read its image or sound."""
        async with self._decodes.of(owner):
            data, digest = await asyncio.to_thread(_decoded, text, start, self.config.max_bytes)
            return await self._read_bytes(source, data, digest, owner)

    async def _read_bytes(
        self, source: MediaSource, data: bytes, digest: bytes, owner: str
    ) -> Media:
        if not data:
            raise MediaRefused(EMPTY_FILE, "The file is empty.")
        side = self._side(source.detail) if source.kind == "image" else 0

        async def make() -> Media:
            if source.kind == "audio":
                return await self._sound(data, owner)
            return await self._image(data, side, owner)

        # Owners share no entries: the response time would tell whether another owner has sent the
        # image.
        return await self._cache.get((owner, source.kind, side, digest), make)

    def _side(self, detail: str) -> int:
        """Maximum number of pixels of the longer side."""
        match detail:
            case "low":
                return min(512, self.config.max_side)
            case "high" | "original":
                return max(self.config.max_side_high, self.config.max_side)
            case _:
                return self.config.max_side

    async def _image(self, data: bytes, side: int, owner: str) -> Media:
        seconds = self.config.decode_seconds
        try:
            image, media_type, width, height = await self._pool.run(
                self._read_image, data, self.config.max_pixels, side, seconds=seconds, key=owner
            )
        except HelperFailure as failure:
            raise _refusal(failure, "image", seconds) from None
        return Media(
            kind="image",
            data=image,
            media_type=media_type,
            sha256=await asyncio.to_thread(_hex_digest, image),
            width=width,
            height=height,
        )

    async def _sound(self, data: bytes, owner: str) -> Media:
        seconds = self.config.decode_seconds
        try:
            sound, length = await self._pool.run(
                read_sound, data, self.config.max_audio_seconds, seconds=seconds, key=owner
            )
        except HelperFailure as failure:
            raise _refusal(failure, "sound", seconds) from None
        return Media(
            kind="audio",
            data=sound,
            media_type="audio/wav",
            sha256=await asyncio.to_thread(_hex_digest, sound),
            seconds=length,
        )


def _refusal(failure: HelperFailure, what: str, seconds: float) -> MediaRefused | RateLimited:
    match failure:
        case PoolBusy():
            return RateLimited(f"Too many files wait to be decoded. Send the {what} again later.")
        case FunctionFailed(name="MediaRefused", message=message):
            return MediaRefused.from_text(message)
        case HelperDeadlineExceeded():
            why = f"takes longer than {seconds:g} seconds to decode"
        case FunctionFailed(name="MemoryError"):
            why = "takes more memory to decode than this server allows"
        case FunctionFailed():
            return MediaRefused(
                INVALID_SOUND if what == "sound" else PARSE_ERROR,
                f"The {what} is broken. Send the whole file.",
            )
        case _:
            why = "ended the process that decoded it"
    return MediaRefused(
        INVALID_SOUND if what == "sound" else INVALID_IMAGE,
        f"The {what} {why}. Send a smaller one.",
    )


def _digest(data: bytes) -> bytes:
    return sha256(data).digest()


def _hex_digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def _decoded(text: str, start: int, max_bytes: int) -> tuple[bytes, bytes]:
    data = decode_base64(text, max_bytes, start)
    return data, _digest(data)
