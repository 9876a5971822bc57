"""Responses whose models are chosen by routes and routers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gateway.loop.attempts import Attempts, Hold
from gateway.protocols import StoredResponse
from gateway.responses.plan import Plan, make_plan
from gateway.responses.run import ResponseRun
from gateway.runtime.services import Services
from gateway.wire.items import Item
from gateway.wire.request import ResponseRequest


async def prepare_run(
    request: ResponseRequest,
    services: Services,
    *,
    size: int,
    owner: str | None = None,
    trace_headers: Mapping[str, str] | None = None,
    unstored: Mapping[str, Sequence[Item]] | None = None,
    quiet: bool = False,
    stored: StoredResponse | None = None,
    prepare: Callable[[ResponseRun], None] | None = None,
    hold_first: Hold | None = None,
) -> ResponseRun:
    """A prepared run of the response, planned for the first model that may answer. See `make_plan` and `ResponseRun`.

    `stored` is the response if it is run again. `prepare` is called before the run is prepared. `hold_first`: see
    `Attempts`.
    """

    async def plan(name: str | None) -> Plan:
        planned = await make_plan(
            request,
            services,
            size=size,
            owner=owner,
            trace_headers=trace_headers,
            unstored=unstored,
            model_name=name,
        )
        if stored is not None:
            planned.response.id = stored.id
            planned.response.created_at = stored.response.created_at
            planned.input, planned.body = stored.input, stored.request
        return planned

    names = await services.lookup.candidates(
        request.model, api="responses", use="generates", owner=owner, size=size
    )
    attempts = Attempts(
        names,
        plan,
        services.metrics,
        services.limiter,
        hold=services.lookup.loaded,
        hold_first=hold_first,
    )
    async with attempts:
        run = ResponseRun(await attempts.begin(), services, quiet=quiet, attempts=attempts)
        if prepare is not None:
            prepare(run)
        await run.prepare()
    return run
