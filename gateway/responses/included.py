"""What a request that lists or retrieves wants to see of items: `include`, with the values that creating has.

Items are stored as their response has told them. What that left out stands in the record of the call, and is shown where it is
asked for now; lists leave out what they are not asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from gateway.protocols import CallRecord, ResponseStore, ToolResult
from gateway.responses.sealing import Sealer
from gateway.wire import content, items

SOURCES = "web_search_call.action.sources"
RESULTS = "file_search_call.results"
OUTPUTS = "code_interpreter_call.outputs"
INPUT_IMAGES = "message.input_image.image_url"
SCREENSHOTS = "computer_call_output.output.image_url"
LOGPROBS = "message.output_text.logprobs"
SEALED = "reasoning.encrypted_content"


def hidden_parts(item: items.Item, result: ToolResult) -> dict[str, Any]:
    """What `result` lets a call's item show, and it does not, as plain JSON: `sources`, `results` or `outputs`."""
    details = result.details
    match item:
        case items.WebSearchCall(action=items.SearchAction(sources=msgspec.UNSET)):
            hidden = {"sources": (details.get("action") or {}).get("sources")}
        case items.FileSearchCall(results=None):
            hidden = {"results": details.get("results")}
        case items.CodeInterpreterCall(outputs=None):
            hidden = {"outputs": details.get("outputs")}
        case _:
            return {}
    return {name: msgspec.to_builtins(value) for name, value in hidden.items() if value is not None}


def with_included(
    shown: Sequence[items.Item],
    include: Collection[str],
    records: Mapping[str, CallRecord],
    seal: Callable[[str], str],
) -> list[items.Item]:
    """`shown` with what `include` asks for besides, as far as it is known. `records` are of the calls, by item id."""
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
    """The items of a list: with what `include` asks for, and without what it could and does not."""
    calls = {item.id for item in listed if _hides(item, include)}
    records = await store.find_results(calls, owner=owner) if calls else {}

    def seal(text: str) -> str:
        return sealer.seal(text, owner)

    return [_without_rest(item, include) for item in with_included(listed, include, records, seal)]


def _hides(item: items.Item, include: Collection[str]) -> bool:
    """Whether the record of this call may have what is asked for."""
    match item:
        case items.WebSearchCall(action=items.SearchAction(sources=msgspec.UNSET)):
            return SOURCES in include
        case items.FileSearchCall(results=None):
            return RESULTS in include
        case items.CodeInterpreterCall(outputs=None):
            return OUTPUTS in include
        case _:
            return False


def _with_included(
    item: items.Item,
    include: Collection[str],
    records: Mapping[str, CallRecord],
    seal: Callable[[str], str],
) -> items.Item:
    if isinstance(item, items.Reasoning):
        if SEALED not in include or item.encrypted_content or not item.content:
            return item
        text = "".join(part.text for part in item.content)
        return msgspec.structs.replace(item, encrypted_content=seal(text))
    record = records.get(item.id)
    if record is None or not record.hidden or not _hides(item, include):
        return item
    match item:
        case items.WebSearchCall():
            sources = msgspec.convert(record.hidden["sources"], list[items.UrlSource])
            action = msgspec.structs.replace(item.action, sources=sources)
            return msgspec.structs.replace(item, action=action)
        case items.FileSearchCall():
            return items.file_search_call(
                item.id, item.status, item.queries, record.hidden["results"]
            )
        case items.CodeInterpreterCall():
            return items.code_interpreter_call(
                item.id, item.status, item.code, item.container_id, record.hidden["outputs"]
            )
        case _:
            return item


def _without_rest(item: items.Item, include: Collection[str]) -> items.Item:
    """`item` without what `include` could ask for and does not."""
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
