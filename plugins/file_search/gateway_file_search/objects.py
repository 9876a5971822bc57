"""The objects of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from gateway.sdk.wire import JsonObject, Tagged, Value

Status: TypeAlias = Literal["in_progress", "completed", "cancelled", "failed"]
Attributes: TypeAlias = dict[str, str | float | bool]


class FileCounts(Value, frozen=True, kw_only=True):
    in_progress: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    total: int = 0


class ExpiresAfter(Value, frozen=True, kw_only=True):
    anchor: Literal["last_active_at"]
    days: int


class VectorStore(Value, frozen=True, kw_only=True):
    id: str
    object: Literal["vector_store"] = "vector_store"
    created_at: int
    name: str
    description: str | None
    usage_bytes: int
    file_counts: FileCounts
    status: Literal["expired", "in_progress", "completed"]
    expires_after: ExpiresAfter | None
    expires_at: int | None
    last_active_at: int
    metadata: dict[str, str]


class LastError(Value, frozen=True, kw_only=True):
    code: str
    message: str


class StaticSizes(Value, frozen=True, kw_only=True):
    max_chunk_size_tokens: int
    chunk_overlap_tokens: int


class StaticChunking(Tagged, frozen=True, kw_only=True, tag="static"):
    static: StaticSizes


class VectorStoreFile(Value, frozen=True, kw_only=True):
    id: str
    object: Literal["vector_store.file"] = "vector_store.file"
    created_at: int
    usage_bytes: int
    vector_store_id: str
    status: Status
    last_error: LastError | None
    attributes: Attributes
    chunking_strategy: StaticChunking


class FileBatch(Value, frozen=True, kw_only=True):
    id: str
    object: Literal["vector_store.files_batch"] = "vector_store.files_batch"
    created_at: int
    vector_store_id: str
    status: Status
    file_counts: FileCounts


class SearchResultText(Tagged, frozen=True, kw_only=True, tag="text"):
    text: str


class SearchResult(Value, frozen=True, kw_only=True):
    file_id: str
    filename: str
    score: float
    attributes: Mapping[str, Any]
    content: list[SearchResultText]


class CompleteList(Value, frozen=True, kw_only=True):
    """A list that always fits on one page."""

    object: str
    search_query: list[str] | UnsetType = UNSET
    data: Sequence[Any]
    has_more: Literal[False] = False
    next_page: None = None
    file_id: str | UnsetType = UNSET
    filename: str | UnsetType = UNSET
    attributes: JsonObject | UnsetType = UNSET
