"""Making the answer to a Responses request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from gateway.answers.answer import Answer
from gateway.answers.attempts import Attempts
from gateway.answers.responses.output import ResponseOutput
from gateway.answers.responses.plan import Plan, make_plan
from gateway.answers.responses.storage import ResponseStorage
from gateway.answers.run_scope import RunScope
from gateway.items.builders import EventList
from gateway.models.model_lookup import WaitFor
from gateway.plugins.protocols import StoredResponse
from gateway.services import Services
from gateway.wire.items import Item
from gateway.wire.request import ResponseRequest

ResponseAnswer: TypeAlias = Answer[Plan, EventList, ResponseOutput]


def response_answer(
    plan: Plan,
    services: Services,
    *,
    quiet: bool = False,
    holds: bool = True,
    attempts: Attempts[Plan] | None = None,
) -> ResponseAnswer:
    """Return the answer for `plan`, not prepared yet.

    `quiet`: whether items are built without events, because no events are sent. `holds`: whether events are held back
    until the engine's first output, if the engine may still refuse the request. `attempts` provides the plans of the
    remaining models.
    """
    scope = RunScope(
        services, name=f"response {plan.response.id}", api="responses", shows_cancelled=True
    )
    scope.stats.response_id = plan.response.id
    storage = ResponseStorage(services, scope)

    def output_of(plan: Plan, before: ResponseOutput | None) -> ResponseOutput:
        if before is not None:  # the response is the same
            plan.response.id = before.plan.response.id
            plan.response.created_at = before.plan.response.created_at
            plan.input, plan.body = before.plan.input, before.plan.body
            plan.kept_body = before.plan.kept_body
        return ResponseOutput(plan, services, scope, storage, quiet=quiet, holds=holds)

    return Answer(plan, services, scope, output_of, attempts)


async def prepare_response(
    request: ResponseRequest,
    services: Services,
    *,
    size: int,
    owner: str | None = None,
    trace_headers: Mapping[str, str] | None = None,
    unstored: Mapping[str, Sequence[Item]] | None = None,
    quiet: bool = False,
    holds: bool = True,
    stored: StoredResponse | None = None,
    keep: Callable[[Plan], None] | None = None,
    wait: WaitFor | None = None,
) -> ResponseAnswer:
    """Plan and prepare an answer, with the first model that accepts the request. Raises `GatewayError`. For the
    arguments see `make_plan` and `response_answer`.

    `stored` is the stored response, if it is run again. `keep` is called with the first plan, before the answer is
    prepared. `wait`: see `Attempts`.
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
        services.lookup,
        services.metrics,
        services.limiter,
        wait=wait,
    )
    with attempts:
        answer = response_answer(
            await attempts.begin(), services, quiet=quiet, holds=holds, attempts=attempts
        )
        if keep is not None:
            keep(answer.output.plan)
        await answer.prepare()
    return answer
