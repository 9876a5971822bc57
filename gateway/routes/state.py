"""Where a request finds the running gateway."""

from __future__ import annotations

from typing import Any, TypeAlias

from litestar import Litestar, Request

from gateway.serving.served import Services

HttpRequest: TypeAlias = Request[Any, Any, Any]

SERVICES = "gateway.services"
"""Where the application keeps the running gateway in a request's scope."""
_KEY = "services"


def keep_services(app: Litestar, services: Services) -> None:
    """Make `services` the running gateway of `app`."""
    app.state[_KEY] = services


def services_in(app: Litestar) -> Services:
    """The running gateway of `app`, whose lifespan has begun."""
    services = app.state[_KEY]
    assert isinstance(services, Services)
    return services


def services_if_open(app: Litestar) -> Services | None:
    """The same; None before the lifespan has begun."""
    services = app.state.get(_KEY)
    return services if isinstance(services, Services) else None


def services_of(request: HttpRequest) -> Services:
    """The running gateway that serves `request`."""
    # Litestar's state is looked into under a lock, and this is asked several times in each request.
    services = request.scope.get(SERVICES)
    return services if isinstance(services, Services) else services_in(request.app)


def owner_of(request: HttpRequest) -> str | None:
    """Whose request it is: the id of its API key, or None in anonymous mode."""
    owner: str | None = request.scope.get("owner")  # type: ignore[assignment]
    return owner
