"""Replacing documents by their text and pages, for the turns of one answer."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from gateway.base.errors import InvalidRequest, ParamPath
from gateway.config import DocumentsConfig
from gateway.media.concurrently import for_each
from gateway.media.file_parts import (
    DocumentPart,
    DocumentSource,
    FileContent,
    content_of,
    file_parts,
    file_source,
    page_source,
    page_url,
    shown_parts,
)
from gateway.media.file_reader import FileReader
from gateway.media.refused import MediaRefused
from gateway.plugins.protocols import Media, MediaSource
from gateway.wire.content import AnyContent, InputFile
from gateway.wire.items import Item
from gateway.wire.large_bodies import threaded_if_many


class ShownItems(Struct, frozen=True):
    """Items as a prompt shows them."""

    items: Sequence[Item]
    pages: Mapping[MediaSource, Media] = {}
    """Images of pages, by the sources of the parts that show them."""
    origins: Mapping[int, Sequence[int]] = {}
    """For each item with documents, by its index: the index in the request of the part from which each part was
    made."""

    def sent(self, path: ParamPath) -> ParamPath:
        """Convert a path in `items` to the path in the request."""
        match path:
            case ("input", int(index), str(field), int(part), *rest) if index in self.origins:
                origins = self.origins[index]
                origin = origins[part]
                alone = origins.count(origin) == 1
                return ("input", index, field, origin, *(rest if alone else ()))
            case _:
                return path


class FileResolver:
    """Finds the text and the pages of the documents in the turns of one answer. Each document is read once."""

    def __init__(
        self,
        reader: FileReader,
        owner: str,
        *,
        shows_pages: bool,
        url_of: Callable[[Media], str] | None = None,
    ) -> None:
        """`shows_pages`: whether the model sees images. If `url_of` is given, it returns the URL of the part that shows a
        page; otherwise `ShownItems.pages` has the pages."""
        self._reader = reader
        self._owner = owner
        self._shows_pages = shows_pages
        self._url_of = url_of
        self._contents: Mapping[DocumentSource, FileContent] = {}

    async def resolve(self, items: Sequence[Item]) -> ShownItems:
        """Replace each document in `items` by its text and, if the model gets them, its pages.

        Raises `InvalidRequest`, with the path of the part, or `RateLimited`.
        """
        parts = await threaded_if_many(items, lambda given: list(file_parts(given)))
        if not parts:
            return ShownItems(items)
        config = self._reader.config
        if len(parts) > config.max_files:
            raise InvalidRequest(
                f"The conversation has more than {config.max_files} files, the limit of this server. Leave some out.",
                param=parts[config.max_files].param,
                code="too_many_files",
            )
        missing = {
            source: part
            for part in reversed(parts)
            if (source := self._readable_source(part.source)) not in self._contents
        }
        if missing:
            await self._read(missing, config)
        self._check_totals(parts, config)
        return self._with_contents(items)

    def _readable_source(self, source: DocumentSource) -> DocumentSource:
        if source.shows_pages and not self._shows_pages:
            return msgspec.structs.replace(source, shows_pages=False)
        return source

    async def _read(
        self, missing: dict[DocumentSource, DocumentPart], config: DocumentsConfig
    ) -> None:
        found: dict[DocumentSource, FileContent] = {}

        async def read(entry: tuple[DocumentSource, DocumentPart]) -> None:
            source, part = entry
            try:
                content = await self._reader.read(source, self._owner)
            except MediaRefused as refused:
                raise InvalidRequest(
                    refused.message, param=part.value_param, code=refused.code
                ) from None
            found[source] = content
            if sum(len(each.text) for each in found.values()) > config.max_total_text:
                raise _too_much_text(part, config)

        await for_each(reversed(missing.items()), read)
        self._contents = {**self._contents, **found}

    def _check_totals(self, parts: Sequence[DocumentPart], config: DocumentsConfig) -> None:
        text = pages = 0
        for part in parts:
            content = self._contents[self._readable_source(part.source)]
            text += len(content.text)
            pages += len(content.pages)
            if text > config.max_total_text:
                raise _too_much_text(part, config)
            if pages > config.max_page_images:
                raise InvalidRequest(
                    f"The documents of the conversation have more than {config.max_page_images} pages to be shown as "
                    "images, the limit of this server. Leave out 'detail', to send their text.",
                    param=(*part.param, "detail"),
                    code="too_many_images",
                )

    def _with_contents(self, items: Sequence[Item]) -> ShownItems:
        shown = list(items)
        pages: dict[MediaSource, Media] = {}
        origins: dict[int, Sequence[int]] = {}
        for index, item in enumerate(items):
            field, content = content_of(item)
            if not any(isinstance(part, InputFile) for part in content):
                continue
            made: list[AnyContent] = []
            made_from: list[int] = []
            for at, part in enumerate(content):
                replaced = self._replaced(part, pages) if isinstance(part, InputFile) else [part]
                made += replaced
                made_from += [at] * len(replaced)
            shown[index] = msgspec.structs.replace(item, **{field: made})
            origins[index] = made_from
        return ShownItems(shown, pages, origins)

    def _replaced(self, part: InputFile, pages: dict[MediaSource, Media]) -> Sequence[AnyContent]:
        content = self._contents[self._readable_source(file_source(part))]
        if self._url_of is None:
            pages.update((page_source(page), page) for page in content.pages)
        return shown_parts(content, [(self._url_of or page_url)(page) for page in content.pages])


def data_url(image: Media) -> str:
    """The `data:` URL of an image."""
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"


def _too_much_text(part: DocumentPart, config: DocumentsConfig) -> InvalidRequest:
    return InvalidRequest(
        f"The files of the conversation have more than {config.max_total_text} characters together, the limit of this "
        "server. Leave some out.",
        param=part.value_param,
        code="file_too_large",
    )
