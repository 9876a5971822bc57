"""Finding the images, sounds and documents in the turns of one answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from gateway.base.errors import ParamPath
from gateway.media.file_resolver import FileResolver, ShownItems
from gateway.media.resolver import MediaResolver
from gateway.media.uploaded_parts import UploadedParts
from gateway.plugins.protocols import Media, MediaSource, RenderedPrompt, TokensPrompt, Turn
from gateway.wire.items import Item


class ShownTurn(Struct, frozen=True):
    """A turn as a prompt shows it."""

    turn: Turn
    shown: ShownItems

    def sent(self, path: ParamPath) -> ParamPath:
        """Convert a path in `turn` to the path in the request."""
        return self.shown.sent(path)

    def with_sent_params(self, rendered: RenderedPrompt) -> RenderedPrompt:
        """`rendered`, with the paths of images and sounds converted to paths in the request."""
        prompt = rendered.prompt
        if not (self.shown.origins and isinstance(prompt, TokensPrompt) and prompt.media):
            return rendered
        media = [
            msgspec.structs.replace(each, param=self.sent(each.param)) for each in prompt.media
        ]
        return msgspec.structs.replace(
            rendered, prompt=msgspec.structs.replace(prompt, media=media)
        )


class PartResolver:
    """Finds the images, sounds and documents in the turns of one answer."""

    def __init__(
        self,
        *,
        media: MediaResolver | None = None,
        files: FileResolver | None = None,
        uploaded: UploadedParts | None = None,
    ) -> None:
        """`media` is None for models that take neither images nor sounds, `files` for models that take files unchanged,
        and `uploaded` for engines that take tokens."""
        self._media = media
        self._files = files
        self._uploaded = uploaded

    async def resolve(self, turn: Turn) -> ShownTurn:
        """Find the images and sounds of `turn`, and replace its documents by their text.

        Raises `InvalidRequest`, with the path of the part, or `RateLimited`.
        """
        items: Sequence[Item] = turn.items
        if self._uploaded is not None:
            items = await self._uploaded.resolve(items)
        media: Mapping[MediaSource, Media] | None = None
        if self._media is not None:
            media = await self._media.resolve(items)
            if turn.results:
                media = {**media, **await self._media.resolve_results(items, turn.results)}
        shown = ShownItems(items)
        if self._files is not None:
            shown = await self._files.resolve(items)
            if shown.pages:
                media = {**(media or {}), **shown.pages}
        if media is None and shown.items is turn.items:
            return ShownTurn(turn, shown)
        return ShownTurn(msgspec.structs.replace(turn, items=shown.items, media=media), shown)
