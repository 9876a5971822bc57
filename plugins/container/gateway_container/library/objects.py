"""The objects of the API."""

from __future__ import annotations

from typing import Literal

from gateway.sdk.wire import Value


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
