"""The tool `file_search`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from msgspec import UNSET, Struct

from gateway.sdk import (
    CallRecord,
    FileSearchDetails,
    FileSource,
    GatewayError,
    GatewayServices,
    InvalidRequest,
    ServerTool,
    SessionContext,
    ToolCall,
    ToolDefinition,
    ToolResult,
    ToolServer,
    ToolSession,
)
from gateway.sdk.wire import FileSearchResult, FileSearchTool
from gateway_file_search import stores
from gateway_file_search.filters import Filter, filter_of
from gateway_file_search.library import VectorStoreLibrary
from gateway_file_search.ranking import PLAIN, Ranking, ranking_of
from gateway_file_search.requests import MAX_QUERIES, MAX_QUERY
from gateway_file_search.search import Hit

_MAX_STORES: Final = 16
_SHOWN_NAME: Final = 60
"""Maximum characters of a file name in a citation mark: the parser of marks does not recognize longer ones."""

_LONGEST_NUMBER: Final = 10
"""Digits from which a number in an earlier mark is ignored."""

FILE_SEARCH = ToolDefinition(
    name="file_search",
    description=(
        "Search the user's files. Gives passages of them, the best first. Cite what you say from a passage by the mark "
        "that stands before it, copied as it is, as in 【0:1†report.pdf】."
    ),
    parameters={
        "type": "object",
        "properties": {
            "queries": {
                "type": "array",
                "items": {"type": "string"},
                "description": "What to search for; several ways to say it find more. Words of the files find best.",
            }
        },
        "required": ["queries"],
    },
)


class Arguments(Struct, frozen=True, kw_only=True):
    """Arguments of the tool."""

    queries: list[str] | str | None = None
    query: str | None = None
    """Some models write this in place of `queries`."""


class FileSearchSettings(Struct, frozen=True, kw_only=True):
    """Settings of a request's entry in `tools`."""

    owner: str = ""
    store_ids: Sequence[str] = ()
    wanted: Filter | None = None
    limit: int
    ranking: Ranking = PLAIN


class FileSearchServer(ToolServer):
    """The tool. A request's `file_search` entry says where to search."""

    label = "file_search"

    def __init__(self, library: VectorStoreLibrary) -> None:
        self._library = library

    def use(self, services: GatewayServices) -> None:
        self._library.embedding.use(services)
        self._library.reranking.use(services)

    async def tools(self) -> Sequence[ServerTool]:
        config = self._library.config
        return [
            ServerTool(
                definition=FILE_SEARCH,
                time_limit=config.time_limit,
                output_limit=config.output_limit,
                request_type="file_search",
                item_type="file_search_call",
            )
        ]

    def check(self, context: SessionContext) -> None:
        if context.entry is None:
            return
        settings = self._settings(context)
        if not 1 <= len(settings.store_ids) <= _MAX_STORES:
            raise InvalidRequest(
                f"A file search names 1 to {_MAX_STORES} vector stores, and this one {len(settings.store_ids)}.",
                param="vector_store_ids",
                code="invalid_value",
            )
        for index, store_id in enumerate(settings.store_ids):
            # A lookup by key in an open database takes less time than switching to a thread.
            self._library.database.now(
                lambda connection, index=index, store_id=store_id: stores.find_usable(  # type: ignore[misc]
                    connection, settings.owner, store_id, ("vector_store_ids", index)
                )
            )

    @asynccontextmanager
    async def session(self, context: SessionContext) -> AsyncIterator[ToolSession]:
        yield FileSearchSession(self._library, self._settings(context), context.calls)

    def _settings(self, context: SessionContext) -> FileSearchSettings:
        tool, results = context.entry, self._library.config.results
        if not isinstance(tool, FileSearchTool):
            return FileSearchSettings(owner=context.owner or "", limit=results)
        return FileSearchSettings(
            owner=context.owner or "",
            store_ids=tuple(tool.vector_store_ids),
            wanted=None if tool.filters is UNSET else filter_of(tool.filters),
            limit=results if tool.max_num_results is UNSET else tool.max_num_results,
            ranking=ranking_of(tool.ranking_options),
        )


class FileSearchSession:
    """Continues the call numbers of earlier calls, so that their citation marks stay valid."""

    def __init__(
        self,
        library: VectorStoreLibrary,
        settings: FileSearchSettings,
        calls: Mapping[str, CallRecord],
    ) -> None:
        self._library = library
        self._settings = settings
        marks = [file.mark.partition(":")[0] for call in calls.values() for file in call.files]
        # Marks of other tools may have another form.
        numbers = [int(mark) for mark in marks if mark.isdecimal() and len(mark) < _LONGEST_NUMBER]
        self._next = max(numbers, default=-1) + 1

    async def call(self, call: ToolCall) -> ToolResult:
        if call.name != FILE_SEARCH.name:
            return _failed(f"There is no tool named '{call.name}'.", [])
        try:
            read = msgspec.convert(call.arguments, Arguments, strict=False)
        except msgspec.ValidationError as error:
            return _failed(f"Wrong arguments: {error}.", [])
        given = read.queries or read.query or []
        given = [given] if isinstance(given, str) else given
        queries = [each.strip()[:MAX_QUERY] for each in given if each.strip()][:MAX_QUERIES]
        if not queries:
            return _failed("Wrong arguments: `queries` is empty. Say what to search for.", [])
        settings = self._settings
        try:
            hits = await self._library.search(
                settings.owner,
                settings.store_ids,
                queries,
                wanted=settings.wanted,
                limit=settings.limit,
                ranking=settings.ranking,
            )
        except GatewayError as error:
            return _failed(f"The search failed: {error.message}", queries)
        number, self._next = self._next, self._next + 1
        return self._result(number, queries, hits)

    def _result(self, number: int, queries: list[str], hits: list[Hit]) -> ToolResult:
        """The result of a search, with as many hits as the model may read."""
        left = self._library.config.output_limit - 200
        parts: list[str] = []
        sources: list[FileSource] = []
        for hit in hits:
            mark = f"{number}:{len(parts)}"
            part = f"【{mark}†{_shown(hit.filename)}】\n{_clean(hit.text.strip())}"
            left -= len(part.encode()) + 2
            if left < 0 and parts:
                break
            parts.append(part)
            sources.append(FileSource(mark=mark, file_id=hit.file_id, filename=hit.filename))
        shown = hits[: len(parts)]
        return ToolResult(
            text="\n\n".join(parts) or "Nothing was found. Try other words, or answer without.",
            details=FileSearchDetails(
                queries=queries,
                results=[
                    FileSearchResult(
                        file_id=hit.file_id,
                        filename=hit.filename,
                        score=hit.score,
                        text=hit.text,
                        attributes=hit.attributes,
                    )
                    for hit in shown
                ],
            ),
            files=sources,
        )


def _failed(text: str, queries: list[str]) -> ToolResult:
    return ToolResult(text=text, failed=True, details=FileSearchDetails(queries=queries))


def _shown(filename: str) -> str:
    name = _clean(filename)
    return name if len(name) <= _SHOWN_NAME else f"{name[: _SHOWN_NAME - 1]}…"


def _clean(text: str) -> str:
    """`text` with the brackets of citation marks replaced, so that no file can forge one."""
    return text.replace("【", "〖").replace("】", "〗")
