"""Pagination in OpenAI's style: `after`, `limit` and `order`, and `before` for lists that are held in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from gateway.base.errors import InvalidRequest, NotFound, Unsupported
from gateway.plugins.protocols import Order
from gateway.wire.items import Item
from gateway.wire.listing import Listing, listing

PAGED_BY = ("after", "limit", "order")
"""The query parameters of pagination."""


class PageQuery(Struct, frozen=True, kw_only=True):
    """The requested part of a list."""

    after: str | None
    limit: int
    order: Order
    before: str | None = None


def page_query(
    query: Mapping[str, str], *, default_order: Literal["asc", "desc"], backwards: bool = False
) -> PageQuery:
    """Parse the pagination parameters of a query string. Raises `InvalidRequest` that names the invalid parameter.

    `backwards`: whether the list can be read backwards, by `before`."""
    if "before" in query and not backwards:
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
        before=query.get("before") or None,
    )


def page_of(items: Sequence[Item], query: PageQuery) -> Listing:
    """A page of `items`, which are in memory, oldest first. With `before` and without `after`, the page ends before
    that item."""
    ordered = list(items) if query.order == "asc" else list(reversed(items))
    start = 0 if query.after is None else _place(query.after, ordered, "after") + 1
    end = len(ordered) if query.before is None else _place(query.before, ordered, "before")
    between = ordered[start:end]
    backwards = query.before is not None and query.after is None
    shown = between[-query.limit :] if backwards else between[: query.limit]
    return listing(shown, has_more=len(between) > query.limit)


def _place(wanted: str, items: Sequence[Item], param: Literal["after", "before"]) -> int:
    # Earlier releases stored repeated ids. The last one counts, so that a client that follows `last_id` reaches the
    # end.
    for place in range(len(items) - 1, -1, -1):
        if items[place].id == wanted:
            return place
    raise unknown_item(wanted, param)


def unknown_item(wanted: str, param: Literal["after", "before"] = "after") -> NotFound:
    """The error for an `after` or `before` that is not in the list."""
    return NotFound(f"Item with id '{wanted[:100]}' not found.", param=param, code="item_not_found")
