"""/v1/gateway/tools: the tool servers, whether they can be reached, and their tools, for administrators."""

from __future__ import annotations

from litestar import get, post
from litestar.types import ASGIApp

from gateway.routes.answers import json_answer
from gateway.routes.state import HttpRequest, services_for_admin


@get("/v1/gateway/tools")
async def list_tool_servers(request: HttpRequest) -> ASGIApp:
    """The tool servers of the configuration, with what the last probe of each found, for administrators. Asks none of them."""
    services = services_for_admin(request)
    return json_answer(services.tool_probes.listed(services.tool_tables))


@post("/v1/gateway/tools/probe", status_code=200)
async def probe_tool_servers(request: HttpRequest) -> ASGIApp:
    """Ask each tool server whether it is there and which tools it has, for administrators. The answer is that of `GET /v1/gateway/tools`.

    Takes ten seconds for a server that does not answer, and at most half a minute for all.
    """
    services = services_for_admin(request)
    return json_answer(await services.tool_probes.probe(services.tool_tables, services.config))
