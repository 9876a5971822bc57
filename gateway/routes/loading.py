"""Requests that wait until their model is loaded."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from litestar.types import Receive

from gateway.errors import EngineUnavailable
from gateway.routes.state import HttpRequest, services_of
from gateway.runtime.model_slot import Does
from gateway.runtime.services import Loaded


def loaded(
    request: HttpRequest, model: str | None, does: Does | None = "generates"
) -> AbstractAsyncContextManager[None]:
    """As `Services.loaded`, for a request whose body has been read. Stops waiting if the client leaves."""
    return _LoadedForRequest(request.receive, services_of(request).loaded(model, does))


class _LoadedForRequest(AbstractAsyncContextManager[None]):
    """See `loaded`. Not a generator: each request has such a context."""

    __slots__ = ("_context", "_receive")

    def __init__(self, receive: Receive, context: Loaded) -> None:
        self._receive = receive
        self._context = context

    async def __aenter__(self) -> None:
        context = self._context
        try:
            if context.waits:
                entering = asyncio.create_task(context.__aenter__())
                await _unless_disconnected(self._receive, entering)
            else:
                await context.__aenter__()
        except BaseException:
            await context.__aexit__()
            raise

    async def __aexit__(self, *exc_info: object) -> None:
        await self._context.__aexit__()


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
