"""Compaction: a conversation becomes its user's messages and a summary of the rest, which the model writes and we seal."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from gateway.errors import EngineError
from gateway.responses.context_management import SUMMARY_REQUEST, without_trigger
from gateway.responses.plan import Plan, make_plan
from gateway.responses.sealing import is_summary
from gateway.serving.served import Services
from gateway.wire.decoding import missing
from gateway.wire.ids import new_id
from gateway.wire.items import Compaction, Item, Message
from gateway.wire.request import ResponseRequest
from gateway.wire.response import CompactedResponse, Response
from gateway.wire.text import TextConfig


async def plan_compaction(
    request: ResponseRequest, services: Services, *, size: int, owner: str | None
) -> Plan:
    """The run that writes the summary; it is not stored. Raises what the client must be told.

    Where even the conversation is too long for the model, its oldest turns are left out of what is summarized.
    """
    if not request.input and request.previous_response_id is None:
        raise missing("input", "Send the items to be compacted, or previous_response_id.")
    asked = msgspec.structs.replace(
        request,
        input=[*without_trigger(request.input or ()), SUMMARY_REQUEST],
        context_management=None,
        tools=None,
        tool_choice=None,
        text=TextConfig(),
        include=None,
        top_logprobs=None,
        store=False,
        stream=None,
        background=None,
        truncation="auto",
    )
    return await make_plan(asked, services, size=size, owner=owner)


def compacted(plan: Plan, services: Services) -> Callable[[Response], CompactedResponse]:
    """What makes the answer of the summary's response. It raises where there is no whole summary."""

    def shown(response: Response) -> CompactedResponse:
        said = [item for item in response.output if isinstance(item, Message)]
        summary = "".join(item.text for item in said)
        if response.status != "completed" or not summary or response.usage is None:
            raise EngineError("The model came to no summary of the conversation. Try again.")
        output: list[Item] = [
            item
            for item in plan.turn.items[:-1]
            if isinstance(item, Message) and item.role == "user" and not is_summary(item)
        ]
        sealed = services.sealer.seal(summary, plan.owner)
        output.append(Compaction(id=new_id("cmp_"), encrypted_content=sealed))
        return CompactedResponse(
            id=response.id, created_at=int(time.time()), output=output, usage=response.usage
        )

    return shown
