"""The parts of a conversation that are documents, and the parts that show their content in a prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Final

from msgspec import UNSET, Struct

from gateway.base.errors import ParamPath
from gateway.plugins.protocols import Media, MediaSource
from gateway.plugins.protocols.media import media_source
from gateway.wire.content import TEXTS, AnyContent, InputFile, InputImage, InputText
from gateway.wire.items import CustomToolCallOutput, FunctionCallOutput, Item, Message

_LONGEST_NAME: Final = 200


class DocumentSource(Struct, frozen=True, kw_only=True):
    """The source of a document, as a part of a request gives it. Parts with equal sources have equal documents."""

    url: str = ""
    file_id: str = ""
    data: str = ""
    """Base64, or a `data:` URL."""
    filename: str = ""
    shows_pages: bool = False
    """Whether the model gets the pages of a PDF as images too."""


class DocumentPart(Struct, frozen=True, kw_only=True):
    """A part that is a document."""

    source: DocumentSource
    param: ParamPath
    """Path of the part, such as `("input", 3, "content", 0)`."""

    @property
    def value_param(self) -> ParamPath:
        """Path of the value that names or contains the document."""
        source = self.source
        if source.data:
            return (*self.param, "file_data")
        return (*self.param, "file_url" if source.url else "file_id")


class FileContent(Struct, frozen=True, kw_only=True):
    """The content of a document."""

    filename: str
    text: str
    pages: Sequence[Media] = ()

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return len(self.text) + sum(len(page.data) for page in self.pages)


def file_source(part: InputFile) -> DocumentSource:
    """The source of the document in a part."""
    return DocumentSource(
        url=part.file_url or "",
        file_id=part.file_id or "",
        data=part.file_data or "",
        filename=part.filename or "",
        shows_pages=part.detail is not UNSET and part.detail == "high",
    )


def content_of(item: Item) -> tuple[str, Sequence[AnyContent]]:
    """The field name and the parts of a message, or of the output of a client's tool. Empty for other items."""
    match item:
        case Message(content=content):
            return "content", content
        case FunctionCallOutput(output=list(output)) | CustomToolCallOutput(output=list(output)):
            return "output", output
        case _:
            return "", ()


def file_parts(items: Sequence[Item]) -> Iterator[DocumentPart]:
    """The documents in messages and in outputs of the client's tools."""
    for index, item in enumerate(items):
        if (
            isinstance(item, Message)
            and len(item.content) == 1
            and isinstance(item.content[0], TEXTS)
        ):
            continue  # the usual case
        field, content = content_of(item)
        for at, part in enumerate(content):
            if type(part) is InputFile:  # faster than `isinstance`; there may be 20,000 parts
                yield DocumentPart(source=file_source(part), param=("input", index, field, at))


def shown_parts(content: FileContent, pages: Sequence[str]) -> list[InputText | InputImage]:
    """The parts that replace a document in a prompt: its text, between lines with its name, and images of its pages.
    `pages` are the URLs of these images."""
    return [
        InputText(text=marked(content.filename, content.text)),
        *(InputImage(image_url=url) for url in pages),
    ]


def marked(filename: str, text: str) -> str:
    """`text` between two lines with the name of its file. The closing line does not occur in the text."""
    name = plain_name(filename)
    end = f"[End of file: {name}]"
    if end in text:
        # A text cannot contain its own hash.
        name = f"{name} {sha256(text.encode()).hexdigest()[:16]}"
        end = f"[End of file: {name}]"
    return f"[File: {name}]\n{text}\n{end}"


def plain_name(filename: str) -> str:
    """The name of a file on one line, without brackets and invisible characters."""
    plain = "".join(each if each.isprintable() and each not in "[]" else " " for each in filename)
    return " ".join(plain[: 4 * _LONGEST_NAME].split())[:_LONGEST_NAME].strip() or "file"


def page_url(page: Media) -> str:
    """The URL of the part for an image that the gateway has made. Requests cannot use such URLs: they are refused when
    images are read."""
    return f"page:{page.sha256}"


def page_source(page: Media) -> MediaSource:
    """The source of the part that has `page_url`."""
    return media_source(InputImage(image_url=page_url(page)))
