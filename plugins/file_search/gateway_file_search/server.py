"""The tool `file_search`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from gateway.errors import GatewayError, InvalidRequest
from gateway.protocols import (
    CallRecord,
    FileSource,
    GatewayServices,
    ServedTool,
    ToolDefinition,
    ToolResult,
    ToolSession,
)
from gateway.wire.tools import FileSearchTool, Tool
from gateway_file_search import stores
from gateway_file_search.filters import Filter, filter_of
from gateway_file_search.library import Library
from gateway_file_search.ranking import PLAIN, Ranking, ranking_of
from gateway_file_search.requests import MAX_QUERIES, MAX_QUERY
from gateway_file_search.search import Hit

_MOST_STORES: Final = 16
_SHOWN_NAME: Final = 60
"""Characters of a file's name in a mark: the reader of marks knows longer ones not."""

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
    """What models give the tool."""

    queries: list[str] | str | None = None
    query: str | None = None
    """As some write it."""


class Wishes(Struct, frozen=True, kw_only=True):
    """What a request's entry of `tools` says."""

    owner: str = ""
    store_ids: Sequence[str] = ()
    wanted: Filter | None = None
    limit: int
    ranking: Ranking = PLAIN


class FileSearchServer:
    """A `ToolServer`, which requests fit to themselves by what their `file_search` entry says."""

    label = "file_search"

    def __init__(self, library: Library, wishes: Wishes | None = None) -> None:
        self._library = library
        self._wishes = wishes or Wishes(limit=library.config.results)

    def use(self, services: GatewayServices) -> None:
        self._library.embedding.use(services)

    async def tools(self) -> Sequence[ServedTool]:
        config = self._library.config
        return [
            ServedTool(
                definition=FILE_SEARCH,
                time_limit=config.time_limit,
                output_limit=config.output_limit,
                request_type="file_search",
                item_type="file_search_call",
            )
        ]

    def for_entry(self, tool: Tool, *, owner: str | None) -> FileSearchServer:
        assert isinstance(tool, FileSearchTool), "the request type is file_search"
        ids = tool.vector_store_ids
        if not 1 <= len(ids) <= _MOST_STORES:
            raise InvalidRequest(
                f"A file search names 1 to {_MOST_STORES} vector stores, and this one {len(ids)}.",
                param="vector_store_ids",
                code="invalid_value",
            )
        for index, store_id in enumerate(ids):
            # A row by its key, in a file that this process has open: less than it takes to go to a thread.
            self._library.database.now(
                lambda connection, index=index, store_id=store_id: stores.find_usable(  # type: ignore[misc]
                    connection, owner or "", store_id, f"vector_store_ids[{index}]"
                )
            )
        wishes = Wishes(
            owner=owner or "",
            store_ids=tuple(ids),
            wanted=None if tool.filters is UNSET else filter_of(tool.filters),
            limit=(
                self._library.config.results
                if tool.max_num_results is UNSET
                else tool.max_num_results
            ),
            ranking=ranking_of(tool.ranking_options),
        )
        return FileSearchServer(self._library, wishes)

    def session(self, response_id: str) -> AbstractAsyncContextManager[ToolSession]:
        return self.session_after(response_id, {})

    def session_after(
        self, response_id: str, calls: Mapping[str, CallRecord]
    ) -> AbstractAsyncContextManager[ToolSession]:
        return self._session(calls)

    @asynccontextmanager
    async def _session(self, calls: Mapping[str, CallRecord]) -> AsyncIterator[ToolSession]:
        yield FileSearchSession(self._library, self._wishes, calls)


class FileSearchSession:
    """A `ToolSession`. Numbers its calls on from those of earlier responses, so that their marks stay what they were."""

    def __init__(self, library: Library, wishes: Wishes, calls: Mapping[str, CallRecord]) -> None:
        self._library = library
        self._wishes = wishes
        numbers = [
            int(file.mark.partition(":")[0]) for call in calls.values() for file in call.files
        ]
        self._next = max(numbers, default=-1) + 1

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        if name != FILE_SEARCH.name:
            return _failed(f"There is no tool named '{name}'.", [])
        try:
            read = msgspec.convert(arguments, Arguments, strict=False)
        except msgspec.ValidationError as error:
            return _failed(f"Wrong arguments: {error}.", [])
        given = read.queries or read.query or []
        given = [given] if isinstance(given, str) else given
        queries = [each.strip()[:MAX_QUERY] for each in given if each.strip()][:MAX_QUERIES]
        if not queries:
            return _failed("Wrong arguments: `queries` is empty. Say what to search for.", [])
        wishes = self._wishes
        try:
            hits = await self._library.search(
                wishes.owner,
                wishes.store_ids,
                queries,
                wanted=wishes.wanted,
                limit=wishes.limit,
                ranking=wishes.ranking,
            )
        except GatewayError as error:
            return _failed(f"The search failed: {error.message}", queries)
        number, self._next = self._next, self._next + 1
        return self._result(number, queries, hits)

    def _result(self, number: int, queries: list[str], hits: list[Hit]) -> ToolResult:
        """As many of the hits as the model may read."""
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
            details={
                "queries": queries,
                "results": [
                    {
                        "file_id": hit.file_id,
                        "filename": hit.filename,
                        "score": hit.score,
                        "text": hit.text,
                        "attributes": hit.attributes,
                    }
                    for hit in shown
                ],
            },
            files=sources,
        )


def _failed(text: str, queries: list[str]) -> ToolResult:
    return ToolResult(text=text, failed=True, details={"queries": queries})


def _shown(filename: str) -> str:
    name = _clean(filename)
    return name if len(name) <= _SHOWN_NAME else f"{name[: _SHOWN_NAME - 1]}…"


def _clean(text: str) -> str:
    """Without what could be taken for a mark: no file can forge one."""
    return text.replace("【", "〖").replace("】", "〗")
