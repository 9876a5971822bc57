"""Builds the Litestar application: routes, error handling, and a lifespan that opens what the configuration selects."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias

from litestar import Litestar, Request, Response
from litestar.exceptions import HTTPException
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.types import ASGIApp

from gateway.base.errors import (
    AuthenticationError,
    GatewayError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    UnsupportedMediaType,
)
from gateway.config import Config, TrustedProxies
from gateway.http.adapters import load_lora_adapter, unload_lora_adapter
from gateway.http.admin.info import cancel_listed_run, describe_gateway, list_runs
from gateway.http.admin.state import list_config, list_keys, list_model_queues
from gateway.http.admin.tools import list_tool_servers, probe_tool_servers
from gateway.http.answer_head import AnswerHead
from gateway.http.answers import DIRECT_SEND, JSON, error_answer
from gateway.http.api_description import openapi
from gateway.http.apis import (
    answer_by_header,
    api_error,
    apis_in,
    keep_apis,
    route_of,
)
from gateway.http.chat import create_chat_completion
from gateway.http.client_address import CLIENT_ADDRESS, ClientAddress
from gateway.http.completions import create_completion
from gateway.http.connections.client_connection import SCOPE_KEY as CONNECTION_KEY
from gateway.http.conversations import (
    create_conversation,
    create_items,
    delete_conversation,
    delete_item,
    list_items,
    retrieve_conversation,
    retrieve_item,
    update_conversation,
)
from gateway.http.cross_origin import cors_config, is_preflight, refusal_headers
from gateway.http.embeddings import create_embeddings
from gateway.http.health import health, metrics, ready
from gateway.http.internal import InternalRequests
from gateway.http.models import change_model, delete_model, list_models, retrieve_model
from gateway.http.request_guard import RequestGuard
from gateway.http.responses import (
    cancel_response,
    compact_response,
    count_input_tokens,
    create_response,
    delete_response,
    list_input_items,
    retrieve_response,
)
from gateway.http.scoring import create_rerank, create_scores
from gateway.http.state import (
    CONTEXT,
    SERVICES,
    HttpRequest,
    attach_services,
    identify_sender,
    is_clean_id,
)
from gateway.http.stored_chat import (
    delete_chat_completion,
    list_chat_completions,
    list_chat_messages,
    retrieve_chat_completion,
    update_chat_completion,
)
from gateway.http.tokenize import detokenize, tokenize
from gateway.http.unknown_urls import appended_path_hint, unknown_url_hint
from gateway.http.usage import completions_usage, costs, embeddings_usage
from gateway.http.websocket import PATH as SOCKET_PATH
from gateway.http.websocket import is_socket_path, refuse_handshake, responses_socket
from gateway.observe.request_context import RequestContext
from gateway.observe.request_log import log_request
from gateway.plugins.loading import PluginSet
from gateway.services import Services
from gateway.startup.service_opening import open_services
from gateway.wire.ids import new_id
from gateway.wire.response import error_body

logger = logging.getLogger("gateway.http.app")

Handle: TypeAlias = Callable[[HttpRequest], Awaitable[ASGIApp]]


class GatewayApp(Litestar):
    """A Litestar application that sends `x-request-id` with every answer and counts every answer, including the
    framework's errors."""

    guard: RequestGuard
    client_address: ClientAddress | None = None
    """Finds the addresses of clients, if they are logged."""
    services: Services | None = None
    """The services that requests use; None before start-up."""
    direct_routes: Mapping[str, Handle] = {}
    """Maps the paths of the most frequent `POST` routes to the functions that answer them."""

    def use(self, services: Services) -> None:
        """Use `services` for all requests from now on. Raises `ConfigurationError` if the routes of an API are
        invalid."""
        attach_services(self, services)
        apis = keep_apis(self, services)
        services.send = InternalRequests(self)
        self.services = services
        self.direct_routes = {
            path: each.fn
            for each in _FREQUENT
            for path in each.paths
            if not apis.has_header_route("POST", path)
        }

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        """Return Litestar's default plugins without those for pydantic and attrs.

        No route uses types of these libraries, and importing them takes a tenth of the start-up time.
        """
        return [*plugins, MsgspecDIPlugin()]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            if self.client_address is not None:
                scope[CLIENT_ADDRESS] = self.client_address.of(scope)
            try:
                self.guard.check_handshake(scope)
                if not is_socket_path(scope["path"]):
                    raise NotFound(
                        f"Invalid URL (WebSocket {scope['path'][:1000]}). A WebSocket is opened at {SOCKET_PATH}.",
                        code="unknown_url",
                    )
            except GatewayError as error:
                await refuse_handshake(error, scope, send, self.services)
                return
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        headers = dict(scope["headers"])
        context: RequestContext | None = scope.get(CONTEXT)
        if context is None or not context.is_internal:  # a scope may be used again, by a middleware
            context = RequestContext(_request_id(headers), scope["method"])
        context.headers = headers
        # Answered like a GET. The server keeps the original scope and omits the body.
        if context.method == "HEAD":
            scope = {**scope, "method": "GET"}
            # The body is not written past the server, which omits it.
            scope.pop(CONNECTION_KEY, None)
        scope[CONTEXT] = context
        context.enter()
        services = self.services
        scope[SERVICES] = services
        scope[DIRECT_SEND] = send
        if self.client_address is not None and not context.is_internal:
            context.client = self.client_address.of(scope)
        if services is not None and services.tracer is not None:
            context.span = services.tracer.begin(context.method, scope["headers"])
        if services is not None and services.content_policy is not None:
            context.content = services.content_policy.content()
        try:
            head = AnswerHead(scope, send, context, services)
            await self._answer(scope, receive, head.send, context)
        finally:
            # The server's `send` refers to the scope: without this, only the garbage collector could free the cycle.
            scope.pop(DIRECT_SEND, None)
            context.end_span()
            if services is not None:
                log_request(context, line=services.config.server.access_log)

    async def _answer(self, scope: Any, receive: Any, send: Any, context: RequestContext) -> None:
        """Check a request and answer it. The sender is stored in `context`."""
        services = self.services
        if not context.is_internal:
            try:
                self.guard.check(scope, context.headers)
                if services is not None and services.authenticator.needs_key:
                    context.identified(await identify_sender(services, scope))
            except GatewayError as error:
                await self._refuse(error, scope, receive, send, context)
                return
        epoch = services.in_progress.begin() if services is not None else None
        try:
            if (handle := self._direct_handler(scope)) is None:
                await super().__call__(scope, receive, send)
            else:
                await self._answer_directly(handle, scope, receive, send, context)
        finally:
            if services is not None and epoch is not None:
                services.in_progress.end(epoch)

    async def _refuse(
        self, error: GatewayError, scope: Any, receive: Any, send: Any, context: RequestContext
    ) -> None:
        """Answer a request whose headers or sender are refused."""
        unauthenticated = isinstance(error, AuthenticationError)
        if unauthenticated and self.cors_config is not None and is_preflight(scope):
            await super().__call__(scope, receive, send)
            return
        route = scope["path_template"] = route_of(self, scope["path"])
        if isinstance(error, UnsupportedMediaType) and route is None:
            error = _unknown_url(self, context.method, scope["path"])
        context.added_headers += refusal_headers(self.cors_config, scope)
        answer = api_error(self, scope, error) or error_answer(error)
        await answer(scope, receive, send)

    def _direct_handler(self, scope: Any) -> Handle | None:
        """The function that answers a request to a frequent route; None if Litestar has to route the request."""
        if scope["method"] != "POST" or scope.get("root_path") or self.cors_config is not None:
            return None
        return self.direct_routes.get(scope["path"])

    async def _answer_directly(
        self, handle: Handle, scope: Any, receive: Any, send: Any, context: RequestContext
    ) -> None:
        """Answer a request with `handle`, as Litestar would, but without Litestar's router and unused layers."""
        # With more than 21 entries, the dictionary would take twice as much memory.
        scope["litestar_app"], scope["path_template"] = self, scope["path"]
        request: HttpRequest = Request(scope, receive, send)
        try:
            answer = await handle(request)
            del request  # a stream that waits for its model holds as little as possible
            scope.pop("state", None)  # where Litestar stores data of the request
            await answer(scope, receive, send)
        except Exception as error:
            if context.status:  # the answer has begun
                raise
            request = Request(scope, receive, send)
            response = _answer_exception(request, error)
            refusal = response.to_asgi_response(app=None, request=request)
            await refusal(scope, receive, send)


_FREQUENT = (create_response, create_chat_completion, create_completion, create_embeddings)
"""Handlers that take only the request and return an ASGI application."""


def _request_id(headers: Mapping[bytes, bytes]) -> str:
    """The client's `x-request-id` if it is safe to use, otherwise a new one."""
    sent = headers.get(b"x-request-id")
    return new_id("req_") if sent is None or not is_clean_id(sent) else sent.decode()


def create_app(config: Config, plugins: PluginSet) -> Litestar:
    """Create the complete ASGI application that serves `config` with `plugins`.

    Its lifespan opens the selected engines, tools and store, and closes them in reverse order. A mistake in the
    configuration raises `ConfigurationError` during start-up, inside an exception group from Litestar.
    """

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            services = await open_services(config, plugins, stack)
            assert isinstance(app, GatewayApp), "it is the one that is made here"
            app.use(services)
            yield

    return _app(config, [lifespan])


def app_of(services: Services) -> Litestar:
    """Create an application for services that are already open. The caller closes them."""
    app = _app(services.config, [])
    app.use(services)
    return app


def _app(
    config: Config, lifespan: list[Callable[[Litestar], AbstractAsyncContextManager[None]]]
) -> GatewayApp:
    handlers = [
        create_response, retrieve_response, delete_response, cancel_response,
        list_input_items, count_input_tokens, compact_response, responses_socket,
        create_conversation, retrieve_conversation, update_conversation, delete_conversation,
        create_items, list_items, retrieve_item, delete_item,
        create_chat_completion, list_chat_completions, retrieve_chat_completion,
        update_chat_completion, delete_chat_completion, list_chat_messages,
        create_completion, create_embeddings, create_rerank, create_scores, tokenize, detokenize,
        list_models, retrieve_model,
        completions_usage, embeddings_usage, costs, change_model, delete_model,
        load_lora_adapter, unload_lora_adapter,
        health, ready, openapi, describe_gateway, list_runs, cancel_listed_run,
        list_config, list_keys, list_model_queues, list_tool_servers, probe_tool_servers,
    ]  # fmt: skip
    if config.server.metrics:
        handlers.append(metrics)
    cors = cors_config(config.server.cors_allow_origins)
    app = GatewayApp(
        route_handlers=handlers,
        lifespan=lifespan,
        exception_handlers={Exception: _answer_exception},
        before_request=answer_by_header,
        cors_config=cors,
        openapi_config=None,
        logging_config=None,  # the server sets up logging
        request_max_body_size=None,  # `read_json_body` enforces the limit
    )
    app.guard = RequestGuard(config.server, cors)
    if config.server.log_client_address:
        app.client_address = ClientAddress(TrustedProxies(config.server.trusted_proxies))
    return app


def _answer_exception(request: HttpRequest, exception: Exception) -> Response[bytes]:
    """Answer any exception in the error format of OpenAI, or of the API that the request belongs to."""
    error = as_gateway_error(request, exception)
    if (formatted := api_error(request.app, request.scope, error)) is not None:
        reply = formatted.reply
        return Response(
            reply.body,
            status_code=reply.status,
            headers=dict(reply.headers),
            media_type=reply.content_type,
        )
    return Response(
        error_body(error), status_code=error.status, headers=error.headers, media_type=JSON
    )


def _unknown_url(app: Litestar, method: str, path: str) -> NotFound:
    served = {name for name, _ in apis_in(app).routes()}
    hint = unknown_url_hint(path, served)
    return NotFound(f"Invalid URL ({method} {path}).{hint}", code="unknown_url")


def as_gateway_error(request: HttpRequest, exception: Exception) -> GatewayError:
    """Convert `exception` to the error that the client receives. Internal details are logged, not returned."""
    if isinstance(exception, GatewayError):
        return exception
    if isinstance(exception, HTTPException):
        where = f"{request.method} {request.url.path}"
        match exception.status_code:
            case 404:
                return _unknown_url(request.app, request.method, request.url.path)
            case 405:
                return MethodNotAllowed(
                    f"Not allowed: {where}.{appended_path_hint(request.url.path)}",
                    headers=dict(exception.headers or {}),
                )
            case 413:
                return PayloadTooLarge("The body is too large.")
            case status if 400 <= status < 500:
                return InvalidRequest(exception.detail or "The request is invalid.")
            case _:
                pass
    logger.error("unexpected error", exc_info=exception)
    return GatewayError("The server had an internal error on this request.")
