"""Decodes and validates requests: bodies, query strings and forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.sdk import InvalidRequest, ParamPath, param_text
from gateway.sdk.files import ListQuery, list_query
from gateway.sdk.wire import (
    JsonObject,
    RankingOptions,
    Tagged,
    Value,
    convert,
    decode_metadata,
    decode_object,
    missing,
    not_among,
    wrong_type,
)
from gateway_file_search.objects import Attributes, ExpiresAfter, StaticSizes

DEFAULT_SIZES = StaticSizes(max_chunk_size_tokens=800, chunk_overlap_tokens=400)
MAX_BATCH = 2000
"""Maximum number of files per batch, as at OpenAI."""
MAX_QUERIES = 16
MAX_QUERY = 4096
"""Maximum length of a query in characters."""


class AutoStrategy(Tagged, frozen=True, kw_only=True, tag="auto"):
    pass


class StaticStrategy(Tagged, frozen=True, kw_only=True, tag="static"):
    static: StaticSizes


Strategy: TypeAlias = AutoStrategy | StaticStrategy


class CreateStore(Value, frozen=True, kw_only=True):
    name: Annotated[str, Meta(max_length=256)] = ""
    description: Annotated[str, Meta(max_length=512)] | None = None
    file_ids: list[str] = []
    chunking_strategy: Strategy = AutoStrategy()
    expires_after: ExpiresAfter | None = None
    metadata: JsonObject | None = None


class UpdateStore(Value, frozen=True, kw_only=True):
    name: Annotated[str, Meta(max_length=256)] | UnsetType = UNSET
    expires_after: ExpiresAfter | UnsetType | None = UNSET
    metadata: JsonObject | UnsetType = UNSET


class AddFile(Value, frozen=True, kw_only=True):
    file_id: str
    attributes: JsonObject | None = None
    chunking_strategy: Strategy = AutoStrategy()


class AddBatch(Value, frozen=True, kw_only=True):
    file_ids: list[str] | None = None
    files: list[AddFile] | None = None
    attributes: JsonObject | None = None
    chunking_strategy: Strategy = AutoStrategy()


class SearchRequest(Value, frozen=True, kw_only=True):
    query: str | list[str]
    filters: JsonObject | None = None
    max_num_results: Annotated[int, Meta(ge=1, le=50)] = 10
    ranking_options: RankingOptions = RankingOptions()
    rewrite_query: bool = False


class Attachment(Struct, frozen=True, kw_only=True):
    """A file to add to a vector store."""

    file_id: str
    param: ParamPath
    """The parameter that names it in the request."""
    attributes: Attributes
    sizes: StaticSizes


def create_store(body: bytes) -> tuple[CreateStore, dict[str, str]]:
    """The request and its metadata."""
    raw = decode_object(body or b"{}")
    decoded = convert(raw, CreateStore)
    _check_days(decoded.expires_after)
    return decoded, decode_metadata(raw.get("metadata") or {})


def update_store(body: bytes) -> tuple[UpdateStore, dict[str, str] | None]:
    """The request and the new metadata, if any."""
    raw = decode_object(body)
    decoded = convert(raw, UpdateStore)
    if isinstance(decoded.expires_after, ExpiresAfter):
        _check_days(decoded.expires_after)
    elif "expires_after" in raw:
        decoded = msgspec.structs.replace(decoded, expires_after=None)
    given = raw.get("metadata")
    return decoded, None if given is None else decode_metadata(given)


def _check_days(expires: ExpiresAfter | None) -> None:
    if expires is not None and not 1 <= expires.days <= 365:
        raise InvalidRequest(
            f"Invalid 'expires_after.days': {expires.days}. It is a number from 1 to 365.",
            param=("expires_after", "days"),
            code="invalid_value",
        )


def store_attachments(request: CreateStore) -> list[Attachment]:
    """The initial files of a vector store."""
    sizes = _sizes(request.chunking_strategy, ("chunking_strategy",))
    return [
        Attachment(file_id=file_id, param=("file_ids", index), attributes={}, sizes=sizes)
        for index, file_id in enumerate(_checked_batch(request.file_ids, "file_ids"))
    ]


def add_file(body: bytes) -> Attachment:
    return _attachment(convert(decode_object(body), AddFile), ())


def add_batch(body: bytes) -> list[Attachment]:
    decoded = convert(decode_object(body), AddBatch)
    if (decoded.file_ids is None) == (decoded.files is None):
        raise InvalidRequest(
            "Send either 'file_ids' or 'files': one of them, and not both.",
            param="file_ids",
            code="missing_required_parameter",
        )
    if decoded.files is not None:
        files = _checked_batch(decoded.files, "files")
        return [_attachment(each, ("files", index)) for index, each in enumerate(files)]
    given = decode_attributes(decoded.attributes, ("attributes",))
    sizes = _sizes(decoded.chunking_strategy, ("chunking_strategy",))
    return [
        Attachment(file_id=file_id, param=("file_ids", index), attributes=given, sizes=sizes)
        for index, file_id in enumerate(_checked_batch(decoded.file_ids or [], "file_ids"))
    ]


def update_attributes(body: bytes) -> Attributes:
    raw = decode_object(body)
    if "attributes" not in raw:
        raise missing("attributes")
    return decode_attributes(raw["attributes"], ("attributes",))


def search_request(body: bytes) -> tuple[SearchRequest, list[str]]:
    """The request and its queries."""
    decoded = convert(decode_object(body), SearchRequest)
    queries = decoded.query if isinstance(decoded.query, list) else [decoded.query]
    if not any(query.strip() for query in queries):
        raise InvalidRequest("'query' is empty.", param="query", code="invalid_value")
    if len(queries) > MAX_QUERIES or any(len(query) > MAX_QUERY for query in queries):
        raise InvalidRequest(
            f"At most {MAX_QUERIES} queries of {MAX_QUERY} characters can be sent at once.",
            param="query",
            code="invalid_value",
        )
    return decoded, queries


def status_query(query: Mapping[str, str]) -> ListQuery:
    """The list query of a vector store's files."""
    asked = list_query(query, chosen="filter")
    statuses = ["in_progress", "completed", "failed", "cancelled"]
    if asked.chosen is not None and asked.chosen not in statuses:
        raise not_among("filter", asked.chosen, statuses)
    return asked


def decode_attributes(raw: Any, param: ParamPath) -> Attributes:
    """Attributes within OpenAI's limits. None means no attributes."""
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise wrong_type(param, "an object", raw)
    text = param_text(param)
    if len(raw) > 16:
        raise InvalidRequest(
            f"Invalid '{text}': at most 16 keys are allowed, and these are {len(raw)}.",
            param=param,
            code="object_above_max_properties",
        )
    for key, value in raw.items():
        if not 1 <= len(key) <= 64:
            raise InvalidRequest(
                f"Invalid '{text}': a key has 1 to 64 characters.",
                param=param,
                code="invalid_value",
            )
        if not isinstance(value, str | int | float):
            raise wrong_type((*param, key), "a string, a number or a boolean", value)
        if isinstance(value, str) and len(value) > 512:
            raise InvalidRequest(
                f"Invalid '{text}.{key}': at most 512 characters are allowed.",
                param=(*param, key),
                code="string_above_max_length",
            )
    return raw


def _attachment(request: AddFile, param: ParamPath) -> Attachment:
    return Attachment(
        file_id=request.file_id,
        param=(*param, "file_id"),
        attributes=decode_attributes(request.attributes, (*param, "attributes")),
        sizes=_sizes(request.chunking_strategy, (*param, "chunking_strategy")),
    )


def _sizes(strategy: Strategy, param: ParamPath) -> StaticSizes:
    if isinstance(strategy, AutoStrategy):
        return DEFAULT_SIZES
    sizes = strategy.static
    size, overlap = sizes.max_chunk_size_tokens, sizes.chunk_overlap_tokens
    problem: Literal["max_chunk_size_tokens", "chunk_overlap_tokens"]
    if not 100 <= size <= 4096:
        problem, right = "max_chunk_size_tokens", "It is a number from 100 to 4096."
    elif not 0 <= overlap <= size // 2:
        problem, right = "chunk_overlap_tokens", "It is at most half of max_chunk_size_tokens."
    else:
        return sizes
    where = (*param, "static", problem)
    raise InvalidRequest(
        f"Invalid '{param_text(where)}'. {right}", param=where, code="invalid_value"
    )


def _checked_batch(files: list[Any], param: str) -> list[Any]:
    if len(files) > MAX_BATCH:
        raise InvalidRequest(
            f"At most {MAX_BATCH} files can be named at once, and these are {len(files)}.",
            param=param,
            code="array_above_max_length",
        )
    return files
