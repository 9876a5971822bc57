"""Errors name places in the request that the client sent, in the words of its API."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.base.errors import ParamPath, param_text
from gateway.generation.error_params import (
    ChatParams,
    CompletionParams,
    EmbeddingParams,
    ResponseParams,
    ScoringParams,
)
from gateway.wire.chat import ChatRequest, convert_chat_request
from gateway.wire.completions import CompletionRequest

PARAMETERS = {"type": "object"}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}
CUSTOM = {"type": "custom", "custom": {"name": "c"}}


def request(**sent: Any) -> ChatRequest:
    message = {"role": "user", "content": "hi"}
    return convert_chat_request({"model": "m", "messages": [message], **sent})


ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "auto", "tools": [CUSTOM, FUNCTION]},
}
CASES: list[tuple[dict[str, Any], ParamPath, str]] = [
    ({}, ("input",), "messages"),
    ({}, ("input", 2, "content", 1, "type"), "messages[7].content[1].type"),
    ({}, ("input", 1, "output", 0, "type"), "messages[4].content[0].type"),
    ({}, ("input", 1, "call_id"), "messages[4].tool_call_id"),
    ({}, ("input", 3), ""),  # written since
    ({}, ("max_tokens",), "max_tokens"),
    ({"max_completion_tokens": 5}, ("max_tokens",), "max_completion_tokens"),
    ({}, ("reasoning", "effort"), "reasoning_effort"),
    ({"reasoning": {"effort": "low"}}, ("reasoning", "effort"), "reasoning.effort"),
    ({"thinking_token_budget": 5}, ("thinking_token_budget",), "thinking_token_budget"),
    ({"reasoning": {"max_tokens": 5}}, ("thinking_token_budget",), "reasoning.max_tokens"),
    ({}, ("temperature",), "temperature"),
    ({}, ("text", "format"), "response_format"),
    ({"guided_regex": "a"}, ("text", "format", "schema"), "guided_regex"),
    ({"structured_outputs": {"regex": "a"}}, ("text", "format"), "structured_outputs.regex"),
    ({"tools": [FUNCTION, CUSTOM]}, ("tools",), "tools"),
    ({"tools": [FUNCTION, CUSTOM]}, ("tools", 0, "parameters"), "tools[0].function.parameters"),
    ({"tools": [FUNCTION, CUSTOM]}, ("tools", 1, "type"), "tools[1].type"),
    ({"tools": [FUNCTION, CUSTOM]}, ("tools", 1, "name"), "tools[1].custom.name"),
    (
        {"tools": [FUNCTION, CUSTOM]},
        ("tools", 1, "format", "syntax"),
        "tools[1].custom.format.grammar.syntax",
    ),
    ({"tools": [FUNCTION]}, ("tools", 1, "user_location"), "web_search_options"),
    ({"functions": [FUNCTION["function"]]}, ("tools", 0, "parameters"), "functions[0].parameters"),
    (
        {"functions": [FUNCTION["function"]], "function_call": {"name": "f"}},
        ("tool_choice", "name"),
        "function_call.name",
    ),
    ({"tool_choice": "required"}, ("tool_choice",), "tool_choice"),
    ({"tool_choice": FUNCTION}, ("tool_choice", "name"), "tool_choice.function.name"),
    (
        {"tool_choice": ALLOWED},
        ("tool_choice", "tools", 0, "name"),
        "tool_choice.allowed_tools.tools[0].custom.name",
    ),
    ({"tool_choice": ALLOWED}, ("tool_choice", "tools", 1), "tool_choice.allowed_tools.tools[1]"),
]


@pytest.mark.parametrize(("sent", "place", "param"), CASES)
def test_a_place_is_told_in_the_words_of_chat(
    sent: dict[str, Any], place: ParamPath, param: str
) -> None:
    assert param_text(ChatParams(request(**sent), [0, 4, 7]).renamed(place)) == param


@pytest.mark.parametrize(
    ("place", "param"),
    [
        (("input", 0, "content", 1, "type"), "conversation"),
        (("input", 2, "content", 1, "type"), "conversation"),
        (("input", 3), "input[0]"),
        (("input", 4, "content", 1, "type"), "input[1].content[1].type"),
        (("input", 5), ""),  # written since
        (("input",), "input"),
        (("max_tokens",), "max_output_tokens"),
        (("logprobs",), "include"),
        (("text", "format", "schema"), "text.format.schema"),
        (("tools", 0, "tools", 1, "parameters"), "tools[0].tools[1].parameters"),
    ],
)
def test_an_item_is_named_by_where_the_client_sent_it(place: ParamPath, param: str) -> None:
    params = ResponseParams(3, 2, source="conversation", logprobs="include")
    assert param_text(params.renamed(place)) == param


@pytest.mark.parametrize(
    ("place", "param"),
    [
        (("input", 3, "content"), "prompt"),
        (("max_output_tokens",), "max_tokens"),
        (("text", "format", "schema"), "guided_regex"),
        (("temperature",), "temperature"),
    ],
)
def test_completions_have_prompts(place: ParamPath, param: str) -> None:
    params = CompletionParams(CompletionRequest(guided_regex="a"))
    assert param_text(params.renamed(place)) == param


def test_a_single_input_has_no_index() -> None:
    assert EmbeddingParams(several=True).renamed(("input", 3)) == ("input", 3)
    assert EmbeddingParams(several=False).renamed(("input", 0)) == ("input",)


@pytest.mark.parametrize(
    ("place", "param"),
    [
        (("pairs", 2, 0), "query"),
        (("pairs", 2, 1), "documents[2]"),
        (("input",), "documents"),
        (("max_tokens_per_document",), "max_tokens_per_doc"),
        (("truncate_to",), "truncate_prompt_tokens"),
    ],
)
def test_pairs_are_named_by_their_texts(place: ParamPath, param: str) -> None:
    params = ScoringParams(("query", "documents"), (False, True), one_query=True)
    assert param_text(params.renamed(place)) == param
