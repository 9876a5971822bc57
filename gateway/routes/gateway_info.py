"""/v1/gateway: what the gateway consists of, for administrators."""

from __future__ import annotations

from litestar import get
from litestar.types import ASGIApp

from gateway.routes.answers import json_answer
from gateway.routes.state import HttpRequest, services_of
from gateway.tools.available import AvailableTools
from gateway.wire.inventory import GatewayInfo, ListedTools


@get("/v1/gateway")
async def describe_gateway(request: HttpRequest) -> ASGIApp:
    """What is installed and which tools there are, for administrators. Without secrets: names and versions only."""
    services = services_of(request)
    services.authenticator.require_admin(request.scope["headers"])
    tools = [_listed(name, table) for name, table in services.tool_tables.items()]
    return json_answer(
        GatewayInfo(started=services.started, plugins=list(services.plugins), tools=tools)
    )


def _listed(name: str, table: AvailableTools) -> ListedTools:
    return ListedTools(
        name=name,
        types=sorted({*table.by_type, *table.choices}),
        offered=[entry.tool.definition.name for entry in table.always],
    )
