"""/v1/gateway: the gateway's parts, tools and runs, for administrators."""

from __future__ import annotations

from litestar import get, post
from litestar.params import FromPath
from litestar.types import ASGIApp

from gateway.base.errors import NotFound
from gateway.http.admin.all_workers import all_runs, cancel_run
from gateway.http.answers import json_answer
from gateway.http.state import HttpRequest, services_for_admin
from gateway.tools.available import AvailableTools
from gateway.wire.inventory import GatewayInfo, ListedTools


@get("/v1/gateway")
async def describe_gateway(request: HttpRequest) -> ASGIApp:
    """List the installed packages and the available tools, for administrators. Names and versions only, without
    secrets."""
    services = services_for_admin(request)
    tools = [_listed(name, table) for name, table in services.tool_tables.items()]
    return json_answer(
        GatewayInfo(started=services.started, plugins=list(services.plugins), tools=tools)
    )


@get("/v1/gateway/runs")
async def list_runs(request: HttpRequest) -> ASGIApp:
    """List current runs, oldest first, and recently ended runs of all worker processes of this server, for
    administrators."""
    services = services_for_admin(request)
    return json_answer(await all_runs(services))


@post("/v1/gateway/runs/{run_id:str}/cancel", status_code=200)
async def cancel_listed_run(request: HttpRequest, run_id: FromPath[str]) -> ASGIApp:
    """Cancel a run of any client, for administrators. Returns the run, which may take a moment to end.

    A response ends as cancelled. Other APIs answer, or end their streams, with the error `request_cancelled` (403).
    """
    services = services_for_admin(request)
    found = await cancel_run(services, run_id)
    if found is None:
        raise NotFound(
            "There is no such run in progress here. It may have ended: GET /v1/gateway/runs has those that run.",
            param="run_id",
            code="run_not_found",
        )
    return json_answer(found)


def _listed(name: str, table: AvailableTools) -> ListedTools:
    return ListedTools(
        name=name,
        types=sorted({*table.by_type, *table.choices}),
        offered=[entry.tool.definition.name for entry in table.always],
    )
