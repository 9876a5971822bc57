"""/v1/gateway: what the gateway consists of and what it does, for administrators."""

from __future__ import annotations

import os
from typing import Final

from litestar import get
from litestar.types import ASGIApp

from gateway.routes.answers import json_answer
from gateway.routes.state import HttpRequest, services_of
from gateway.runtime.run_history import listed_run
from gateway.tools.available import AvailableTools
from gateway.wire.inventory import GatewayInfo, ListedTools, RunList

_MOST_RUNNING: Final = 500
"""Runs in progress in one answer."""


@get("/v1/gateway")
async def describe_gateway(request: HttpRequest) -> ASGIApp:
    """What is installed and which tools there are, for administrators. Without secrets: names and versions only."""
    services = services_of(request)
    services.authenticator.require_admin(request.scope["headers"])
    tools = [_listed(name, table) for name, table in services.tool_tables.items()]
    return json_answer(
        GatewayInfo(started=services.started, plugins=list(services.plugins), tools=tools)
    )


@get("/v1/gateway/runs")
async def list_runs(request: HttpRequest) -> ASGIApp:
    """What runs now in the process that answers, oldest first, and what has ended last there, for administrators."""
    services = services_of(request)
    services.authenticator.require_admin(request.scope["headers"])
    oldest = sorted(services.runs, key=lambda each: each.stats.started)[:_MOST_RUNNING]
    history = services.run_history
    return json_answer(
        RunList(
            process=os.getpid(),
            workers=services.config.server.workers,
            total=len(services.runs),
            running=[listed_run(each.stats, each.principal) for each in oldest],
            ended=[] if history is None else list(history.newest_first()),
        )
    )


def _listed(name: str, table: AvailableTools) -> ListedTools:
    return ListedTools(
        name=name,
        types=sorted({*table.by_type, *table.choices}),
        offered=[entry.tool.definition.name for entry in table.always],
    )
