"""A conversation as the model reads it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import msgspec

from gateway.access.sealing import Sealer, open_compactions, open_encrypted
from gateway.answers.responses.readable_items import readable
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import CallRecord
from gateway.services import Services
from gateway.tools.call_history import IMAGE_GENERATION, IMAGE_MADE, json_text
from gateway.wire import items
from gateway.wire.content import InputImage, ReasoningText
from gateway.wire.large_bodies import threaded_if_large

_RESULT_APART = (
    items.WebSearchCall, items.CodeInterpreterCall, items.FileSearchCall, items.McpCall,
)  # fmt: skip
"""Calls whose items do not show the text or the images that the model received as their result."""


async def read_by_model(
    context: Sequence[items.Item],
    kinds: Collection[type[items.Item]],
    services: Services,
    model: ServedModel,
    owner: str | None,
    *,
    own: int,
    size: int,
) -> tuple[Sequence[items.Item], Mapping[str, CallRecord]]:
    """Return the items of `context` as `model` reads them, and records by item id.

    Compactions, and reasoning items without text, are replaced by their summaries. Types that renderers do not know are
    converted (`readable`). The records contain the results of calls whose items do not show them, and reasoning that
    the engine encrypted.

    `kinds` are the types of the items. `own` is the index of the request's first own item; see `open_compactions`.
    `size` is the approximate size of the request and its history in bytes. Raises `InvalidRequest` that names an item
    by its index in `context`.
    """
    read, wanted, carried = await threaded_if_large(
        size, partial(_read, context, kinds, services.sealer, model, owner, own=own)
    )
    if not wanted or services.store is None:
        found: Mapping[str, CallRecord] = {}
    else:
        found = await services.store.find_results(wanted, owner=owner)
    if items.ImageGenerationCall in kinds:
        found = {**_made_images(context), **found}
    return read, {**found, **{name: CallRecord.of_reasoning(each) for name, each in carried.items()}}  # fmt: skip


def _made_images(context: Sequence[items.Item]) -> Mapping[str, CallRecord]:
    """Return records of the images that calls on another server generated, for models that accept images."""
    return {
        item.id: CallRecord(
            name=IMAGE_GENERATION,
            arguments=json_text({"prompt": item.revised_prompt or ""}),
            result=IMAGE_MADE,
            images=[
                InputImage(
                    image_url=f"data:image/{item.output_format or 'png'};base64,{item.result}"
                )
            ],
        )
        for item in context
        if isinstance(item, items.ImageGenerationCall) and item.result
    }


def _read(
    context: Sequence[items.Item],
    kinds: Collection[type[items.Item]],
    sealer: Sealer,
    model: ServedModel,
    owner: str | None,
    *,
    own: int,
) -> tuple[Sequence[items.Item], Collection[str], Mapping[str, str]]:
    """Return the items as the model reads them, the ids of items whose records are needed, and encrypted reasoning by
    item id."""
    read: Sequence[items.Item] = context
    reasons, encrypts = (
        items.Reasoning in kinds,
        "encrypted_reasoning" in model.engine.capabilities,
    )
    if items.Compaction in kinds:
        read = open_compactions(read, sealer, owner, own=own)
    carried: Mapping[str, str] = {}
    if reasons and encrypts:
        carried = open_encrypted(context, sealer, owner, model=model.name)
    if reasons:
        read = [
            msgspec.structs.replace(item, content=[ReasoningText(text=summary)])
            if isinstance(item, items.Reasoning)
            and not item.content
            and (summary := "\n\n".join(part.text for part in item.summary if part.text))
            else item
            for item in read
        ]
    read = readable(read, kinds)
    apart = (*_RESULT_APART, items.Reasoning) if encrypts else _RESULT_APART
    wanted = {item.id for item in context if isinstance(item, apart)}
    return read, wanted, carried
