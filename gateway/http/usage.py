"""/v1/organization: usage and costs, for keys with `admin`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from litestar import get
from litestar.datastructures import MultiDict
from litestar.types import ASGIApp
from msgspec import Struct

from gateway.base.errors import InvalidRequest, Unsupported
from gateway.config import Price
from gateway.http.answers import json_answer
from gateway.http.state import HttpRequest, services_for_admin
from gateway.plugins.protocols import BUCKETS_KEPT, WIDTH_SECONDS, UsageCount, UsageWidth
from gateway.services import Services
from gateway.wire.field_errors import missing, not_among
from gateway.wire.usage import (
    Amount,
    Bucket,
    BucketPage,
    CompletionsUsage,
    Costs,
    EmbeddingsUsage,
)

_LIMITS: Final[dict[UsageWidth, tuple[int, int]]] = {
    "1m": (60, 1440),
    "1h": (24, 168),
    "1d": (7, 31),
}
"""Maps each bucket width to the default and the maximum number of buckets of a page, as at OpenAI."""
_PER_TOKENS = 1_000_000
_UNSUPPORTED = ("project_ids", "user_ids", "batch", "line_items", "api_source")
_POOLED = ("embeddings", "rerank", "score")
"""APIs that do not generate."""


class _Query(Struct, frozen=True, kw_only=True):
    """The parameters of a request."""

    width: UsageWidth
    first: int
    """Number of the first bucket of the page, counted from 1970."""
    last: int
    end: int
    """Number of the last bucket that the request includes."""
    group_by: frozenset[str]
    keys: frozenset[str]
    models: frozenset[str]

    def keeps(self, count: UsageCount) -> bool:
        named = not self.keys or count.principal in self.keys
        return named and (not self.models or count.model in self.models)


@get("/v1/organization/usage/completions")
async def completions_usage(request: HttpRequest) -> ASGIApp:
    """Usage of all APIs that generate."""
    services = services_for_admin(request)
    query = _query(request.query_params, _LIMITS, groups=("api_key_id", "model"))

    def result(key: str | None, model: str | None, counts: Sequence[UsageCount]) -> object:
        return CompletionsUsage(
            input_tokens=sum(each.input_tokens for each in counts),
            output_tokens=sum(each.output_tokens for each in counts),
            input_cached_tokens=sum(each.cached_tokens for each in counts),
            output_reasoning_tokens=sum(each.reasoning_tokens for each in counts),
            num_model_requests=sum(each.requests for each in counts),
            api_key_id=key,
            model=model,
        )

    return await _grouped(services, query, lambda api: api not in _POOLED, result)


@get("/v1/organization/usage/embeddings")
async def embeddings_usage(request: HttpRequest) -> ASGIApp:
    """Usage of the APIs that do not generate: embeddings, reranking and scoring."""
    services = services_for_admin(request)
    query = _query(request.query_params, _LIMITS, groups=("api_key_id", "model"))

    def result(key: str | None, model: str | None, counts: Sequence[UsageCount]) -> object:
        return EmbeddingsUsage(
            input_tokens=sum(each.input_tokens for each in counts),
            num_model_requests=sum(each.requests for each in counts),
            api_key_id=key,
            model=model,
        )

    return await _grouped(services, query, lambda api: api == "embeddings", result)


@get("/v1/organization/costs")
async def costs(request: HttpRequest) -> ASGIApp:
    """Costs by day, at the prices of `[models.<name>.price]`."""
    services = services_for_admin(request)
    query = _query(request.query_params, {"1d": (7, 180)}, groups=("api_key_id", "line_item"))
    counts = await _counts(services, query)
    currency = services.config.server.currency

    def of_day(day: int) -> list[Costs]:
        sums: dict[tuple[str | None, str | None], float] = {}
        for count in counts.get(day, ()):
            for kind, value in _costs(count, _price(services, count.model)):
                key = count.principal if "api_key_id" in query.group_by else None
                item = f"{count.model}, {kind}" if "line_item" in query.group_by else None
                sums[key, item] = sums.get((key, item), 0.0) + value
        return [
            Costs(
                amount=Amount(value=round(value, 9), currency=currency),
                api_key_id=key,
                line_item=item,
            )
            for (key, item), value in sorted(sums.items(), key=lambda each: _order(each[0]))
        ]

    return json_answer(_page(query, of_day))


def _price(services: Services, model: str) -> Price | None:
    """The price of a model. An adapter has the price of its model."""
    served = services.models.get(model)
    config = services.config.models.get(model) if served is None else served.config
    return None if config is None else config.price


def _costs(count: UsageCount, price: Price | None) -> Iterable[tuple[str, float]]:
    if price is None:
        return
    cached_price = price.input if price.cached is None else price.cached
    fresh = count.input_tokens - count.cached_tokens
    yield "input_tokens", fresh * price.input / _PER_TOKENS
    yield "input_cached_tokens", count.cached_tokens * cached_price / _PER_TOKENS
    yield "output_tokens", count.output_tokens * price.output / _PER_TOKENS


async def _grouped(
    services: Services,
    query: _Query,
    shown: Callable[[str], bool],
    result: Callable[[str | None, str | None, Sequence[UsageCount]], object],
) -> ASGIApp:
    counts = await _counts(services, query)

    def of_bucket(bucket: int) -> list[object]:
        groups: dict[tuple[str | None, str | None], list[UsageCount]] = {}
        for count in (each for each in counts.get(bucket, ()) if shown(each.api)):
            key = count.principal if "api_key_id" in query.group_by else None
            model = count.model if "model" in query.group_by else None
            groups.setdefault((key, model), []).append(count)
        return [result(*group, groups[group]) for group in sorted(groups, key=_order)]

    return json_answer(_page(query, of_bucket))


async def _counts(services: Services, query: _Query) -> dict[int, list[UsageCount]]:
    """The counts that match the query, by bucket."""
    found: dict[int, list[UsageCount]] = {}
    for each in await services.usage.read(query.first, query.last, width=query.width):
        if query.keeps(each):
            found.setdefault(each.bucket, []).append(each)
    return found


def _page(query: _Query, results: Callable[[int], Sequence[object]]) -> BucketPage:
    more = query.last < query.end
    seconds = WIDTH_SECONDS[query.width]
    return BucketPage(
        data=[
            Bucket(start_time=each * seconds, end_time=(each + 1) * seconds, results=results(each))
            for each in range(query.first, query.last + 1)
        ],
        has_more=more,
        next_page=f"page_{query.last + 1}" if more else None,
    )


def _order(group: tuple[str | None, str | None]) -> tuple[str, str]:
    return group[0] or "", group[1] or ""


def _query(
    query: MultiDict[str],
    limits: Mapping[UsageWidth, tuple[int, int]],
    *,
    groups: Collection[str],
) -> _Query:
    """Parse the query parameters. Raises `InvalidRequest` that names the invalid parameter."""
    for name in _UNSUPPORTED:
        if _values(query, name):
            raise Unsupported(
                f"Usage is not counted by '{name}' on this server. Leave it out.", param=name
            )
    asked = query.get("bucket_width", "1d")
    width = next((each for each in limits if each == asked), None)
    if width is None:
        raise not_among("bucket_width", asked, list[str](limits))
    seconds = WIDTH_SECONDS[width]
    if "start_time" not in query:
        raise missing("start_time", "It is a Unix time in seconds.")
    now = int(time.time()) // seconds
    start = max(_number(query, "start_time", 0, 0) // seconds, now - BUCKETS_KEPT[width])
    until = _number(query, "end_time", (now + 1) * seconds, 1)
    end = min((until - 1) // seconds, now)
    usual, most = limits[width]
    limit = _number(query, "limit", usual, 1)
    if limit > most:
        raise InvalidRequest(
            f"Invalid 'limit': {limit}. It is a whole number from 1 to {most}, with 'bucket_width' {width}.",
            param="limit",
            code="integer_above_max_value",
        )
    if page := query.get("page"):
        found = re.fullmatch(r"page_(\d{1,9})", page)
        if found is None:
            raise InvalidRequest(
                f"Invalid 'page': '{page[:50]}'. Send the next_page of an earlier answer.",
                param="page",
                code="invalid_value",
            )
        start = max(start, int(found[1]))
    group_by = _values(query, "group_by")
    known = [*groups, "project_id", "user_id", "batch", "service_tier"]
    for index, name in enumerate(group_by):
        if name not in known:
            raise not_among(("group_by", index), name, known)
    return _Query(
        width=width,
        first=start,
        last=min(end, start + limit - 1),
        end=end,
        group_by=frozenset(group_by),
        keys=frozenset(_values(query, "api_key_ids")),
        models=frozenset(_values(query, "models")),
    )


def _values(query: MultiDict[str], name: str) -> list[str]:
    """The values of a list parameter. SDKs repeat `name` or `name[]`, or send indices."""
    pattern = re.compile(rf"{name}(\[\d*\])?")
    return [value for key, value in query.multi_items() if pattern.fullmatch(key)]


def _number(query: MultiDict[str], name: str, default: int, least: int) -> int:
    value = query.get(name)
    if value is None:
        return default
    if not re.fullmatch(r"[0-9]{1,12}", value) or int(value) < least:
        raise InvalidRequest(
            f"Invalid '{name}': '{value[:50]}'. It is a whole number of at least {least}.",
            param=name,
            code="invalid_value",
        )
    return int(value)
