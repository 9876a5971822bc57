"""/v1/gateway/tools: the tool servers, whether they can be reached, and their tools. For administrators."""

from __future__ import annotations

from litestar import get, post
from litestar.types import ASGIApp

from gateway.http.answers import json_answer
from gateway.http.state import HttpRequest, services_for_admin


@get("/v1/gateway/tools")
async def list_tool_servers(request: HttpRequest) -> ASGIApp:
    """List the configured tool servers with the results of their last probes, for administrators. Sends no requests to
    them."""
    services = services_for_admin(request)
    return json_answer(services.tool_probes.listed(services.tool_tables))


@post("/v1/gateway/tools/probe", status_code=200)
async def probe_tool_servers(request: HttpRequest) -> ASGIApp:
    """Probe each tool server for availability and tools, for administrators. The answer is as for `GET
    /v1/gateway/tools`.

    A server that does not answer takes ten seconds. All together take at most half a minute.
    """
    services = services_for_admin(request)
    return json_answer(await services.tool_probes.probe(services.tool_tables, services.config))
