"""The fronts of a running gateway: their routes among its own, and their form of errors."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from litestar import Litestar
from litestar import route as litestar_route
from litestar.routes import HTTPRoute
from litestar.types import ASGIApp
from msgspec import Struct

from gateway.errors import ConfigurationError, GatewayError
from gateway.protocols import AsgiApp, Front, Gateway, Reply, Route
from gateway.routes.body import read_body, stream_body
from gateway.routes.front_answers import SentReply
from gateway.routes.front_gateway import FrontGateway
from gateway.routes.state import HttpRequest, owner_of, services_of
from gateway.routes.trace import trace_headers
from gateway.serving.served import NamedFront, Services

REQUEST_ID = "gateway.request_id"
"""Where the application keeps a request's id in its scope."""

_PARAMETER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*):(str|path)\}")


class FrontRequest:
    """Satisfies `gateway.protocols.RouteRequest`."""

    def __init__(self, request: HttpRequest, gateway: Gateway, parameters: Mapping[str, str]):
        self._request = request
        self.gateway = gateway
        self.path_parameters = parameters
        self.id: str = request_id(request.scope)
        self.owner = owner_of(request)
        self.headers: Mapping[str, str] = request.headers
        self.query: Mapping[str, str] = request.query_params
        self.trace_headers = trace_headers(request)

    async def body(self) -> bytes:
        return await read_body(self._request)

    def stream(self, limit: int) -> AsyncGenerator[bytes, None]:
        return stream_body(self._request, limit)


def request_id(scope: Mapping[str, Any]) -> str:
    """The id of the request that `scope` is of."""
    return bytes(scope[REQUEST_ID]).decode()


class _Entry(Struct, frozen=True):
    """A route of a front."""

    front: NamedFront
    route: Route
    pattern: re.Pattern[str]
    """Of its path."""
    below: re.Pattern[str]
    """Of its path, and of all paths below it."""

    async def answer(self, request: HttpRequest) -> ASGIApp:
        found = self.pattern.fullmatch(request.scope["path"])
        asked = FrontRequest(
            request, FrontGateway(services_of(request)), found.groupdict() if found else {}
        )
        return _as_app(await self.route.handle(asked))


class Fronts:
    """All routes of all fronts."""

    def __init__(self, fronts: Sequence[NamedFront]) -> None:
        """Raises `ConfigurationError` for a path that cannot be read."""
        self._entries = [_entry(front, route) for front in fronts for route in front.front.routes]
        self._by_header: dict[tuple[str, str], list[_Entry]] = {}
        for entry in self._entries:
            if entry.route.header is not None:
                self._by_header.setdefault(_key(entry.route), []).append(entry)

    def register(self, app: Litestar) -> None:
        """Add the routes to `app`. Raises `ConfigurationError` for two on one path."""
        own: set[tuple[str, str]] = {
            (str(method), _shape(found.path))
            for found in app.routes
            if isinstance(found, HTTPRoute)
            for method in found.methods
        }
        taken = dict.fromkeys(own, "the gateway itself")
        for entry in self._entries:
            route, key = entry.route, _key(entry.route)
            where = f"The front '{entry.front.name}' offers {route.method} {route.path}"
            if route.header is not None:
                if key not in own:
                    raise ConfigurationError(
                        f"{where} for requests with the header '{route.header}' only, which is for paths that the gateway "
                        "itself has."
                    )
                continue
            if other := taken.get(key):
                raise ConfigurationError(
                    f"{where}, and so does {other}: leave it out of server.routes."
                )
            taken[key] = f"the front '{entry.front.name}'"
            app.register(
                litestar_route(route.path, http_method=[route.method], status_code=200)(
                    _handler(entry)
                )
            )

    async def by_header(self, request: HttpRequest) -> ASGIApp | None:
        """The answer of the front whose header this request to one of the gateway's own routes has; None without one."""
        if not self._by_header:
            return None
        path = _shape(str(request.scope.get("path_template", "")))
        for entry in self._by_header.get((request.method, path), ()):
            if entry.route.header in request.headers:
                return await entry.answer(request)
        return None

    def of(self, path: str, headers: Sequence[tuple[bytes, bytes]]) -> Front | None:
        """The front in whose form an error on `path` is told; None where it is the gateway's own."""
        names = {name for name, _ in headers}
        for entry in self._entries:
            header = entry.route.header
            if header is None and entry.below.fullmatch(path):
                return entry.front.front
            if header is not None and header.encode() in names and entry.pattern.fullmatch(path):
                return entry.front.front
        return None


NO_FRONTS = Fronts(())


def keep_fronts(app: Litestar, services: Services) -> None:
    """Add the routes of the fronts of `services` to `app`. Raises `ConfigurationError` for routes that cannot be."""
    fronts = Fronts(services.fronts)
    fronts.register(app)
    app.state["fronts"] = fronts


def fronts_in(app: Litestar) -> Fronts:
    """The fronts of `app`; none before it has begun."""
    fronts: Fronts = app.state.get("fronts", NO_FRONTS)
    return fronts


def front_error(app: Litestar, scope: Mapping[str, Any], error: GatewayError) -> SentReply | None:
    """`error` as the front of that request tells it; None where the gateway does."""
    front = fronts_in(app).of(scope["path"], scope["headers"])
    return None if front is None else SentReply(front.error(error, request_id(scope)))


async def answer_by_header(request: HttpRequest) -> ASGIApp | None:
    """For Litestar's `before_request`: see `Fronts.by_header`."""
    return await fronts_in(request.app).by_header(request)


def _handler(entry: _Entry) -> Any:
    async def answer_front(request: HttpRequest) -> ASGIApp:
        return await entry.answer(request)

    return answer_front


def _as_app(answer: Reply | AsgiApp) -> ASGIApp:
    return SentReply(answer) if isinstance(answer, Reply) else answer


def _entry(front: NamedFront, route: Route) -> _Entry:
    where = f"The front '{front.name}' offers the path {route.path!r}"
    literal = _PARAMETER.sub("", route.path)
    if not route.path.startswith("/") or set("{}") & set(literal):
        raise ConfigurationError(
            f"{where}, which is none: it begins with '/', and its parameters are {{name:str}} or {{name:path}}."
        )
    if route.header is not None and route.header != route.header.lower():
        raise ConfigurationError(
            f"{where} with the header {route.header!r}: write it in lower case."
        )
    written = ""
    at = 0
    for found in _PARAMETER.finditer(route.path):
        part = "[^/]+" if found[2] == "str" else ".+"
        written += f"{re.escape(route.path[at : found.start()])}(?P<{found[1]}>{part})"
        at = found.end()
    written += re.escape(route.path[at:])
    return _Entry(front, route, re.compile(written), re.compile(f"{written}(?:/.*)?"))


def _key(route: Route) -> tuple[str, str]:
    return route.method, _shape(route.path)


def _shape(path: str) -> str:
    """A path without the names and kinds of its parameters."""
    return re.sub(r"\{[^}]*\}", "{}", path)
