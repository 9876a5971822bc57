"""Compaction: a conversation is replaced by its user messages and an encrypted summary of the rest, written by the
model."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from gateway.access.sealing import is_summary
from gateway.answers.responses.context_management import SUMMARY_REQUEST, without_trigger
from gateway.answers.responses.plan import Plan, make_plan
from gateway.base.errors import EngineError, Unsupported
from gateway.services import Services
from gateway.wire.field_errors import missing
from gateway.wire.ids import new_id
from gateway.wire.items import AgentMessage, Compaction, Item, Message
from gateway.wire.request import ResponseRequest
from gateway.wire.response import CompactedResponse, Response
from gateway.wire.text import TextConfig


async def plan_compaction(
    request: ResponseRequest, services: Services, *, size: int, owner: str | None
) -> Plan:
    """Return the plan of the response that writes the summary. It is not stored. Raises a `GatewayError` for an invalid
    request.

    If the conversation exceeds the model's context, its oldest turns are left out of the summary.
    """
    if request.prompt is not None:
        raise Unsupported(
            "A compaction takes no stored prompt. Send it with the next response.", param="prompt"
        )
    if not request.input and request.previous_response_id is None:
        raise missing("input", "Send the items to be compacted, or previous_response_id.")
    asked = msgspec.structs.replace(
        request,
        input=[*without_trigger(request.input or ()), SUMMARY_REQUEST],
        context_management=None,
        tools=None,
        tool_choice=None,
        text=TextConfig(),
        structured_outputs=None,
        guided_json=None,
        guided_regex=None,
        guided_choice=None,
        guided_grammar=None,
        allowed_token_ids=None,
        continue_final_message=None,
        include=None,
        top_logprobs=None,
        store=False,
        stream=None,
        background=None,
        truncation="auto",
    )
    return await make_plan(asked, services, size=size, owner=owner)


def compacted(plan: Plan, services: Services) -> Callable[[Response], CompactedResponse]:
    """Return a function that builds the answer from the response that wrote the summary. It raises `EngineError` if the
    summary is missing or incomplete."""

    def compacted_response(response: Response) -> CompactedResponse:
        said = [item for item in response.output if isinstance(item, Message)]
        summary = "".join(item.text for item in said)
        if response.status != "completed" or not summary or response.usage is None:
            raise EngineError("The model did not produce a summary of the conversation. Try again.")
        agents = {
            item.id: item for item in (*plan.history, *plan.input) if isinstance(item, AgentMessage)
        }
        output: list[Item] = [
            agents.get(item.id, item)
            for item in plan.turn.items[:-1]
            if isinstance(item, Message) and item.role == "user" and not is_summary(item)
        ]
        sealed = services.sealer.seal(summary, plan.owner, model=plan.model.name)
        output.append(Compaction(id=new_id("cmp_"), encrypted_content=sealed))
        return CompactedResponse(
            id=response.id, created_at=int(time.time()), output=output, usage=response.usage
        )

    return compacted_response
