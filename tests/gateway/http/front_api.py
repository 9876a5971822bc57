"""A further API, and a plugin that offers such."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from gateway import hookimpl
from gateway.base.errors import GatewayError
from gateway.plugins.protocols import Reply, Route


class FrontConfig(Struct, frozen=True, forbid_unknown_fields=True):
    greeting: str = "hello"


class Api:
    def __init__(self, *routes: Route) -> None:
        self.routes = routes

    def error(self, error: GatewayError, request_id: str) -> Reply:
        body = f"{request_id}: {error.message}".encode()
        return Reply(body=body, status=error.status, headers={"x-front": "yes"})


class ApiPlugin:
    """Offers APIs by name."""

    def __init__(self, **apis: Api) -> None:
        self.__name__ = "gateway_" + "_".join(apis)
        self._apis = apis

    @hookimpl
    def gateway_register_apis(self, register: Any) -> None:
        for name, api in self._apis.items():

            @asynccontextmanager
            async def opened(config: FrontConfig, api: Api = api) -> AsyncIterator[Api]:
                yield api

            register(name, opened, config=FrontConfig)
