"""The Litestar application of a configuration: routes, errors, and a lifespan that opens what is selected."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
from litestar import Litestar, Response
from litestar.exceptions import HTTPException
from litestar.types import Message, Scope

from gateway.chat.tools import chat_servers_of, check_chat_tools
from gateway.config import Config
from gateway.errors import (
    AuthenticationError,
    ConfigurationError,
    GatewayError,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
)
from gateway.loop.fingerprint import with_fingerprint
from gateway.plugins import PluginSet
from gateway.protocols import (
    MeasuredEngine,
    SpeaksFormat,
    StoredResponse,
    ToolServer,
    ToolServers,
    UsesServices,
)
from gateway.responses.background import BackgroundRuns
from gateway.responses.rerun import made_again
from gateway.responses.run import ResponseRun
from gateway.responses.sealing import Sealer
from gateway.routes.answers import DIRECT_SEND, JSON, error_answer, error_body
from gateway.routes.chat import create_chat_completion
from gateway.routes.chunks import unchunked
from gateway.routes.completions import create_completion
from gateway.routes.conversations import (
    create_conversation,
    create_items,
    delete_conversation,
    delete_item,
    list_items,
    retrieve_conversation,
    retrieve_item,
    update_conversation,
)
from gateway.routes.cross_origin import cors_config, is_preflight, refusal_headers
from gateway.routes.embeddings import create_embeddings
from gateway.routes.fronts import REQUEST_ID, answer_by_header, front_error, keep_fronts
from gateway.routes.health import health, metrics, ready
from gateway.routes.models import list_models, retrieve_model
from gateway.routes.responses import (
    cancel_response,
    compact_response,
    count_input_tokens,
    create_response,
    delete_response,
    list_input_items,
    retrieve_response,
)
from gateway.routes.state import SERVICES, HttpRequest, keep_services, services_if_open
from gateway.routes.stored_chat import (
    delete_chat_completion,
    list_chat_completions,
    list_chat_messages,
    retrieve_chat_completion,
    update_chat_completion,
)
from gateway.routes.tokenize import detokenize, tokenize
from gateway.routes.websocket import responses_socket
from gateway.serving.access import Doorkeeper, check_access
from gateway.serving.admission import Admission
from gateway.serving.metrics import Metrics
from gateway.serving.model_opening import OpenedModel, open_model
from gateway.serving.plugin_services import PluginServices
from gateway.serving.selection import Selection, needed, select
from gateway.serving.served import NamedFront, RunSettings, ServedModel, Services
from gateway.tools.offered import OfferedTools, RunnableTool, offered_to
from gateway.wire.ids import new_id

logger = logging.getLogger("gateway.app")


class MethodNotAllowed(GatewayError):
    """A known path that does not take this method: 405."""

    status = 405
    type = "invalid_request_error"
    default_code = "method_not_allowed"


class GatewayApp(Litestar):
    """Litestar, with `x-request-id` on every answer and every answer counted, errors of the framework included."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope[REQUEST_ID] = request_id
        if scope["http_version"] == "1.0":
            send = unchunked(send)
        scope[DIRECT_SEND] = send

        added = [(b"x-request-id", request_id)]
        services = services_if_open(self)
        scope[SERVICES] = services

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *added]
                if services is not None:
                    route = scope.get("path_template") or "unmatched"
                    services.metrics.request_answered(str(route), message["status"])
            await send(message)

        try:
            if services is not None:
                scope["owner"] = services.doorkeeper.owner(scope["path"], scope["headers"])
        except AuthenticationError as error:
            if self.cors_config is not None and is_preflight(scope):
                await super().__call__(scope, receive, send_with_id)
                return
            added += refusal_headers(self.cors_config, scope)
            answer = front_error(self, scope, error) or error_answer(error)
            await answer(scope, receive, send_with_id)
            return
        await super().__call__(scope, receive, send_with_id)


_CLEAN_ID = re.compile(rb"[A-Za-z0-9._:/=+-]{1,128}\Z")


def _request_id(scope: Scope) -> bytes:
    """The client's own `x-request-id` where it is harmless, else a fresh one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _CLEAN_ID.match(value):
            return value
    return new_id("req_").encode()


def create_app(config: Config, plugins: PluginSet) -> Litestar:
    """The application that serves `config` with `plugins`, complete: for any ASGI server.

    Its lifespan opens the engines, tools and store that the configuration selects, and closes them in reverse order; a
    mistake in the configuration raises `ConfigurationError`, in an exception group of Litestar's, as it starts.
    """

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            services = await open_services(config, plugins, stack)
            keep_services(app, services)
            keep_fronts(app, services)
            yield

    return _app(config, [lifespan])


def app_of(services: Services) -> Litestar:
    """The application around what is open already, and is closed by whoever opened it."""
    app = _app(services.config, [])
    keep_services(app, services)
    keep_fronts(app, services)
    return app


def _app(
    config: Config, lifespan: list[Callable[[Litestar], AbstractAsyncContextManager[None]]]
) -> Litestar:
    handlers = [
        create_response, retrieve_response, delete_response, cancel_response,
        list_input_items, count_input_tokens, compact_response, responses_socket,
        create_conversation, retrieve_conversation, update_conversation, delete_conversation,
        create_items, list_items, retrieve_item, delete_item,
        create_chat_completion, list_chat_completions, retrieve_chat_completion,
        update_chat_completion, delete_chat_completion, list_chat_messages,
        create_completion, create_embeddings, tokenize, detokenize,
        list_models, retrieve_model,
        health, ready,
    ]  # fmt: skip
    if config.server.metrics:
        handlers.append(metrics)
    return GatewayApp(
        route_handlers=handlers,
        lifespan=lifespan,
        exception_handlers={Exception: _answer_exception},
        before_request=answer_by_header,
        cors_config=cors_config(config.server.cors_allow_origins),
        openapi_config=None,
        logging_config=None,  # logging is set up by whoever runs the server
        request_max_body_size=None,  # `read_json_body` has the limit
    )


async def open_services(config: Config, plugins: PluginSet, stack: AsyncExitStack) -> Services:
    """Open all that `config` selects, inside `stack`. Raises `ConfigurationError`."""
    check_access(config.server)
    selection = select(config, plugins)
    sealer = Sealer(config.server.reasoning_keys)
    metrics = Metrics()
    store = background = None
    # Before any weights: a store that is away stops the start at once.
    if selection.store is not None:
        offer, store_config = selection.store
        store = await stack.enter_async_context(offer.make(store_config))
    resources = {
        offer.name: await stack.enter_async_context(offer.make(resource_config))
        for offer, resource_config in selection.resources
    }
    models: list[ServedModel] = []
    aliases: dict[str, str] = {}
    taken = {name for own, each in config.models.items() for name in (own, *each.aliases)}
    for plan in selection.models:
        opened = await open_model(plan, stack)
        logger.info("model %s: %s", opened.name, opened.why)
        model = with_fingerprint(_served(opened))
        metrics.watch_model(model.name, model.admission)
        if isinstance(model.engine, MeasuredEngine):
            metrics.watch_engine(model.name, model.engine)
        models += (model, *_adapters(model, taken))
        taken.update(model.info.adapters)
        aliases.update(dict.fromkeys(model.config.aliases, model.name))

    async def _made_again(record: StoredResponse) -> ResponseRun:
        return await made_again(record, services)

    if store is not None:
        again = _made_again if config.server.rerun_lost else None
        background = BackgroundRuns(
            store, lease_seconds=config.server.lease_seconds, made_again=again
        )
    fronts = [
        NamedFront(
            offer.name,
            await stack.enter_async_context(offer.make(route_config, **needed(offer, resources))),
        )
        for offer, route_config in selection.routes
    ]
    servers = await _open_tools(config, selection, resources, stack)
    services = Services(
        config=config,
        models=models,
        aliases=aliases,
        store=store,
        offered_tools=await _offered_tools(config, servers, models),
        metrics=metrics,
        settings=RunSettings(request_timeout=config.server.request_timeout),
        hook=plugins.hook,
        background=background,
        doorkeeper=Doorkeeper(config.server.api_keys),
        sealer=sealer,
        fronts=fronts,
    )
    plugged = (*resources.values(), *(each.front for each in fronts), *servers.values())
    for user in plugged:
        if isinstance(user, UsesServices):
            user.use(PluginServices(services))
    # Last, so that what runs in the background ends before all else is closed.
    if background is not None:
        await stack.enter_async_context(background.kept())
    return services


def _served(opened: OpenedModel) -> ServedModel:
    config = opened.config
    if isinstance(opened.engine, SpeaksFormat):
        opened.engine.speak(opened.output_format)
    return ServedModel(
        name=opened.name,
        config=config,
        engine=opened.engine,
        renderer=opened.renderer,
        output_format=opened.output_format,
        admission=Admission(
            opened.name, max_running=config.max_running, max_waiting=config.max_waiting
        ),
        info=opened.info,
        created=int(time.time()),
        why=opened.why,
    )


def _adapters(model: ServedModel, taken: Collection[str]) -> list[ServedModel]:
    """The LoRA adapters of a model, as models that share its engine and its queue."""
    for name in model.info.adapters:
        if name in taken:
            raise ConfigurationError(
                f"The adapter '{name}' of model '{model.name}' is served under its own name, and another model has that "
                "name, or alias, already: rename one of them."
            )
    return [
        with_fingerprint(msgspec.structs.replace(model, name=name, adapter=name, parent=model.name))
        for name in model.info.adapters
    ]


async def _open_tools(
    config: Config, selection: Selection, resources: Mapping[str, Any], stack: AsyncExitStack
) -> dict[str, ToolServer | ToolServers]:
    """Open the tool servers, by the names of their tables."""
    check_chat_tools(config)
    return {
        name: await stack.enter_async_context(offer.make(tool_config, **needed(offer, resources)))
        for name, (offer, tool_config) in zip(config.tools, selection.tools, strict=True)
    }


async def _offered_tools(
    config: Config,
    servers: Mapping[str, ToolServer | ToolServers],
    models: Sequence[ServedModel],
) -> dict[str, OfferedTools]:
    """What each of `models` may use of the tool servers, by its name."""
    tables = {
        name: await _offered_by(name, server, config.server.chat_tools)
        for name, server in servers.items()
    }
    return {
        model.name: offered_to(
            model.name, model.config, tables, unavailable=config.server.unavailable_tools
        )
        for model in models
    }


async def _offered_by(
    name: str, server: ToolServer | ToolServers, chat_tools: Sequence[str]
) -> OfferedTools:
    """What the server that `[tools.<name>]` selects offers."""
    if isinstance(server, ToolServers):
        return OfferedTools(
            choices={server.request_type: server},
            chat_servers=chat_servers_of(name, server, chat_tools),
        )
    entries = [RunnableTool(server, tool) for tool in await server.tools()]
    by_type: dict[str, list[RunnableTool]] = {}
    for entry in entries:
        if entry.tool.request_type is not None:
            by_type.setdefault(entry.tool.request_type, []).append(entry)
    return OfferedTools(
        by_type=by_type,
        always=[entry for entry in entries if entry.tool.request_type is None],
        chat=entries if name in chat_tools else (),
    )


def _answer_exception(request: HttpRequest, exception: Exception) -> Response[bytes]:
    """Any exception in OpenAI's envelope, or in that of the front that was asked."""
    error = as_gateway_error(request, exception)
    if (told := front_error(request.app, request.scope, error)) is not None:
        reply = told.reply
        return Response(
            reply.body,
            status_code=reply.status,
            headers=dict(reply.headers),
            media_type=reply.content_type,
        )
    return Response(
        error_body(error), status_code=error.status, headers=error.headers, media_type=JSON
    )


def as_gateway_error(request: HttpRequest, exception: Exception) -> GatewayError:
    """What the client is told of `exception`; what it is not told is logged."""
    if isinstance(exception, GatewayError):
        return exception
    if isinstance(exception, HTTPException):
        where = f"{request.method} {request.url.path}"
        match exception.status_code:
            case 404:
                return NotFound(f"Invalid URL ({where}).", code="unknown_url")
            case 405:
                return MethodNotAllowed(
                    f"Not allowed: {where}.", headers=dict(exception.headers or {})
                )
            case 413:
                return PayloadTooLarge("The body is too large.")
            case status if 400 <= status < 500:
                return InvalidRequest(exception.detail or "The request is invalid.")
            case _:
                pass
    logger.error("unexpected error", exc_info=exception)
    return GatewayError("The server had an internal error on this request.")
