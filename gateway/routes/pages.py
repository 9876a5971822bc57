"""Pagination in OpenAI's style: `after`, `limit`, `order`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from gateway.errors import InvalidRequest, NotFound, Unsupported
from gateway.protocols import Order
from gateway.wire.items import Item
from gateway.wire.listing import Listing, listing

PAGED_BY = ("after", "limit", "order")
"""The query parameters of pagination."""


class PageQuery(Struct, frozen=True, kw_only=True):
    """The requested part of a list."""

    after: str | None
    limit: int
    order: Order


def page_query(query: Mapping[str, str], *, default_order: Literal["asc", "desc"]) -> PageQuery:
    """Parse the pagination parameters of a query string. Raises `InvalidRequest` with the wrong parameter."""
    if "before" in query:
        raise Unsupported(
            "'before' is not supported. Use 'after', and 'order' to reverse the list.",
            param="before",
        )
    limit = query.get("limit", "20")
    if not limit.isdecimal() or len(limit) > 3 or not 1 <= int(limit) <= 100:
        raise InvalidRequest(
            f"Invalid 'limit': '{limit[:100]}'. It is a whole number from 1 to 100.",
            param="limit",
            code="invalid_value",
        )
    order = query.get("order", default_order)
    if order not in ("asc", "desc"):
        raise InvalidRequest(
            f"Invalid 'order': '{order[:100]}'. Supported values are: 'asc' and 'desc'.",
            param="order",
            code="invalid_value",
        )
    return PageQuery(
        after=query.get("after") or None,
        limit=int(limit),
        order="asc" if order == "asc" else "desc",
    )


def page_of(items: Sequence[Item], query: PageQuery) -> Listing:
    """A page of a list that is in memory, oldest first."""
    ordered = list(items) if query.order == "asc" else list(reversed(items))
    if query.after is not None:
        ids = [item.id for item in ordered]
        if query.after not in ids:
            raise unknown_after(query.after)
        ordered = ordered[ids.index(query.after) + 1 :]
    return listing(ordered[: query.limit], has_more=len(ordered) > query.limit)


def unknown_after(after: str) -> NotFound:
    """The error for an `after` that is not in the list."""
    return NotFound(
        f"Item with id '{after[:100]}' not found.", param="after", code="item_not_found"
    )
