"""The objects of the API, as it sends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from gateway.wire.common import Value


class ExpiresAfter(Value, frozen=True, kw_only=True):
    anchor: Literal["last_active_at"]
    minutes: int


class NetworkPolicy(Value, frozen=True, kw_only=True):
    type: Literal["disabled"] = "disabled"


class ContainerObject(Value, frozen=True, kw_only=True):
    id: str
    object: Literal["container"] = "container"
    created_at: int
    status: Literal["running", "expired"]
    expires_after: ExpiresAfter
    last_active_at: int
    name: str
    memory_limit: str | None
    network_policy: NetworkPolicy = NetworkPolicy()


class ContainerFile(Value, frozen=True, kw_only=True):
    id: str
    object: Literal["container.file"] = "container.file"
    created_at: int
    bytes: int
    container_id: str
    path: str
    source: str


class Deleted(Value, frozen=True, kw_only=True):
    id: str
    object: str
    deleted: Literal[True] = True


class Listing(Value, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: Sequence[Any]
    first_id: str | None
    last_id: str | None
    has_more: bool


def listing(objects: Sequence[Any], *, has_more: bool) -> Listing:
    """A page of objects that have ids."""
    return Listing(
        data=objects,
        first_id=objects[0].id if objects else None,
        last_id=objects[-1].id if objects else None,
        has_more=has_more,
    )
