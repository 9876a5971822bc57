"""Access to the running gateway from requests."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from litestar import Litestar, Request

from gateway.base.errors import GatewayError, Unsupported
from gateway.observe.request_context import RequestContext
from gateway.plugins.protocols import Principal, ResponseStore
from gateway.services import Services

HttpRequest: TypeAlias = Request[Any, Any, Any]

CONTEXT = "gateway.context"
"""The scope key of the request's `RequestContext`. Servers never set it; the gateway does for requests that it sends itself."""
SERVICES = "gateway.services"
"""The scope key of the running gateway's services."""
_KEY = "services"
_CLEAN_ID = re.compile(rb"[A-Za-z0-9._:/=+-]{1,128}\Z")


def attach_services(app: Litestar, services: Services) -> None:
    """Attach `services` to `app`."""
    app.state[_KEY] = services


def services_in(app: Litestar) -> Services:
    """The services of `app`, after start-up."""
    services = app.state[_KEY]
    assert isinstance(services, Services)
    return services


def services_of(request: HttpRequest) -> Services:
    """The services of the gateway that serves `request`."""
    # The scope caches it: Litestar's state takes a lock, and this is called several times per request.
    services = request.scope.get(SERVICES)
    return services if isinstance(services, Services) else services_in(request.app)


def context_of(request: HttpRequest) -> RequestContext:
    """The context of `request`."""
    context = request.scope[CONTEXT]  # type: ignore[literal-required]  # ASGI scopes may hold more
    assert isinstance(context, RequestContext)
    return context


def owner_of(request: HttpRequest) -> str | None:
    """The owner of the request's API key; None in anonymous mode."""
    return context_of(request).owner


def is_clean_id(value: bytes) -> bool:
    """Whether an `x-request-id` that comes from outside is safe to use."""
    return _CLEAN_ID.match(value) is not None


def store_of(request: HttpRequest) -> ResponseStore:
    """The store. Raises `Unsupported` if there is none."""
    store = services_of(request).store
    if store is None:
        raise Unsupported('This server stores nothing (store = "none").')
    return store


def services_for_admin(request: HttpRequest) -> Services:
    """The services of the gateway. Raises `PermissionDenied` unless the request's API key has `admin`."""
    services = services_of(request)
    services.authenticator.require_admin(request.scope["headers"])
    return services


def services_to_change(request: HttpRequest) -> Services:
    """Like `services_for_admin`, but raises `Unsupported` if the server has several processes, because the request
    could change only one of them."""
    services = services_for_admin(request)
    workers = services.config.server.workers
    if workers > 1:
        raise Unsupported(
            f"This server has {workers} worker processes, and a request reaches only one of them. Change the configuration "
            "instead."
        )
    return services


async def identify_sender(
    services: Services, scope: Any, *, open_paths: bool = True
) -> Principal | None:
    """Identify the principal of a request or handshake by its headers and its TLS certificate (the ASGI extension
    `tls`). Returns None in anonymous mode, and with `open_paths` if anyone may use the path. Raises `GatewayError` if
    the sender is refused."""
    tls = (scope.get("extensions") or {}).get("tls") or {}
    name = tls.get("client_cert_name")
    return await services.authenticator.identify(
        scope["path"],
        scope["headers"],
        tls_name=name if isinstance(name, str) else None,
        tls_alternative_names=tls.get("client_cert_alternative_names") or (),
        open_paths=open_paths,
    )


async def may_see_details(request: HttpRequest) -> bool:
    """Whether a path that is open to anyone shows the sender details. True for administrators, and in anonymous
    mode."""
    try:
        principal = await identify_sender(services_of(request), request.scope, open_paths=False)
    except GatewayError:
        return False
    return principal is None or principal.admin
