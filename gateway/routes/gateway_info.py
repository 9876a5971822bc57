"""/v1/gateway: what the gateway consists of and what it does, for administrators."""

from __future__ import annotations

from litestar import get, post
from litestar.params import FromPath
from litestar.types import ASGIApp

from gateway.errors import NotFound
from gateway.routes.answers import json_answer
from gateway.routes.state import HttpRequest, services_for_admin
from gateway.runtime.all_workers import all_runs, cancel_run
from gateway.tools.available import AvailableTools
from gateway.wire.inventory import GatewayInfo, ListedTools


@get("/v1/gateway")
async def describe_gateway(request: HttpRequest) -> ASGIApp:
    """What is installed and which tools there are, for administrators. Without secrets: names and versions only."""
    services = services_for_admin(request)
    tools = [_listed(name, table) for name, table in services.tool_tables.items()]
    return json_answer(
        GatewayInfo(started=services.started, plugins=list(services.plugins), tools=tools)
    )


@get("/v1/gateway/runs")
async def list_runs(request: HttpRequest) -> ASGIApp:
    """What runs now, oldest first, and what has ended last, in all worker processes of this server, for administrators."""
    services = services_for_admin(request)
    return json_answer(await all_runs(services))


@post("/v1/gateway/runs/{run_id:str}/cancel", status_code=200)
async def cancel_listed_run(request: HttpRequest, run_id: FromPath[str]) -> ASGIApp:
    """Cancel a run of any client, for administrators. The answer is the run as it was then: its end may take a moment.

    A response ends as cancelled. Other APIs answer, or end their streams, with the error `request_cancelled`, status 403.
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
