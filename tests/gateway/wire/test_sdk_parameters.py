"""Every parameter that OpenAI's SDK can send is decided here: honoured, refused, or reported as ignored. A new one fails a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from openai.types import completion_create_params, shared_params
from openai.types.chat import completion_create_params as chat_params
from openai.types.conversations import conversation_create_params, item_create_params
from openai.types.responses import (
    input_token_count_params,
    response_compact_params,
    response_create_params,
    response_input_item_param,
    tool_param,
)
from typing_extensions import is_typeddict

from gateway.wire.chat import ChatRequest
from gateway.wire.common import encode
from gateway.wire.completions import CompletionRequest
from gateway.wire.items import ITEMS
from gateway.wire.request import ConversationRequest, ResponseRequest, decode_response_request
from gateway.wire.tools import TOOLS

CREATE = response_create_params.ResponseCreateParamsBase
PAGE = (Path(__file__).parents[3] / "docs" / "parameters.md").read_text()
OPEN: dict[str, set[str]] = {
    "access_programs": {"cyber"},
    "image": {"context_compression"},
    "moderation": {"model", "policy"},
}
"""Objects that are not read further: reported as ignored, or refused, whatever is in them. With the members that they are known to
have."""
ELSEWHERE = {
    "function_call": "the older form of tool_choice in Chat Completions",
    "functions": "the older form of tools",
    "personality": "of /v1/responses/input_tokens: reported as ignored",
    "prompt": "of Completions",
}
"""Parameters that are no fields of the requests."""


def members(structs: Iterator[type[msgspec.Struct]]) -> set[str]:
    names: set[str] = set()
    for struct in structs:
        names |= {field.encode_name for field in msgspec.structs.fields(struct)}
        names |= {struct.__struct_config__.tag_field or "type"}
    return names


def structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for argument in get_args(kind):
        yield from structs(argument)


def typed_dicts(kind: Any) -> Iterator[Any]:
    if is_typeddict(kind):
        yield kind
    for argument in get_args(kind):
        yield from typed_dicts(argument)


@pytest.mark.parametrize(
    ("params", "request_type"),
    [
        (CREATE, ResponseRequest),
        (response_compact_params.ResponseCompactParams, ResponseRequest),
        (input_token_count_params.InputTokenCountParams, ResponseRequest),
        (conversation_create_params.ConversationCreateParams, ConversationRequest),
        (chat_params.CompletionCreateParamsBase, ChatRequest),
        (completion_create_params.CompletionCreateParamsBase, CompletionRequest),
    ],
)
def test_parameters_are_known_and_documented(params: Any, request_type: Any) -> None:
    known = members(iter([request_type])) | ELSEWHERE.keys()
    for name in get_type_hints(params):
        assert name in known, f"{params.__name__}.{name} is new"
        if request_type is not ConversationRequest and name not in ELSEWHERE:
            assert f"| `{name}` |" in PAGE, f"{name} has no row in docs/parameters.md"
    assert get_type_hints(item_create_params.ItemCreateParams).keys() <= {"items", "include"}


def test_members_of_options_are_known() -> None:
    own = get_type_hints(ResponseRequest)
    for name, kind in get_type_hints(CREATE).items():
        if name in {"input", "tools", "tool_choice"}:  # see test_wire_conformity.py
            continue
        known = OPEN.get(name) or members(structs(own[name]))
        for option in typed_dicts(kind):
            assert get_type_hints(option).keys() <= known, f"{name}: {option.__name__}"
    reasoning = get_type_hints(shared_params.Reasoning).keys()
    assert reasoning <= members(structs(own["reasoning"]))


@pytest.mark.parametrize(
    ("union", "known"),
    [
        (tool_param.ToolParam, TOOLS),
        (response_input_item_param.ResponseInputItemParam, ITEMS),
    ],
)
def test_members_of_tools_and_items_are_known(union: Any, known: Any) -> None:
    seen = 0
    for option in typed_dicts(union):
        hints = get_type_hints(option)
        for kind in get_args(hints.get("type")):
            for tag in get_args(kind) or (kind,):
                if isinstance(tag, str):
                    seen += 1
                    assert hints.keys() <= members(iter([known[tag]])) | {"role"}, tag
    assert seen >= 15


@pytest.mark.parametrize(
    ("sent", "reported"),
    [
        ({"prompt_cache_options": {"comparison_response_id": "resp_1"}}, ["prompt_cache_options.comparison_response_id"]),
        ({"prompt_cache_options": {"prewarm": True}}, ["prompt_cache_options.prewarm"]),
        ({"prompt_cache_options": {"prewarm": False, "mode": "explicit", "ttl": "30m"}}, []),
        ({"tools": [{"type": "function", "name": "f", "parameters": {}, "async": True}]}, ["tools.async"]),
        ({"tools": [{"type": "custom", "name": "f", "async": False}]}, []),
        ({"background_options": {"completion_window": "2h"}}, ["background_options"]),
        ({"access_programs": {"cyber": "standard"}}, ["access_programs"]),
        ({"personality": "friendly"}, ["personality"]),
        ({"input_transformations": [], "prompt_cache_diagnostics": True}, ["input_transformations", "prompt_cache_diagnostics"]),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_reported(sent: dict[str, Any], reported: list[str]) -> None:
    request = decode_response_request(encode({"model": "m", "input": "x", **sent}))
    assert request.unknown == reported
