"""The `include` parameter of requests that list or retrieve items. It has the same values as in requests that create
responses.

Items are stored as their response returned them. Fields that the response left out are in the record of the call, and
are added if they are requested later. Lists omit fields that are not requested.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from gateway.access.sealing import Sealer, SealReasoning
from gateway.plugins.protocols import (
    CallRecord,
    CodeDetails,
    FileSearchDetails,
    ResponseStore,
    SearchDetails,
    ToolResult,
)
from gateway.wire import content, items

SOURCES = "web_search_call.action.sources"
RESULTS = "file_search_call.results"
OUTPUTS = "code_interpreter_call.outputs"
INPUT_IMAGES = "message.input_image.image_url"
SCREENSHOTS = "computer_call_output.output.image_url"
LOGPROBS = "message.output_text.logprobs"
SEALED = "reasoning.encrypted_content"


def hidden_parts(item: items.Item, result: ToolResult) -> dict[str, Any]:
    """Return the fields of `result` that the call's item does not show, as JSON values: `sources`, `results` or
    `outputs`."""
    hidden: dict[str, Any]
    match item, result.details:
        case (
            items.WebSearchCall(action=items.SearchAction(sources=msgspec.UNSET)),
            SearchDetails(action=items.SearchAction(sources=list(sources))),
        ):
            hidden = {"sources": sources}
        case items.FileSearchCall(results=None), FileSearchDetails(results=results) if (
            results is not None
        ):
            hidden = {"results": results}
        case items.CodeInterpreterCall(outputs=None), CodeDetails() as details:
            hidden = {"outputs": details.outputs(result.images)}
        case _:
            return {}
    return {name: msgspec.to_builtins(value) for name, value in hidden.items()}


def with_included(
    shown: Sequence[items.Item],
    include: Collection[str],
    records: Mapping[str, CallRecord],
    seal: SealReasoning,
) -> list[items.Item]:
    """Return the items `shown` with the fields that `include` requests, as far as they are known. `records` maps item
    ids to the records of calls."""
    if not include:
        return list(shown)
    return [_with_included(item, include, records, seal) for item in shown]


async def as_listed(
    listed: Sequence[items.Item],
    include: Collection[str],
    *,
    store: ResponseStore,
    sealer: Sealer,
    owner: str | None,
) -> list[items.Item]:
    """Return the items of a list with the fields that `include` requests, and without fields that it could request but
    does not."""
    calls = {item.id for item in listed if _hides(item, include)}
    records = await store.find_results(calls, owner=owner) if calls else {}

    def seal(text: str, *, encrypted: str | None) -> str:
        # A list's items may come from several models, and the model is not stored.
        return sealer.seal(text, owner, model=None, encrypted=encrypted)

    return [_without_rest(item, include) for item in with_included(listed, include, records, seal)]


def _hides(item: items.Item, include: Collection[str]) -> bool:
    """Whether the record of this item may contain requested fields that the item lacks."""
    match item:
        case items.WebSearchCall(action=items.SearchAction(sources=msgspec.UNSET)):
            return SOURCES in include
        case items.FileSearchCall(results=None):
            return RESULTS in include
        case items.CodeInterpreterCall(outputs=None):
            return OUTPUTS in include
        case items.Reasoning():
            return SEALED in include and not item.encrypted_content
        case _:
            return False


def _with_included(
    item: items.Item,
    include: Collection[str],
    records: Mapping[str, CallRecord],
    seal: SealReasoning,
) -> items.Item:
    record = records.get(item.id)
    if isinstance(item, items.Reasoning):
        if SEALED not in include or item.encrypted_content or not item.content:
            return item
        text = "".join(part.text for part in item.content)
        encrypted = None if record is None else record.encrypted_reasoning
        return msgspec.structs.replace(item, encrypted_content=seal(text, encrypted=encrypted))
    if record is None or not record.hidden or not _hides(item, include):
        return item
    match item:
        case items.WebSearchCall():
            sources = msgspec.convert(record.hidden["sources"], list[items.UrlSource])
            action = msgspec.structs.replace(item.action, sources=sources)
            return msgspec.structs.replace(item, action=action)
        case items.FileSearchCall():
            results = msgspec.convert(record.hidden["results"], list[items.FileSearchResult])
            return msgspec.structs.replace(item, results=results)
        case items.CodeInterpreterCall():
            outputs = msgspec.convert(record.hidden["outputs"], list[items.InterpreterOutput])
            return msgspec.structs.replace(item, outputs=outputs)
        case _:
            return item


def _without_rest(item: items.Item, include: Collection[str]) -> items.Item:
    """Return `item` without the fields that `include` could request but does not."""
    match item:
        case items.Message():
            parts = [_part_without_rest(part, include) for part in item.content]
            return msgspec.structs.replace(item, content=parts)
        case items.Reasoning() if SEALED not in include:
            return msgspec.structs.replace(item, encrypted_content=UNSET)
        case items.WebSearchCall(action=items.SearchAction() as action) if SOURCES not in include:
            return msgspec.structs.replace(
                item, action=msgspec.structs.replace(action, sources=UNSET)
            )
        case items.FileSearchCall() if RESULTS not in include:
            return msgspec.structs.replace(item, results=None)
        case items.CodeInterpreterCall() if OUTPUTS not in include:
            return msgspec.structs.replace(item, outputs=None)
        case items.ComputerCallOutput() if SCREENSHOTS not in include:
            screenshot = msgspec.structs.replace(item.output, image_url=UNSET)
            return msgspec.structs.replace(item, output=screenshot)
        case _:
            return item


def _part_without_rest(
    part: content.MessageContent, include: Collection[str]
) -> content.MessageContent:
    match part:
        case content.InputImage() if INPUT_IMAGES not in include:
            return msgspec.structs.replace(part, image_url=None)
        case content.OutputText() if LOGPROBS not in include:
            return msgspec.structs.replace(part, logprobs=[])
        case _:
            return part
