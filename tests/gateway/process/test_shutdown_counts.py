"""What a worker that ends has counted is shown by the others."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from gateway.config import Config, ModelConfig, ServerConfig
from gateway.http.app import app_of
from gateway.plugins.loading import load_plugins
from gateway.process.listening import bind
from gateway.process.server import GatewayServer, uvicorn_config
from gateway.startup.service_opening import open_services

pytestmark = pytest.mark.anyio


async def test_what_was_counted_until_connections_are_closed_is_not_lost_if_closing_services_hangs() -> (
    None
):
    config = Config(server=ServerConfig(port=0), models={"m": ModelConfig(engine="scripted")})
    async with AsyncExitStack() as stack:
        services = await open_services(config, load_plugins(), stack)
        settings = uvicorn_config(config, app_of(services))
        if not settings.loaded:
            settings.load()
        server = GatewayServer(settings, services, announce=False)
        server.lifespan = settings.lifespan_class(settings)
        listening = bind(config)
        await server.startup([listening])
        services.metrics.request_answered("/v1/responses", 200)
        await server.shutdown([listening])
        # The services are open still: a worker that is killed now closes none of them.
        counted = services.metrics.registry.get_sample_value(
            "gateway_requests_total", {"route": "/v1/responses", "status": "200"}
        )
        assert counted == 1
