"""Lets requests wait until their model is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from litestar.types import Receive

from gateway.base.errors import EngineUnavailable
from gateway.http.state import HttpRequest, services_of
from gateway.models.model_lookup import WaitFor
from gateway.models.model_slot import ModelUse


def loaded(
    request: HttpRequest, model: str | None, use: ModelUse | None = "generates"
) -> AbstractAsyncContextManager[None]:
    """Like `ModelLookup.loaded`, but stops waiting if the client disconnects. The request's body must have been
    read."""
    return services_of(request).lookup.loaded(model, use, wait=while_connected(request))


def while_connected(request: HttpRequest) -> WaitFor:
    """Waits as long as the client of `request` is connected. The request's body must have been read."""
    return partial(_unless_disconnected, request.receive)


async def _unless_disconnected(receive: Receive, loading: Coroutine[Any, Any, None]) -> None:
    """Wait for `loading`. Cancels it if the client disconnects before it is done, or if this task is cancelled."""
    work = asyncio.create_task(loading)
    leaving = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise EngineUnavailable("The client left before the model was loaded.")
        await work
    finally:
        leaving.cancel()
        work.cancel()  # has no effect if it is done
        await asyncio.wait((work, leaving))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
