"""Pages of objects, and the answers to deletions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from gateway.wire.common import Value


class Listing(Value, frozen=True, kw_only=True):
    """A page of objects. `first_id` and `last_id` are null if it is empty."""

    object: Literal["list"] = "list"
    data: Sequence[Any]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False


class Deleted(Value, frozen=True, kw_only=True):
    """An object that was deleted. `object` is the name of its type, or of its deletion (`response.deleted`)."""

    id: str
    object: str
    deleted: Literal[True] = True


def listing(objects: Sequence[Any], *, has_more: bool) -> Listing:
    """A page of objects that have ids."""
    return Listing(
        data=objects,
        first_id=objects[0].id if objects else None,
        last_id=objects[-1].id if objects else None,
        has_more=has_more,
    )
