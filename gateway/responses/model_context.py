"""A conversation as the model reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gateway.protocols import CallRecord
from gateway.runtime.sealing import open_encrypted
from gateway.runtime.served_model import ServedModel
from gateway.runtime.services import Services
from gateway.wire import item_lists, items
from gateway.wire.content import ReasoningText

_RESULT_APART = (
    items.WebSearchCall, items.CodeInterpreterCall, items.FileSearchCall, items.McpCall,
)  # fmt: skip
"""Calls whose items do not show what the model read, or the images that it saw."""


def with_readable_reasoning(context: Sequence[items.Item]) -> list[items.Item]:
    """`context`, in which reasoning without its text is represented by its summary."""
    if not item_lists.has_any(context, (items.Reasoning,)):
        return list(context)
    return [
        msgspec.structs.replace(item, content=[ReasoningText(text=summary)])
        if isinstance(item, items.Reasoning)
        and not item.content
        and (summary := "\n\n".join(part.text for part in item.summary if part.text))
        else item
        for item in context
    ]


async def kept_results(
    context: Sequence[items.Item], services: Services, model: ServedModel, owner: str | None
) -> Mapping[str, CallRecord]:
    """The results that the model read in calls of `context` whose items do not show them, and the reasoning that
    `model`'s engine encrypted."""
    encrypts = "encrypted_reasoning" in model.engine.capabilities
    apart = (*_RESULT_APART, items.Reasoning) if encrypts else _RESULT_APART
    if not item_lists.has_any(context, apart):
        return {}
    wanted = {item.id for item in context if isinstance(item, apart)}
    found: Mapping[str, CallRecord] = {}
    if services.store is not None:
        found = await services.store.find_results(wanted, owner=owner)
    if not encrypts:
        return found
    carried = open_encrypted(context, services.sealer, owner, model=model.name)
    return {**found, **{name: CallRecord.of_reasoning(each) for name, each in carried.items()}}
