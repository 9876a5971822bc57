"""Results of tools that the gateway runs."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from gateway.plugins.protocols.prompt import CallRecord, ContainerFileSource, FileSource, Source
from gateway.wire.content import InputImage
from gateway.wire.items import (
    FileSearchResult,
    InterpreterImage,
    InterpreterLogs,
    InterpreterOutput,
    ShellOutput,
    WebSearchAction,
)


class ToolImage(Struct, frozen=True, kw_only=True):
    """An image in a result. `code_interpreter_call` items show it, and models that take images get it after the result.
    For other models, the text contains a note."""

    data: bytes
    media_type: str
    """The media type, such as `image/png`."""
    place: int | None = None
    """Index in the result's text before which the image belongs. None: after the text."""
    note: str | None = None
    """The text in place of the image. None: one with its type and size. Empty: the result's text mentions it."""


class SearchDetails(Struct, frozen=True, kw_only=True, tag="search"):
    """The content of a `web_search_call` item."""

    action: WebSearchAction


class FileSearchDetails(Struct, frozen=True, kw_only=True, tag="file_search"):
    """The content of a `file_search_call` item."""

    queries: Sequence[str]
    results: Sequence[FileSearchResult] | None = None


class CodeDetails(Struct, frozen=True, kw_only=True, tag="code"):
    """The content of a `code_interpreter_call` item, in addition to the images of the result."""

    logs: str = ""
    container_id: str | None = None
    """None: the server's label."""

    def outputs(self, images: Sequence[ToolImage]) -> list[InterpreterOutput]:
        """The item's outputs: the logs, then the images."""
        logs: list[InterpreterOutput] = [InterpreterLogs(logs=self.logs)] if self.logs else []
        urls = (f"data:{each.media_type};base64,{b64encode(each.data).decode()}" for each in images)
        return logs + [InterpreterImage(url=url) for url in urls]


class ShellDetails(Struct, frozen=True, kw_only=True, tag="shell"):
    """The content of a `shell_call_output` item: the output of each command."""

    output: Sequence[ShellOutput]


ToolDetails: TypeAlias = SearchDetails | FileSearchDetails | CodeDetails | ShellDetails


class ToolResult(Struct, frozen=True, kw_only=True):
    """The result of a call. `text` is what the model reads, also if the call failed."""

    text: str
    failed: bool = False
    fault: Literal["arguments", "unavailable", "time_limit", "max_uses"] | None = None
    """Why the call failed, if it is one of these reasons."""
    details: ToolDetails | None = None
    """Further content of the call's item, of the class for the tool's `item_type`."""
    images: Sequence[ToolImage] = ()
    sources: Sequence[Source] = ()
    """Sources of the citation marks in `text`. If the model repeats a mark, the answer gets an annotation."""
    files: Sequence[FileSource] = ()
    """Uploaded files that marks in `text` refer to."""
    container_files: Sequence[ContainerFileSource] = ()
    """Files in containers that the model may link to."""
    seen: Sequence[InputImage] = ()
    """The images among `images` that the model sees. Set by the gateway."""

    def record(self, name: str, arguments: str, hidden: dict[str, Any] | None = None) -> CallRecord:
        """The record of the call, by the name and the arguments that the model wrote."""
        return CallRecord(
            name=name,
            arguments=arguments,
            result=self.text,
            sources=self.sources,
            files=self.files,
            container_files=self.container_files,
            images=self.seen,
            hidden=hidden or {},
        )
