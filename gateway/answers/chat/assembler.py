"""The chat assembler: turns a parser's deltas into one choice of Chat Completions.

It is pure and synchronous. It interprets the deltas; a writer produces the output, as chunks for a stream
(`gateway.answers.chat.chunks`) or as a message for a non-streaming answer (`gateway.answers.chat.message`).

Guarantees: the role comes first; call indices are dense from 0; arguments add up to the text that the model wrote, or
to `{}` if there is none; there is one finish reason. Messages that the Responses API shows as several items are joined
to one `content`, separated by blank lines; so is reasoning. Calls of tools that the gateway runs are not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, assert_never

from gateway.base.deltas import (
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    CitationEnded,
    CitationStarted,
    CitedSource,
    Delta,
    EncryptedReasoning,
    MessageStarted,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)
from gateway.items.logprobs import LogprobAligner
from gateway.items.string_field import StringFieldReader
from gateway.plugins.protocols import FinishReason as EngineFinish
from gateway.plugins.protocols import TokenLogprob
from gateway.tools.roles import FUNCTION, CallRole
from gateway.wire.chat import FinishReason

SEPARATOR = "\n\n"
"""Separates two messages, or two reasoning sections, of one choice."""


class ChoiceWriter(Protocol):
    """Writes one choice. Each method returns the bytes to send, which may be empty."""

    def role(self) -> bytes: ...

    def text(self, text: str, logprobs: Sequence[TokenLogprob]) -> bytes: ...

    def reasoning(self, text: str) -> bytes: ...

    def refusal(self, text: str) -> bytes: ...

    def call(self, index: int, call_id: str, name: str, *, custom: bool) -> bytes:
        """Start a call. `custom`: whether its input is free text."""
        ...

    def call_input(self, index: int, text: str, *, custom: bool) -> bytes: ...

    def finish(self, reason: FinishReason, stop_reason: str | int | None) -> bytes: ...


class CitingWriter(ChoiceWriter, Protocol):
    """Writes a choice with cited spans."""

    def begin_citation(self) -> bytes:
        """Begin a cited span. It starts with the next text."""
        ...

    def end_citation(self, sources: Sequence[CitedSource]) -> bytes:
        """End the cited span."""
        ...


class OpenCall:
    """A visible call that is being written."""

    def __init__(self, index: int, *, custom: bool) -> None:
        self.index = index
        self.reader = StringFieldReader("input") if custom else None
        self.written = False


class ChoiceAssembler:
    """Assembles one choice. Not reusable."""

    def __init__(
        self,
        writer: ChoiceWriter,
        *,
        roles: Mapping[str, CallRole],
        new_id: Callable[[str], str],
        aligner: LogprobAligner | None = None,
        shows_reasoning: bool = True,
        calls_finish: FinishReason = "tool_calls",
        lead: str = "",
        citing: CitingWriter | None = None,
    ) -> None:
        """`calls_finish` is the finish reason of a choice with calls. `lead` is text that precedes the model's output
        (`echo`). `citing` is the same object as `writer` if that annotates cited spans. If it is None, cited spans are
        ordinary text."""
        self._writer = writer
        self._roles = roles
        self._new_id = new_id
        self._aligner = aligner
        self._shows_reasoning = shows_reasoning
        self._calls_finish = calls_finish
        self._lead = lead
        self._citing = citing
        self._starts_citation = False
        """Whether the next text block starts with a cited span."""
        self._begun = False
        self._block: Literal["text", "reasoning"] | None = None
        self._has_text = False
        self._has_reasoning = False
        self._calls = 0
        self._call: OpenCall | None = None
        self._in_hidden_call = False
        self._cut_call = False
        self._ended: EngineFinish = "stop"

    def feed(self, deltas: Sequence[Delta]) -> bytes:
        """Write `deltas` into the choice. Returns the bytes to send."""
        if self._block == "text" and self._aligner is None and len(deltas) == 1:
            delta = deltas[0]
            if type(delta) is TextDelta:  # the common case
                return self._writer.text(delta.text, ())
        out: list[bytes] = []
        if not self._begun:
            self._begin(out)
        for delta in deltas:
            self._write(delta, out)
        return out[0] if len(out) == 1 else b"".join(out)

    def end(self, held: Sequence[Delta], reason: EngineFinish) -> bytes:
        """Handle the end of a generation. `held` are its last deltas. Returns the bytes to send."""
        sent = self.feed(held)
        self._ended = reason
        self._block = None
        self._cut_call = self._call is not None
        self._call = None
        self._in_hidden_call = False
        return sent

    def finish(self, stop_reason: str | int | None = None) -> bytes:
        """End the choice. Returns its last bytes."""
        return self._writer.finish(self.finish_reason, stop_reason)

    @property
    def finish_reason(self) -> FinishReason:
        """Why the choice ended, by OpenAI's rules. A call that a limit cut off does not count as a call."""
        if self._ended in ("length", "content_filter"):
            return "length" if self._ended == "length" else "content_filter"
        return self._calls_finish if self._calls and not self._cut_call else "stop"

    def _begin(self, out: list[bytes]) -> None:
        self._begun = True
        out.append(self._writer.role())
        if self._lead:
            out.append(self._writer.text(self._lead, ()))
            self._block, self._has_text = "text", True

    def _write(self, delta: Delta, out: list[bytes]) -> None:
        match delta:
            case TextDelta():
                if self._block != "text":
                    self._open_text(out)
                logprobs = self._aligner.take(delta.start, delta.text) if self._aligner else ()
                out.append(self._writer.text(delta.text, logprobs))
            case ReasoningDelta():
                if self._block != "reasoning":
                    self._open_reasoning(out)
                if self._shows_reasoning:
                    out.append(self._writer.reasoning(delta.text))
            case CallArgumentsDelta():
                self._write_call(delta.text, out)
            case CallStarted():
                self._block = None
                self._start_call(delta, out)
            case CallEnded():
                self._end_call(out)
            case CitationStarted():
                self._starts_citation = self._block != "text"
                if self._citing is not None and self._block == "text":
                    out.append(self._citing.begin_citation())
            case CitationEnded():
                if self._citing is not None and self._block == "text":
                    out.append(self._citing.end_citation(delta.sources))
            case RefusalDelta():
                if self._block != "text":  # otherwise part of the same message
                    self._block = None
                out.append(self._writer.refusal(delta.text))
            case EncryptedReasoning():
                pass  # the API has no place for it
            case MessageStarted() | BlockEnded():
                self._block = None
            case _:
                assert_never(delta)

    def _open_text(self, out: list[bytes]) -> None:
        if self._has_text:
            out.append(self._writer.text(SEPARATOR, ()))
        self._block, self._has_text = "text", True
        if self._starts_citation and self._citing is not None:
            out.append(self._citing.begin_citation())
        self._starts_citation = False

    def _open_reasoning(self, out: list[bytes]) -> None:
        if self._has_reasoning and self._shows_reasoning:
            out.append(self._writer.reasoning(SEPARATOR))
        self._block, self._has_reasoning = "reasoning", True

    def _start_call(self, delta: CallStarted, out: list[bytes]) -> None:
        role = self._roles.get(delta.name, FUNCTION)
        if role.server_label:
            self._in_hidden_call = True
            return
        custom = role.item_type == "custom_tool_call"
        self._call = OpenCall(self._calls, custom=custom)
        self._calls += 1
        call_id = delta.call_id or self._new_id("call_")
        name = role.shown_name or delta.name
        out.append(self._writer.call(self._call.index, call_id, name, custom=custom))

    def _write_call(self, text: str, out: list[bytes]) -> None:
        call = self._call
        if call is None:
            if not self._in_hidden_call:
                raise RuntimeError("a parser wrote arguments outside a call")
            return
        call.written = True
        if call.reader is not None:
            text = call.reader.feed(text)
        if text:
            out.append(self._writer.call_input(call.index, text, custom=call.reader is not None))

    def _end_call(self, out: list[bytes]) -> None:
        call, self._call = self._call, None
        self._in_hidden_call = False
        if call is None:
            return
        rest = "" if call.written else "{}"
        if call.reader is not None:
            rest = call.reader.finish()
        if rest:
            out.append(self._writer.call_input(call.index, rest, custom=call.reader is not None))
