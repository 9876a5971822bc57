"""Running a generation to its end, and the constraints that the engine contract uses."""

from __future__ import annotations

import json
import re
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from gateway.sdk import (
    Capability,
    Engine,
    EngineOutput,
    EngineRequest,
    FinishReason,
    TextDelta,
    TokenLogprob,
)
from gateway.sdk.constraints import (
    Const,
    Constraint,
    Grammar,
    JsonObject,
    JsonSchema,
    Regex,
    Sequence,
)

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"color": {"enum": ["red", "blue"]}, "sure": {"type": "boolean"}},
    "required": ["color", "sure"],
    "additionalProperties": False,
}

CONSTRAINTS: list[tuple[Capability, Constraint]] = [
    ("json_schema", JsonSchema(_SCHEMA)),
    ("json_object", JsonObject()),
    ("regex", Regex("(yes|no)[!?]")),
    ("lark", Grammar("lark", 'start: "yes" | "no"')),
    ("gbnf", Grammar("gbnf", 'root ::= "yes" | "no"')),
    ("structure", Sequence((Const("<a>"), JsonSchema(_SCHEMA), Const("</a>")))),
]
"""A constraint for each capability. `satisfies` can check it."""


class Generated(Struct, frozen=True):
    """One complete generation. `text` is only the answer, if an engine that takes messages separates it from reasoning
    and calls."""

    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprob]
    finish: FinishReason | None
    stop_reason: str | int | None
    outputs: list[EngineOutput]


async def generate(engine: Engine, request: EngineRequest) -> Generated:
    """Run a request to its end."""
    async with aclosing(engine.generate(request)) as stream:
        return generated([output async for output in stream])


def generated(outputs: list[EngineOutput]) -> Generated:
    """The generation that consists of `outputs`."""
    last = outputs[-1] if outputs else EngineOutput()
    return Generated(
        text="".join(map(_text, outputs)),
        token_ids=[each for output in outputs for each in output.token_ids],
        logprobs=[each for output in outputs for each in output.logprobs or ()],
        finish=last.finish_reason,
        stop_reason=last.stop_reason,
        outputs=outputs,
    )


def _text(output: EngineOutput) -> str:
    if output.deltas is None:
        return output.text
    return "".join(delta.text for delta in output.deltas if isinstance(delta, TextDelta))


def satisfies(text: str, constraint: Constraint) -> bool:
    """Whether a text satisfies one of this module's constraints."""
    match constraint:
        case JsonSchema():
            try:
                value = msgspec.json.decode(text.strip())
            except msgspec.DecodeError:
                return False
            return (
                isinstance(value, dict)
                and value.keys() == {"color", "sure"}
                and value["color"] in ("red", "blue")
                and isinstance(value["sure"], bool)
            )
        case JsonObject():
            return isinstance(json.loads(text), dict)
        case Regex(pattern):
            return re.fullmatch(pattern, text) is not None
        case Sequence((Const(before), body, Const(after))):
            inner = text.strip()
            return (
                inner.startswith(before)
                and inner.endswith(after)
                and satisfies(inner[len(before) : len(inner) - len(after)], body)
            )
        case _:
            return text.strip() in ("yes", "no")
