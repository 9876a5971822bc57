"""The texts before the conversation: the system message and the developer message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import msgspec

from gateway.sdk import InvalidRequest, TextFormat, ToolDefinition
from gateway_harmony.calls import PYTHON
from gateway_harmony.encoding import harmony
from gateway_harmony.markers import END, MESSAGE

Effort: TypeAlias = Literal["low", "medium", "high"]

EFFORTS: Final[dict[str, Effort]] = {
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
"""Maps the API's efforts to the three that the models support."""

_INPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}
_ENCODER = msgspec.json.Encoder(order="deterministic")


def system_text(
    *,
    identity: str | None,
    knowledge_cutoff: str | None,
    today: str | None,
    effort: Effort,
    built_in: Sequence[ToolDefinition],
    has_functions: bool,
) -> str:
    """The system message. `today` is an ISO date; None omits it."""
    encoded = _ENCODER.encode([(t.name, t.description, t.parameters) for t in built_in])
    return _system_text(identity, knowledge_cutoff, today, effort, encoded, has_functions)


@lru_cache(maxsize=256)
def _system_text(
    identity: str | None,
    knowledge_cutoff: str | None,
    today: str | None,
    effort: Effort,
    built_in: bytes,
    has_functions: bool,
) -> str:
    from openai_harmony import (  # type: ignore[import-untyped]
        ReasoningEffort,
        RenderOptions,
        SystemContent,
    )

    content = SystemContent(
        model_identity=identity,
        knowledge_cutoff=knowledge_cutoff,
        conversation_start_date=today,
        reasoning_effort=ReasoningEffort(effort.capitalize()),
    )
    families: dict[str, list[tuple[str, str | None, dict[str, Any] | None]]] = {}
    for name, description, parameters in msgspec.json.decode(built_in):
        family, _, function = name.partition(".")
        families.setdefault(family, []).append((function, description, parameters))
    for family, functions in families.items():
        content = content.with_tools(_family(family, functions))
    return _rendered(
        "system", content, RenderOptions(conversation_has_function_tools=has_functions)
    )


def _family(family: str, functions: Sequence[tuple[str, str | None, dict[str, Any] | None]]) -> Any:
    """Declaration of a built-in tool as in the models' training; otherwise the tool's own description."""
    from openai_harmony import ToolDescription, ToolNamespaceConfig

    if family == PYTHON:
        description = functions[0][1]
        known = ToolNamespaceConfig.python()
        return known.model_copy(update={"description": description}) if description else known
    if family == "browser":
        known = ToolNamespaceConfig.browser()
        offered = {function for function, _, _ in functions}
        if "" in offered:
            return known
        return known.model_copy(
            update={"tools": [tool for tool in known.tools if tool.name in offered]}
        )
    return ToolNamespaceConfig(
        name=family,
        description=next((said for function, said, _ in functions if not function), None),
        tools=[
            ToolDescription(name=function, description=said or "", parameters=parameters)
            for function, said, parameters in functions
            if function
        ],
    )


def developer_text(
    instructions: str, functions: Sequence[ToolDefinition], text_format: TextFormat
) -> str:
    """The developer message; empty if it has no content.

    Raises `InvalidRequest` for tools whose schemas cannot be declared.
    """
    sections = [f"# Instructions\n\n{instructions}"] if instructions else []
    if functions:
        sections.append(functions_text(functions))
    if text_format.kind != "text":
        sections.append(_response_format(text_format))
    return "\n\n".join(sections)


def functions_text(functions: Sequence[ToolDefinition]) -> str:
    """The section that declares `functions` as a TypeScript namespace."""
    definitions = [
        (tool.name, tool.description, _INPUT if tool.kind == "custom" else tool.parameters)
        for tool in functions
    ]
    return _functions_text(msgspec.json.encode(definitions))


@lru_cache(maxsize=256)
def _functions_text(functions: bytes) -> str:
    from openai_harmony import DeveloperContent, HarmonyError, RenderOptions, ToolDescription

    tools = [
        ToolDescription(name=name, description=description or "", parameters=parameters)
        for name, description, parameters in msgspec.json.decode(functions)
    ]
    try:
        return _rendered(
            "developer", DeveloperContent().with_function_tools(tools), RenderOptions()
        )
    except (HarmonyError, RecursionError) as error:
        raise InvalidRequest(
            f"The tools cannot be declared to this model: {error}.", param="tools"
        ) from error


def _rendered(role: str, content: Any, options: Any) -> str:
    from openai_harmony import Message, Role

    encoding = harmony()
    message = Message.from_role_and_content(Role(role), content)
    text: str = encoding.decode_utf8(encoding.render(message, options))
    return text[text.index(MESSAGE) + len(MESSAGE) : -len(END)]


def _response_format(text_format: TextFormat) -> str:
    """The section that describes the format of the final message."""
    if text_format.kind == "json_schema" and text_format.schema:
        schema = text_format.schema
        description = text_format.description
    else:
        schema = {"type": "object"}
        description = text_format.description or "The final message is one JSON object."
    lines = ["# Response Formats", "", f"## {text_format.name or 'response'}", ""]
    lines += [f"// {line}" for line in (description or "").splitlines()]
    lines.append(json.dumps(schema, ensure_ascii=False, separators=(",", ":")))
    return "\n".join(lines)
