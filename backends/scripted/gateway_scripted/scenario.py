"""Scenarios: what the scripted engine says, and when.

A scenario is a JSON list of rules:

    [
      {"when": "weather in Oslo", "pieces": [
        {"reasoning": "I should look it up."},
        {"call": {"name": "get_weather", "arguments": {"city": "Oslo"}}}]},
      {"when": "-3 degrees", "pieces": [{"text": "It is cold in Oslo."}], "delay_ms": 20},
      {"when": "be slow", "pieces": [{"text": "tick "}], "repeat": 1000, "delay_ms": 50},
      {"when": "too much", "error": {"status": 429, "message": "Slow down."}}
    ]

The rule whose `when` occurs last in the whole rendered prompt wins.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.sdk import (
    AuthenticationError,
    CallPiece,
    ConfigurationError,
    Conflict,
    DeadlineExceeded,
    EngineError,
    EngineUnavailable,
    GatewayError,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    PermissionDenied,
    Piece,
    RateLimited,
    RawPiece,
    ReasoningPiece,
    TextPiece,
)

Finish: TypeAlias = Literal["stop", "length", "content_filter", "error", "crash"]

_ERRORS: dict[int, type[GatewayError]] = {
    error.status: error
    for error in (
        InvalidRequest,
        AuthenticationError,
        PermissionDenied,
        NotFound,
        Conflict,
        PayloadTooLarge,
        RateLimited,
        EngineUnavailable,
        DeadlineExceeded,
    )
}


class ScriptedCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function call. `arguments` is an object, or raw text, so that broken JSON can be written."""

    name: str
    arguments: dict[str, Any] | str = {}


class ScriptedCustomCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of a free-text tool."""

    name: str
    input: str


class ScriptedPiece(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One piece of an answer. Exactly one key must be set."""

    text: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    call: ScriptedCall | UnsetType = UNSET
    custom_call: ScriptedCustomCall | UnsetType = UNSET
    raw: str | UnsetType = UNSET
    """Written verbatim, whatever the model's syntax."""

    def __post_init__(self) -> None:
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not UNSET]
        if len(given) != 1:
            raise ValueError(
                "a piece has exactly one of text, reasoning, call, custom_call, raw; "
                f"this one has {' and '.join(given) or 'none'}"
            )

    def piece(self) -> Piece:
        """The piece in the types of `OutputFormat.write`."""
        if isinstance(self.text, str):
            return TextPiece(self.text)
        if isinstance(self.reasoning, str):
            return ReasoningPiece(self.reasoning)
        if isinstance(self.call, ScriptedCall):
            arguments = self.call.arguments
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False)
            return CallPiece(self.call.name, arguments)
        if isinstance(self.custom_call, ScriptedCustomCall):
            called = self.custom_call
            return CallPiece(called.name, json.dumps({"input": called.input}, ensure_ascii=False))
        assert isinstance(self.raw, str)
        return RawPiece(self.raw)


class ScriptedError(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error in place of an answer."""

    status: Annotated[int, Meta(ge=400, le=599)]
    message: str

    def exception(self) -> GatewayError:
        """The error with this HTTP status; `EngineError` (500) if the gateway has none for it."""
        return _ERRORS.get(self.status, EngineError)(self.message)


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer to prompts that contain `when`."""

    when: str = ""
    """Searched for in the rendered prompt, verbatim. If empty, the rule applies when no other rule matches."""
    pieces: list[ScriptedPiece] = []
    delay_ms: Annotated[float, Meta(ge=0)] | None = None
    """Milliseconds before each output; None: the engine's default."""
    repeat: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    """How often the pieces are repeated. If two rounds meet with text and text, or reasoning and reasoning, these are
    joined to one piece."""
    finish: Finish = "stop"
    """How the answer ends. error: the request fails after its pieces. crash: after its pieces the engine is down for a
    while, and every running request fails."""
    error: ScriptedError | None = None
    """Raised before the first output, and when the request is checked, so that the answer has this HTTP status."""
    chunk: Annotated[int, Meta(ge=1)] | None = None
    """Number of characters per output; None: one token per output."""

    def all_pieces(self) -> list[Piece]:
        """The pieces of all rounds."""
        once = [each.piece() for each in self.pieces]
        if self.repeat == 1 or not once:
            return once
        if len(once) == 1 and isinstance(once[0], TextPiece | ReasoningPiece | RawPiece):
            return [type(once[0])(once[0].text * self.repeat)]
        whole = list(once)
        for _ in range(self.repeat - 1):
            joined = _joined(whole[-1], once[0])
            whole[-1:] = [whole[-1], once[0]] if joined is None else [joined]
            whole += once[1:]
        return whole


class Scenario(Struct, frozen=True):
    """Rules, in the order of the file."""

    rules: Sequence[Rule] = ()

    def rule_for(self, prompt: str) -> Rule | None:
        """The rule whose `when` occurs last in `prompt`. Of two at the same position the longer wins, then the earlier."""
        best: Rule | None = None
        rank = (-1, -1)
        for rule in self.rules:
            found = (prompt.rfind(rule.when), len(rule.when)) if rule.when else (-1, 0)
            if found > rank and (found[0] >= 0 or not rule.when):
                best, rank = rule, found
        return best


def _joined(one: Piece, other: Piece) -> Piece | None:
    """Two pieces joined to one, if both are text or both are reasoning."""
    if isinstance(one, TextPiece) and isinstance(other, TextPiece):
        return TextPiece(one.text + other.text)
    if isinstance(one, ReasoningPiece) and isinstance(other, ReasoningPiece):
        return ReasoningPiece(one.text + other.text)
    return None


def parse_scenario(data: bytes | str, *, source: str = "the scenario") -> Scenario:
    """Parse a scenario. Raises `ConfigurationError`; `source` names the scenario in its message."""
    try:
        return Scenario(msgspec.json.decode(data, type=list[Rule]))
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"{source} is not a list of rules: {problem}") from None


def load_scenario(path: str | Path) -> Scenario:
    """Read a scenario file. Raises `ConfigurationError` with the file's name and the position of the mistake."""
    try:
        data = Path(path).read_bytes()
    except OSError as problem:
        raise ConfigurationError(
            f"The scenario {path} cannot be read: {problem.strerror}."
        ) from None
    return parse_scenario(data, source=f"The scenario {path}")
