"""The routes and error formats of plugins' APIs."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from litestar import Litestar
from litestar import route as litestar_route
from litestar.routes import HTTPRoute
from litestar.types import ASGIApp
from msgspec import Struct

from gateway.base.errors import ConfigurationError, GatewayError
from gateway.http.answers import note_error
from gateway.http.api_answers import ReplyAnswer, stream_headers
from gateway.http.api_gateway import ApiGateway
from gateway.http.body import read_body, stream_body
from gateway.http.counted import counted
from gateway.http.early_start import EarlyStart
from gateway.http.loading import while_connected
from gateway.http.state import CONTEXT, HttpRequest, context_of, services_of
from gateway.http.streaming import SSE_COMMENT
from gateway.http.trace import take_rank, trace_headers
from gateway.http.unknown import note_unknown
from gateway.plugins.protocols import Api, AsgiApp, Gateway, Reply, Route
from gateway.services import NamedApi, Services
from gateway.wire.parameters import SharedParameters

_PARAMETER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*):(str|path)\}")


class ApiRequest:
    """Implements `gateway.plugins.protocols.RouteRequest`."""

    def __init__(self, request: HttpRequest, gateway: Gateway, parameters: Mapping[str, str]):
        self._request, self._services = request, services_of(request)
        self.gateway = gateway
        self.path_parameters = parameters
        context = context_of(request)
        self.principal = context.principal
        self.id: str = context.id
        self.owner = context.owner
        self.headers: Mapping[str, str] = request.headers
        self.query: Mapping[str, str] = request.query_params
        self.trace_headers = trace_headers(request)
        self._early: EarlyStart | None = None

    def take_rank(self, parameters: SharedParameters) -> None:
        take_rank(self._request, parameters)

    def note_unknown(self, names: Collection[str]) -> None:
        route = self._request.scope.get("path_template") or "unmatched"
        note_unknown(self._request, self._services, str(route), names)

    def begin_stream(
        self,
        *,
        fail: Callable[[GatewayError], bytes],
        idle: bytes = SSE_COMMENT,
        headers: Mapping[str, str] = {},
        content_type: str = "text/event-stream; charset=utf-8",
        idle_seconds: float | None = None,
    ) -> None:
        self._early = EarlyStart(
            self._request,
            fail=fail,
            idle=idle,
            headers=stream_headers(headers, content_type),
            idle_seconds=idle_seconds or 0.0,
        )

    def take_early(self) -> EarlyStart | None:
        """Return and forget the beginning of the stream, if `begin_stream` was called. It is not kept, because its body
        will refer to the object that answers."""
        early, self._early = self._early, None
        return early

    async def body(self) -> bytes:
        return await read_body(self._request, self._services)

    def stream(self, limit: int) -> AsyncGenerator[bytes, None]:
        return stream_body(self._request, self._services, limit)


class _Entry(Struct, frozen=True):
    """One route of an API."""

    api: NamedApi
    route: Route
    pattern: re.Pattern[str]
    """Matches the route's path."""
    subtree: re.Pattern[str]
    """Matches the route's path, and all paths below it."""

    async def answer(self, request: HttpRequest) -> ASGIApp:
        found = self.pattern.fullmatch(request.scope["path"])
        asked = ApiRequest(
            request,
            ApiGateway(services_of(request), self.api.name, while_connected(request)),
            found.groupdict() if found else {},
        )
        if not self.route.counted:
            return await self._answer(asked)
        async with counted(services_of(request)):
            return await self._answer(asked)

    async def _answer(self, asked: ApiRequest) -> ASGIApp:
        try:
            answer = await self.route.handle(asked)
        except BaseException as error:
            if (early := asked.take_early()) is None:
                raise
            return await early.failed(error)
        early = asked.take_early()
        return _as_app(answer) if early is None else await early.answered(_as_app(answer))


class ApiRoutes:
    """The routes of all plugins' APIs."""

    def __init__(self, apis: Sequence[NamedApi]) -> None:
        """Raises `ConfigurationError` for an invalid path."""
        self._entries = [_entry(api, route) for api in apis for route in api.api.routes]
        self._by_header: dict[tuple[str, str], list[_Entry]] = {}
        for entry in self._entries:
            if entry.route.header is not None:
                self._by_header.setdefault(_key(entry.route), []).append(entry)

    def register(self, app: Litestar) -> None:
        """Add the routes to `app`. Raises `ConfigurationError` if two routes have the same path."""
        own: set[tuple[str, str]] = {
            (str(method), _shape(found.path))
            for found in app.routes
            if isinstance(found, HTTPRoute)
            for method in found.methods
        }
        taken = dict.fromkeys(own, "the gateway itself")
        for entry in self._entries:
            route, key = entry.route, _key(entry.route)
            where = f"The API '{entry.api.name}' offers {route.method} {route.path}"
            if route.header is not None:
                if key not in own:
                    raise ConfigurationError(
                        f"{where} for requests with the header '{route.header}' only, which is for paths that the gateway "
                        "itself has."
                    )
                continue
            if other := taken.get(key):
                raise ConfigurationError(
                    f"{where}, and so does {other}: leave it out of server.apis."
                )
            taken[key] = f"the API '{entry.api.name}'"
            app.register(
                litestar_route(route.path, http_method=[route.method], status_code=200)(
                    _handler(entry)
                )
            )

    def routes(self) -> Iterator[tuple[str, Route]]:
        """Yields each route that has its own path, with the name of its API."""
        for entry in self._entries:
            if entry.route.header is None:
                yield entry.api.name, entry.route

    def public_paths(self) -> Collection[str]:
        """The paths that need no API key. Raises `ConfigurationError` if such a path also has a route that needs
        one."""
        public = {entry.route.path for entry in self._entries if entry.route.public}
        for entry in self._entries:
            route = entry.route
            if route.path in public and not (
                route.public and route.method == "GET" and "{" not in route.path
            ):
                raise ConfigurationError(
                    f"The API '{entry.api.name}' offers {route.method} {route.path}, which cannot be public: only GET can, on "
                    "a path without parameters that has no other route."
                )
        return public

    def has_header_route(self, method: str, path: str) -> bool:
        """Whether an API answers requests to `path` that have the API's header."""
        return (method, _shape(path)) in self._by_header

    async def by_header(self, request: HttpRequest) -> ASGIApp | None:
        """Route a request by its headers. Returns the answer of the API that has a route with this path and with a
        header that the request contains; None if there is no such API."""
        if not self._by_header:
            return None
        path = _shape(str(request.scope.get("path_template", "")))
        for entry in self._by_header.get((request.method, path), ()):
            if entry.route.header in request.headers:
                return await entry.answer(request)
        return None

    def of(self, path: str, headers: Sequence[tuple[bytes, bytes]]) -> Api | None:
        """The API that formats errors on `path`; None if the gateway does."""
        names = {name for name, _ in headers}
        for entry in self._entries:
            header = entry.route.header
            if header is None and entry.subtree.fullmatch(path):
                return entry.api.api
            if header is not None and header.encode() in names and entry.pattern.fullmatch(path):
                return entry.api.api
        return None


NO_APIS = ApiRoutes(())


def keep_apis(app: Litestar, services: Services) -> ApiRoutes:
    """Add the routes of the APIs in `services` to `app`. Raises `ConfigurationError` for invalid routes."""
    apis = ApiRoutes(services.apis)
    apis.register(app)
    services.authenticator.open_paths(apis.public_paths())
    app.state["apis"] = apis
    return apis


def apis_in(app: Litestar) -> ApiRoutes:
    """The API routes of `app`; empty before start-up."""
    apis: ApiRoutes = app.state.get("apis", NO_APIS)
    return apis


def api_error(app: Litestar, scope: Mapping[str, Any], error: GatewayError) -> ReplyAnswer | None:
    """`error` in the format of the request's API; None if the gateway formats it."""
    note_error(error)
    api = apis_in(app).of(scope["path"], scope["headers"])
    return None if api is None else ReplyAnswer(api.error(error, scope[CONTEXT].id))


async def answer_by_header(request: HttpRequest) -> ASGIApp | None:
    """The `before_request` handler for Litestar; see `ApiRoutes.by_header`."""
    return await apis_in(request.app).by_header(request)


def _handler(entry: _Entry) -> Any:
    async def answer_api(request: HttpRequest) -> ASGIApp:
        return await entry.answer(request)

    return answer_api


def _as_app(answer: Reply | AsgiApp) -> ASGIApp:
    return ReplyAnswer(answer) if isinstance(answer, Reply) else answer


def _entry(api: NamedApi, route: Route) -> _Entry:
    where = f"The API '{api.name}' offers the path {route.path!r}"
    literal = _PARAMETER.sub("", route.path)
    if not route.path.startswith("/") or set("{}") & set(literal):
        raise ConfigurationError(
            f"{where}, which is none: it begins with '/', and its parameters are {{name:str}} or {{name:path}}."
        )
    if route.header is not None and route.header != route.header.lower():
        raise ConfigurationError(
            f"{where} with the header {route.header!r}: write it in lower case."
        )
    written = _pattern(route.path)
    return _Entry(api, route, re.compile(written), re.compile(f"{written}(?:/.*)?"))


def route_of(app: Litestar, path: str) -> str | None:
    """The template of the route of `app` that matches `path`; None if no route does. Takes time linear in the number of
    routes, so it is only used for errors."""
    plain = path.rstrip("/") or "/"
    found = [route.path_format for route in app.routes if _compiled(route.path).fullmatch(plain)]
    return min(found, key=lambda template: template.count("{"), default=None)


@lru_cache(1024)
def _compiled(path: str) -> re.Pattern[str]:
    return re.compile(_pattern(path))


def _pattern(path: str) -> str:
    """A regular expression that matches the paths of a route."""
    written = ""
    at = 0
    for found in _PARAMETER.finditer(path):
        part = "[^/]+" if found[2] == "str" else ".+"
        written += f"{re.escape(path[at : found.start()])}(?P<{found[1]}>{part})"
        at = found.end()
    return written + re.escape(path[at:])


def _key(route: Route) -> tuple[str, str]:
    return route.method, _shape(route.path)


@lru_cache(1024)
def _shape(path: str) -> str:
    """A path without the names and types of its parameters."""
    return re.sub(r"\{[^}]*\}", "{}", path)
