"""The routes of the console: static files. All that the page shows comes from the gateway's public API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from gateway.sdk import AsgiApp, GatewayError, GatewayServices, NotFound, Reply, Route, RouteRequest
from gateway_console.files import PAGE, VENDOR, StaticFile

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-cache",
    "vary": "accept, accept-encoding",
}
"""Sent with every file. With `trusted-types 'none'`, browsers refuse every use of `innerHTML`. No image, style, font or
connection leads elsewhere, so that a model's answer cannot send anything to another host."""

_KEPT_FOR_A_YEAR: Final = {"cache-control": "public, max-age=31536000, immutable"}
"""Sent with libraries, whose paths change with their versions."""

KEPT_RUNS: Final = 100
"""Runs that have ended and are still shown."""


class ConsoleApi:
    """Implements `gateway.sdk.Api` and `gateway.sdk.ServicesUser`."""

    def __init__(self, files: Mapping[str, StaticFile]) -> None:
        page = files[PAGE]
        self.routes: Sequence[Route] = (
            *(
                Route(method="GET", path=path, handle=_handler(page, browsers_at=path), public=True)
                for path in ("/", "/docs")
            ),
            *(
                Route(
                    method="GET",
                    path=f"/console/{name}",
                    handle=_handler(file, kept=name.startswith(VENDOR)),
                    public=True,
                )
                for name, file in sorted(files.items())
                if file is not page
            ),
        )

    def use(self, services: GatewayServices) -> None:
        services.keep_runs(KEPT_RUNS)

    def error(self, error: GatewayError, request_id: str) -> Reply:
        return Reply.error(error)


def _handler(
    file: StaticFile, *, browsers_at: str | None = None, kept: bool = False
) -> Callable[[RouteRequest], Awaitable[Reply | AsgiApp]]:
    def reply(request: RouteRequest) -> Reply:
        if browsers_at is not None and "text/html" not in request.headers.get("accept", ""):
            # Status and code are what a client of the API would get without the console.
            raise NotFound(
                f"Invalid URL (GET {browsers_at}). The API is below /v1; only browsers get a page here.",
                code="unknown_url",
            )
        headers = {**HEADERS, **(_KEPT_FOR_A_YEAR if kept else {}), "etag": file.etag}
        if request.headers.get("if-none-match") == file.etag:
            return Reply(body=b"", status=304, content_type=file.content_type, headers=headers)
        body = file.content
        if file.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            body = file.compressed
            headers["content-encoding"] = "gzip"
        return Reply(body=body, content_type=file.content_type, headers=headers)

    async def handle(request: RouteRequest) -> Reply | AsgiApp:
        answer = reply(request)
        if browsers_at is None or browsers_at == "/":
            return answer
        return _without_slash(answer, browsers_at)

    return handle


def _without_slash(page: Reply, path: str) -> AsgiApp:
    """Sends `page`. A browser that asked for `path` with a slash at its end is led to `path`, by an address relative to
    its own: what the page names is beside it, also below the path of a proxy."""

    async def send_page(scope: Any, receive: Any, send: Any) -> None:
        answer = page
        if scope["raw_path"].endswith(b"/"):
            answer = Reply(body=b"", status=307, headers={**HEADERS, "location": f"..{path}"})
        headers = {
            "content-type": answer.content_type,
            "content-length": str(len(answer.body)),
            **answer.headers,
        }
        lines = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": lines})
        await send({"type": "http.response.body", "body": answer.body})

    return send_page
