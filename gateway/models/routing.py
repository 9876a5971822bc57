"""Routing: which models to try for a request, and in which order."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from gateway.config import RouteConfig
from gateway.plugins.protocols import Router, RoutingRequest


class Routes:
    """The routes of the configuration. Implements `gateway.plugins.protocols.Router`."""

    def __init__(
        self, routes: Mapping[str, RouteConfig], *, source: random.Random | None = None
    ) -> None:
        """`source` is the random generator for the order of models with weights."""
        self.targets: Mapping[str, Sequence[str]] = {
            name: route.models for name, route in routes.items()
        }
        """The models of each route, in the configured order."""
        self._routes = routes
        self._random = source or random.Random()  # noqa: S311 (shares of requests, no secret)

    def __bool__(self) -> bool:
        return bool(self._routes)

    @property
    def names(self) -> Collection[str]:
        return self._routes.keys()

    async def candidates(self, request: RoutingRequest) -> Sequence[str] | None:
        route = self._routes.get(request.model or "")
        if route is None:
            return None
        order = self._order(route)
        if route.fallback:
            return order
        able = {model.name for model in request.models}
        return [name for name in order if name in able][:1]

    def _order(self, route: RouteConfig) -> Sequence[str]:
        if route.weights is None:
            return route.models
        # A weighted order without repetition (Efraimidis and Spirakis, 2006).
        keys = {
            name: self._random.random() ** (1 / weight) if weight else -1.0
            for name, weight in zip(route.models, route.weights, strict=True)
        }
        return sorted(route.models, key=lambda name: -keys[name])


class Routing:
    """The gateway's routers and configured routes."""

    def __init__(self, routes: Routes, routers: Sequence[Router] = ()) -> None:
        self.routes = routes
        self.routers = (*routers, routes)
        """All routers in the order in which they are asked. The routes of the configuration are the last."""
        self._asks_all = bool(routers)

    def concerns(self, name: str | None) -> bool:
        """Whether a request that names that model must be routed."""
        return self._asks_all or name in self.routes.targets

    async def choose(self, request: RoutingRequest) -> Sequence[str] | None:
        """The models chosen by the first router that returns any; None if the request goes to the model that it
        names."""
        for router in self.routers:
            names = await router.candidates(request)
            if names is not None:
                return names
        return None
