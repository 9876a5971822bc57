"""Implements `OutputFormat` for any `FormatSpec`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.sdk import (
    InvalidRequest,
    NamedTool,
    OutputParser,
    ParserContext,
    Piece,
    Tail,
    TextFormat,
    Tokenizer,
    ToolDefinition,
    Turn,
    Unsupported,
)
from gateway.sdk.constraints import (
    Const,
    Constraint,
    FreeText,
    OneOf,
    Regex,
    Repeat,
    Triggered,
    text_constraint,
)
from gateway.sdk.constraints import Sequence as InOrder
from gateway_parsers.kit.active_markers import ActiveMarkers
from gateway_parsers.kit.machine import Machine
from gateway_parsers.kit.newlines import NewlineParser
from gateway_parsers.kit.template import in_order
from gateway_parsers.kit.writing import write
from gateway_parsers.spec import FormatSpec

_FREE: Final = ("auto", "none")
"""The choices of tools that constrain nothing where there are no tools."""


class MarkupFormat:
    """A format made of reasoning markers and a call syntax, either of which may be absent."""

    def __init__(self, spec: FormatSpec, tokenizer: Tokenizer | None = None) -> None:
        self.spec = spec
        self._sets = ActiveMarkers(spec, tokenizer)
        self._keeps_special_tokens = _hidden_markers(spec, tokenizer)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def keeps_special_tokens(self) -> bool:
        return self._keeps_special_tokens

    @property
    def cites(self) -> bool:
        return self.spec.cites

    @property
    def joins_outputs(self) -> bool:
        return self.spec.reasoning is None

    def parser(self, context: ParserContext) -> OutputParser:
        machine = Machine(self.spec, self._sets, context)
        return NewlineParser(machine) if self.spec.plain_newlines else machine

    def write(self, pieces: Sequence[Piece], *, tail: Tail = "unknown") -> str:
        return write(self.spec, pieces, tail)

    def constraint(self, turn: Turn, *, tail: Tail) -> Constraint | None:
        if turn.text_format.kind == "text" and not turn.tools and turn.tool_choice in _FREE:
            return None
        answer = self._answer(turn, tail)
        if answer is None or isinstance(answer, Triggered):
            return answer  # free text includes reasoning
        thinking = self._thinking(tail)
        return answer if thinking is None else InOrder((thinking, answer))

    def _answer(self, turn: Turn, tail: Tail) -> Constraint | None:
        """The constraint on the output after the reasoning."""
        tools = [tool for tool in turn.tools if tool.kind != "builtin"]
        text = self._text(turn.text_format, tail)
        match turn.tool_choice:
            case "none":
                return text
            case NamedTool(name):
                named = [tool for tool in tools if tool.name == name]
                if not named:
                    raise InvalidRequest(
                        f"tool_choice names {name!r}, which is not among the tools.",
                        param="tool_choice",
                    )
                return self._calls(named, parallel=False, schemas=True)
            case "required":
                if not tools:
                    raise InvalidRequest(
                        "tool_choice is 'required', but there are no tools.", param="tool_choice"
                    )
                return self._calls(tools, parallel=turn.parallel_tool_calls, schemas=True)
        if not tools:
            return text
        if self.spec.calls is None:
            raise Unsupported(
                f"The output format {self.name!r} has no tool calls: leave the tools out, or use another model.",
                param="tools",
            )
        if text is not None:
            calls = self._calls(tools, parallel=turn.parallel_tool_calls, schemas=False)
            return OneOf((text, calls))
        if any(tool.strict or isinstance(tool.grammar, Regex) for tool in tools):
            return self._whenever_it_calls(tools, parallel=turn.parallel_tool_calls)
        return None

    def _whenever_it_calls(self, tools: Sequence[ToolDefinition], *, parallel: bool) -> Constraint:
        """The constraint for optional calls: text and reasoning are free, calls are constrained."""
        syntax = self.spec.calls
        assert syntax is not None
        if syntax.trigger is None:
            raise Unsupported(
                f"The format {self.name!r} has no marker before its calls, so that strict tools cannot be enforced unless"
                " tool_choice is 'required' or names one. Make the tools not strict.",
                param="tools",
            )
        body = self._calls(tools, parallel=parallel and syntax.sectioned, schemas=False)
        return Triggered(trigger=syntax.trigger, body=body)

    def _calls(
        self, tools: Sequence[ToolDefinition], *, parallel: bool, schemas: bool
    ) -> Constraint:
        if self.spec.calls is None:
            raise Unsupported(
                f"The output format {self.name!r} has no tool calls, so none can be asked for.",
                param="tool_choice",
            )
        calls = self.spec.calls.constraint(tools, parallel=parallel, schemas=schemas)
        frame = self.spec.frame
        if frame is not None and frame.with_calls and schemas:
            return in_order([FreeText(until=frame.close), calls])
        return calls

    def _text(self, text_format: TextFormat, tail: Tail) -> Constraint | None:
        text = text_constraint(text_format)
        frame = self.spec.frame
        if text is None or frame is None:
            return text
        opened = tail == "text" and frame.with_calls
        return in_order([Const("" if opened else frame.open), text, Const(frame.close)])

    def _thinking(self, tail: Tail) -> Constraint | None:
        """The constraint on the reasoning before the answer."""
        marks = self.spec.reasoning
        if marks is None or tail == "text":
            return None
        closed = InOrder((FreeText(until=marks.close), Const(marks.after_close)))
        if tail == "reasoning" or marks.default_start == "reasoning":
            return closed
        return Repeat(InOrder((Const(marks.open), *closed.parts)), min=0, max=1)


def _hidden_markers(spec: FormatSpec, tokenizer: Tokenizer | None) -> bool:
    """Whether decoding without special tokens loses a marker. Without a tokenizer, True if there are any markers."""
    markers: list[str] = []
    if spec.reasoning is not None:
        markers += (spec.reasoning.open, spec.reasoning.close)
    if spec.frame is not None:
        markers += (spec.frame.open, spec.frame.close)
    if spec.calls is not None:
        markers += spec.calls.markup
    if tokenizer is None:
        return bool(markers)
    return any(
        marker not in tokenizer.decode(tokenizer.encode(marker), skip_special_tokens=True)
        for marker in markers
    )
