"""Requests that wait until their model is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from litestar.types import Receive

from gateway.errors import EngineUnavailable
from gateway.routes.state import HttpRequest, services_of
from gateway.runtime.model_slots import Does


@asynccontextmanager
async def loaded(
    request: HttpRequest, model: str | None, does: Does | None = "generates"
) -> AsyncIterator[None]:
    """As `Services.loaded`, for a request whose body has been read. Stops waiting if the client leaves."""
    context = services_of(request).loaded(model, does)
    try:
        if context.waits:
            entering = asyncio.create_task(context.__aenter__())
            await _unless_disconnected(request.receive, entering)
        else:
            await context.__aenter__()
        yield
    finally:
        await context.__aexit__()


async def _unless_disconnected(receive: Receive, work: asyncio.Task[None]) -> None:
    """Wait for `work`; cancel it if the client leaves before it is done, or if this task is cancelled."""
    leaving = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise EngineUnavailable("The client left before the model was loaded.")
        await work
    finally:
        leaving.cancel()
        work.cancel()  # of no effect where it is done
        await asyncio.wait((work, leaving))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
