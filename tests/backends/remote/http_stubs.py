"""Servers on this machine that answer as a stub says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Protocol, TypeAlias

from aiohttp import web

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Stub(Protocol):
    async def models(self, request: web.Request, /) -> web.StreamResponse: ...

    async def health(self, request: web.Request, /) -> web.StreamResponse: ...


async def serve_stub(stack: AsyncExitStack, stub: Stub, path: str, handle: Handler) -> str:
    """Serve the stub until the stack is closed. Returns its address."""
    app = web.Application(client_max_size=2**26)
    app.router.add_get("/v1/models", stub.models)
    app.router.add_get("/health", stub.health)
    app.router.add_post(path, handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0, handler_cancellation=True)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}"
