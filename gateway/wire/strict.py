"""The checks of `compatibility = "strict"`: they reject what OpenAI's server rejects and this gateway accepts by
default.

They read plain JSON before it is converted. Values of the wrong type are left to the conversion. Status, type, `param`,
`code` and wording are those of OpenAI's answers as reported by clients.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Set
from itertools import islice
from typing import Any

from gateway.base.errors import InvalidRequest, ParamPath, param_text
from gateway.base.json_schema import strict_problem
from gateway.wire.chat_messages import unknown_message_member
from gateway.wire.field_errors import missing, not_among, shortened
from gateway.wire.parameter_table import CHAT, COMPLETIONS, RESPONSES

INPUT_TOKENS = RESPONSES.openai | {"personality"}
"""Parameters of `/v1/responses/input_tokens`."""
_MOVED = {
    "function_call": "tool_choice",
    "functions": "tools",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
}
"""Parameters of Chat Completions, with their names in the Responses API."""
_PARTS = ["input_text", "input_image", "output_text", "refusal", "input_file", "input_audio", "computer_screenshot",
          "summary_text"]  # fmt: skip
_SAID = ["output_text", "refusal"]
_RESPONSE_FORMATS = ["json_object", "json_schema", "text"]
MAX_STOPS = 4
MAX_LOGPROBS = 5
"""Maximum of `logprobs` in Completions."""
MIN_OUTPUT_TOKENS = 16
"""Minimum of `max_output_tokens` in the Responses API."""


def check_response(
    raw: dict[str, Any], *, requires_input: bool = True, known: Set[str] = RESPONSES.openai
) -> None:
    """Raise `InvalidRequest` for a request to the Responses API that OpenAI rejects. `known` are the endpoint's parameters."""
    for name in sorted(raw.keys() - known):
        if (moved := _MOVED.get(name)) is not None:
            raise InvalidRequest(
                f"Unsupported parameter: '{name}'. In the Responses API, this parameter has moved to '{moved}'. "
                "Try again with the new parameter.",
                param=name,
                code="unsupported_parameter",
            )
        raise unknown_parameter((name,))
    if raw.get("model") is None and raw.get("prompt") is None:
        raise missing("model")
    if requires_input and raw.get("input") == [] and not _continues(raw):
        raise InvalidRequest(
            "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided.",
            param="input",
            code="missing_required_parameter",
        )
    limit = raw.get("max_output_tokens")
    if type(limit) is int and limit < MIN_OUTPUT_TOKENS:
        raise InvalidRequest(
            f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {MIN_OUTPUT_TOKENS}, but got "
            f"{limit} instead.",
            param="max_output_tokens",
            code="integer_below_min_value",
        )
    _check_stream_options(raw)
    _check_parts(raw.get("input"))
    text = raw.get("text")
    wanted = text.get("format") if isinstance(text, dict) else None
    if _is_json_object(wanted) and not _continues(raw) and not _mentions_json(raw.get("input")):
        raise InvalidRequest(
            "Response input messages must contain the word 'json' in some form to use 'text.format' of type "
            "'json_object'.",
            param="input",
        )
    if isinstance(wanted, dict) and wanted.get("strict") is True:
        _check_format(wanted, ("text", "format", "schema"), "invalid_json_schema")
    for param, tool in _tools(raw.get("tools"), ("tools",)):
        if tool.get("type") == "function" and tool.get("strict") is True:
            _check_function(tool, (*param, "parameters"))


def unknown_parameter(place: ParamPath) -> InvalidRequest:
    """The error for a parameter that the API does not have, at any depth."""
    named = tuple(step if isinstance(step, int) else shortened(step) for step in place)
    return InvalidRequest(
        f"Unknown parameter: '{param_text(named)}'.", param=named, code="unknown_parameter"
    )


def check_chat(raw: dict[str, Any]) -> None:
    """Raise `InvalidRequest` for a request to Chat Completions that OpenAI rejects."""
    _check_arguments(raw, CHAT.openai)
    _check_stops(raw)
    _check_stream_options(raw)
    _check_tool_options(raw)
    if (place := unknown_message_member(raw.get("messages"))) is not None:
        raise unknown_parameter(place)
    _check_calls(raw.get("messages"))
    if raw.get("max_tokens") is not None and raw.get("max_completion_tokens") is not None:
        raise InvalidRequest(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            param="max_tokens",
            code="invalid_parameter_combination",
        )
    wanted = raw.get("response_format")
    if _is_json_object(wanted) and not _mentions_json(raw.get("messages")):
        raise InvalidRequest(
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
            param="messages",
        )
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "structural_tag":
        raise not_among(("response_format", "type"), kind, _RESPONSE_FORMATS)
    described = wanted.get("json_schema") if isinstance(wanted, dict) else None
    if isinstance(described, dict) and described.get("strict") is True:
        _check_format(described, ("response_format",), None)
    for param, tool in _tools(raw.get("tools"), ("tools",)):
        function = tool.get("function")
        if isinstance(function, dict) and function.get("strict") is True:
            _check_function(function, (*param, "function", "parameters"))


def check_completion(raw: dict[str, Any]) -> None:
    """Raise `InvalidRequest` for a request to Completions that OpenAI rejects."""
    _check_arguments(raw, COMPLETIONS.openai)
    _check_stops(raw)
    _check_stream_options(raw)
    logprobs = raw.get("logprobs")
    if type(logprobs) is int and logprobs > MAX_LOGPROBS:
        raise InvalidRequest(
            f"Invalid 'logprobs': integer above maximum value. Expected a value <= {MAX_LOGPROBS}, but got {logprobs} instead.",
            param="logprobs",
            code="integer_above_max_value",
        )
    n, best_of = raw.get("n") or 1, raw.get("best_of")
    if type(n) is int and type(best_of) is int and best_of < n:
        raise InvalidRequest(
            "You requested that the server return more choices than it will generate (HINT: you must set 'n' (currently "
            f"{n}) to be at most 'best_of' (currently {best_of}), or omit either parameter if you don't specifically "
            "want to use them.)",
            param="best_of",
        )


def _continues(raw: dict[str, Any]) -> bool:
    return any(raw.get(name) is not None for name in ("previous_response_id", "conversation", "prompt"))  # fmt: skip


def _check_arguments(raw: dict[str, Any], known: Collection[str]) -> None:
    unknown = sorted(name for name in raw if name not in known)
    if unknown:
        names = ", ".join(shortened(name) for name in unknown[:16])
        raise InvalidRequest(
            f"Unrecognized request argument{'s' if len(unknown) > 1 else ''} supplied: {names}"
        )
    if raw.get("model") is None:
        raise InvalidRequest("you must provide a model parameter")


def _check_stops(raw: dict[str, Any]) -> None:
    stop = raw.get("stop")
    if isinstance(stop, list) and len(stop) > MAX_STOPS:
        raise InvalidRequest(
            f"Invalid 'stop': array too long. Expected an array with maximum length {MAX_STOPS}, but got an array with "
            f"length {len(stop)} instead.",
            param="stop",
            code="array_above_max_length",
        )


def _check_stream_options(raw: dict[str, Any]) -> None:
    if raw.get("stream_options") is not None and raw.get("stream") is not True:
        raise InvalidRequest(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            param="stream_options",
        )


def _check_tool_options(raw: dict[str, Any]) -> None:
    if raw.get("tools") == []:
        raise InvalidRequest(
            "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param="tools",
            code="empty_array",
        )
    for name in ("tool_choice", "parallel_tool_calls"):
        if raw.get(name) is not None and raw.get("tools") is None:
            raise InvalidRequest(
                f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.",
                param=name,
            )


def _check_calls(messages: Any) -> None:
    """Check that the calls of each message are answered by the messages that follow it, and that these answer no other
    calls."""
    called: frozenset[str] = frozenset()
    open_calls: dict[str, None] = {}
    """Calls without an answer, in their order."""
    sent = messages if isinstance(messages, list) else []
    for index, message in enumerate(sent):
        if not isinstance(message, dict):
            return
        if message.get("role") == "tool":
            _check_answer(message, index, called)
            if isinstance(answered := message.get("tool_call_id"), str):
                open_calls.pop(answered, None)
            continue
        if open_calls:
            raise _unanswered(open_calls, f"messages.[{index}].role")
        calls = message.get("tool_calls")
        found = [call.get("id") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []  # fmt: skip
        # Ids that are not strings are refused where the message is decoded.
        open_calls = dict.fromkeys(each for each in found if isinstance(each, str))
        called = frozenset(open_calls)
    if open_calls:
        raise _unanswered(open_calls, "messages")


def _check_answer(message: dict[str, Any], index: int, called: Collection[Any]) -> None:
    call_id = message.get("tool_call_id")
    if not called:
        raise InvalidRequest(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
            param=f"messages.[{index}].role",
        )
    if isinstance(call_id, str) and call_id not in called:
        raise InvalidRequest(
            f"Invalid parameter: 'tool_call_id' of '{shortened(call_id)}' not found in 'tool_calls' of previous message.",
            param=f"messages.[{index}].tool_call_id",
        )


def _unanswered(call_ids: Iterable[str], param: str) -> InvalidRequest:
    return InvalidRequest(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The "
        f"following tool_call_ids did not have response messages: {shortened(', '.join(islice(call_ids, 16)))}",
        param=param,
    )


def _is_json_object(wanted: Any) -> bool:
    return isinstance(wanted, dict) and wanted.get("type") == "json_object"


def _mentions_json(sent: Any) -> bool:
    """Whether a text of the request's messages contains the word "json"."""
    if isinstance(sent, str):
        return "json" in sent.lower()
    for message in sent if isinstance(sent, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else [{"text": content}]:
            text = part.get("text") if isinstance(part, dict) else None
            if isinstance(text, str) and "json" in text.lower():
                return True
    return False


def _check_parts(sent: Any) -> None:
    """Check that the parts of each message have types that its role allows."""
    for index, item in enumerate(sent if isinstance(sent, list) else ()):
        if not isinstance(item, dict) or item.get("type", "message") != "message":
            continue
        content = item.get("content")
        for number, part in enumerate(content if isinstance(content, list) else ()):
            kind = part.get("type") if isinstance(part, dict) else None
            if not isinstance(kind, str):
                continue
            place: ParamPath = ("input", index, "content", number)
            if item.get("role") == "assistant":
                if kind not in _SAID:
                    raise not_among(place, kind, _SAID)
            elif kind not in _PARTS:
                raise not_among((*place, "type"), kind, _PARTS)


def _tools(raw: Any, param: ParamPath) -> Iterator[tuple[ParamPath, dict[str, Any]]]:
    for index, tool in enumerate(raw if isinstance(raw, list) else ()):
        if isinstance(tool, dict):
            yield (*param, index), tool


def _check_function(function: dict[str, Any], param: ParamPath) -> None:
    schema = function.get("parameters")
    if isinstance(schema, dict) and (problem := _schema_problem(schema)) is not None:
        raise InvalidRequest(
            f"Invalid schema for function '{shortened(function.get('name'))}': {problem}",
            param=param,
            code="invalid_function_parameters",
        )


def _check_format(described: dict[str, Any], param: ParamPath, code: str | None) -> None:
    schema = described.get("schema")
    if isinstance(schema, dict) and (problem := _schema_problem(schema)) is not None:
        raise InvalidRequest(
            f"Invalid schema for response_format '{shortened(described.get('name'))}': {problem}",
            param=param,
            code=code,
        )


def _schema_problem(schema: dict[str, Any]) -> str | None:
    """Why `schema` is not a valid strict schema; None if it is one."""
    if (kind := schema.get("type")) != "object":
        shown = kind if isinstance(kind, str) else None if kind is None else "list"
        return f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{shortened(str(shown))}\"'."
    found = strict_problem(schema)
    return None if found is None else f"In context={found.path}, {found.problem}"
