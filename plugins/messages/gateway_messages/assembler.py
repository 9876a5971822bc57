"""Converts a parser's deltas to content blocks, as other assemblers do for other APIs.

Pure and synchronous. The assembler interprets each delta once; the writer turns the result into events
(`gateway_messages.events`) or one message (`gateway_messages.message`).

Guarantees: block indices are dense and blocks never overlap; each block is closed; thinking ends with its
signature; the input deltas of a client tool call concatenate to what the model wrote; each call of a server tool
is followed by exactly one result. Citation marks (`gateway.items.citations`) are removed from the text; the
block that ends there carries the citation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Literal, Protocol, assert_never

from gateway.sdk import (
    AvailableTool,
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallRecord,
    CallStarted,
    CitationEnded,
    CitationStarted,
    Delta,
    EncryptedReasoning,
    FinishReason,
    GatewayError,
    MessageStarted,
    Outcome,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolResult,
)
from gateway_messages.answer import (
    Called,
    End,
    ServerToolUsage,
    StopReason,
    ToolUseContent,
    WebCitation,
)
from gateway_messages.citing import CitationWriter
from gateway_messages.server_tool_calls import (
    FetchToolUse,
    Seal,
    SearchToolUse,
    ServerToolUse,
    server_tool_call,
)
from gateway_messages.signatures import Signer
from gateway_messages.tool_answer import ToolAnswer

_TEXT: Final = (TextDelta, CitationStarted, CitationEnded)
"""Deltas within which a text continues."""


class BlockWriter(Protocol):
    """Receives the blocks. Each method returns the bytes to send. Only the open block is written to."""

    def start(self) -> bytes: ...

    def open_text(self, index: int) -> bytes: ...

    def text(self, text: str) -> bytes: ...

    def open_thinking(self, index: int) -> bytes: ...

    def thinking(self, text: str) -> bytes: ...

    def signature(self, signature: str) -> bytes: ...

    def cite(self, citation: WebCitation) -> bytes:
        """Add a citation to the open text block."""
        ...

    def open_call(self, index: int, call: Called) -> bytes: ...

    def tool_input(self, text: str) -> bytes: ...

    def tool_answer(self, index: int, answer: ToolAnswer) -> bytes:
        """Write a complete result block; no block is open."""
        ...

    def close(self) -> bytes: ...

    def finish(self, end: End) -> bytes: ...

    def fail(self, error: GatewayError) -> bytes: ...

    def idle(self) -> bytes: ...


class MessageAssembler:
    """Assembles one message: `gateway.sdk.AnswerWriter`. Not reusable."""

    def __init__(
        self,
        writer: BlockWriter,
        *,
        new_id: Callable[[str], str],
        new_signer: Callable[[], Signer],
        shows_thinking: bool = True,
        stop_sequences: Collection[str] = (),
        hides_output: bool = False,
        served: Mapping[str, AvailableTool] = {},
        seal: Seal = str,
        known: Collection[CallRecord] = (),
    ) -> None:
        """If `shows_thinking` is false, thinking blocks have no text. If `hides_output` is true, no blocks are shown.

        `served` are the tools that the gateway runs, by the names shown to the model. `seal` encrypts what the
        model reads of them. `known` are calls of earlier answers, which may be cited.
        """
        self._writer = writer
        self._new_id = new_id
        self._new_signer = new_signer
        self._shows_thinking = shows_thinking
        self._stop_sequences = stop_sequences
        self._hides_output = hides_output
        self._begun = False
        self._next = 0
        self._served = served
        self._seal = seal
        self._serving: ServerToolUse | None = None
        """The server tool call that is being written."""
        self._running: deque[ServerToolUse] = deque()
        """Server tool calls of this turn without a result."""
        self._citing = CitationWriter(known) if known else None
        self._cites: list[WebCitation] = []
        """Citations that precede any text they could belong to."""
        self._text_ends = False
        """Whether the open text block has a citation, so that further text starts a new block."""
        self._searches = 0
        self._fetches = 0
        self._open: Literal["text", "thinking", "call"] | None = None
        self._signer: Signer | None = None
        self._calls = 0
        self._refused = False

    def feed(self, deltas: Sequence[Delta]) -> bytes:
        out: list[bytes] = []
        if not self._begun:
            self._begin(out)
        if self._hides_output:
            return b"".join(out)
        for delta in deltas:
            # Fast path: nearly every delta continues the open text block.
            if type(delta) is TextDelta and self._open == "text" and self._citing is None:
                out.append(self._writer.text(delta.text))
            else:
                self._write(delta, out)
        return out[0] if len(out) == 1 else b"".join(out)

    def end(self, held: Sequence[Delta], reason: FinishReason) -> bytes:
        out = [self.feed(held)]
        if self._open == "call":  # a truncated call, which is not run
            if self._serving is None:
                self._calls -= 1
            elif rest := self._serving.cut():
                out.append(self._writer.tool_input(rest))
            self._serving = None
        if self._citing is not None:
            self._cited(self._citing.rest(), out)
        self._close(out)
        return b"".join(out)

    def called(self, result: ToolResult) -> bytes:
        """See `gateway.sdk.CallWriter`."""
        if self._hides_output:
            return b""
        call = self._running.popleft()
        answer = call.answer(result, self._seal)
        self._searches += isinstance(call, SearchToolUse)
        self._fetches += isinstance(call, FetchToolUse)
        if result.sources or result.files:
            self._citing = self._citing or CitationWriter(())
            self._citing.add_result(result.text, result.sources, result.files)
        return self._writer.tool_answer(self._index(), answer)

    def finish(self, outcome: Outcome) -> bytes:
        matched = outcome.stop_reason
        reason = self._stop_reason(outcome)
        return self._writer.finish(
            End(
                stop_reason=reason,
                stop_sequence=str(matched) if reason == "stop_sequence" else None,
                usage=outcome.usage,
                server_tools=self._server_tools(),
                hides_output=self._hides_output,
            )
        )

    def fail(self, error: GatewayError) -> bytes:
        return self._writer.fail(error)

    def idle(self) -> bytes:
        out: list[bytes] = []
        if self._begun:
            out.append(self._writer.idle())
        else:
            self._begin(out)
        return b"".join(out)

    def _stop_reason(self, outcome: Outcome) -> StopReason:
        if self._hides_output:
            return "max_tokens"
        if self._refused or outcome.reason == "content_filter":
            return "refusal"
        if outcome.reason == "length":
            return "model_context_window_exceeded" if outcome.context_full else "max_tokens"
        if outcome.paused:
            return "pause_turn"
        if outcome.stop_reason in self._stop_sequences:
            return "stop_sequence"
        return "tool_use" if self._calls else "end_turn"

    def _server_tools(self) -> ServerToolUsage | None:
        if not self._searches and not self._fetches:
            return None
        return ServerToolUsage(web_search_requests=self._searches, web_fetch_requests=self._fetches)

    def _begin(self, out: list[bytes]) -> None:
        self._begun = True
        out.append(self._writer.start())

    def _write(self, delta: Delta, out: list[bytes]) -> None:
        if self._citing is not None and not isinstance(delta, _TEXT):
            self._cited(self._citing.rest(), out)
        match delta:
            case TextDelta(text=text):
                if self._citing is None:
                    self._write_text(text, out)
                else:
                    self._cited(self._citing.read(text), out)
            case RefusalDelta(text=text):
                self._refused = True
                self._write_text(text, out)
            case ReasoningDelta(text=text):
                self._write_thinking(text, out)
            case CallStarted():
                self._close(out)
                self._start_call(delta, out)
            case CallArgumentsDelta(text=text):
                if self._open != "call":
                    raise RuntimeError("a parser wrote arguments outside a call")
                if self._serving is not None:
                    text = self._serving.write(text)
                if text:
                    out.append(self._writer.tool_input(text))
            case CallEnded() if self._serving is not None:
                call, self._serving = self._serving, None
                self._running.append(call)
                if rest := call.end():
                    out.append(self._writer.tool_input(rest))
                self._close(out)
            case CallEnded() | MessageStarted() | BlockEnded():
                self._close(out)
            case EncryptedReasoning():
                pass  # signatures carry the text alone
            case CitationStarted() | CitationEnded():
                pass  # their sources are not web pages
            case _:
                assert_never(delta)

    def _start_call(self, delta: CallStarted, out: list[bytes]) -> None:
        self._open = "call"
        begun: Called
        if (offered := self._served.get(delta.name)) is not None:
            self._serving = server_tool_call(delta.name, offered, self._new_id)
            begun = self._serving.initial_block()
        else:
            self._calls += 1
            call_id = delta.call_id or self._new_id("toolu_")
            begun = ToolUseContent(id=call_id, name=delta.name, input={})
        out.append(self._writer.open_call(self._index(), begun))

    def _write_text(self, text: str, out: list[bytes]) -> None:
        if self._open != "text" or self._text_ends:
            self._close(out)
            self._open = "text"
            out.append(self._writer.open_text(self._index()))
            cites, self._cites = self._cites, []
            out += map(self._writer.cite, cites)
        out.append(self._writer.text(text))

    def _cited(self, pieces: Sequence[str | WebCitation], out: list[bytes]) -> None:
        for piece in pieces:
            if isinstance(piece, str):
                self._write_text(piece, out)
            elif self._open == "text":
                out.append(self._writer.cite(piece))
                self._text_ends = True
            else:
                self._cites.append(piece)

    def _write_thinking(self, text: str, out: list[bytes]) -> None:
        if self._signer is None:
            self._close(out)
            self._open = "thinking"
            self._signer = self._new_signer()
            out.append(self._writer.open_thinking(self._index()))
        self._signer.add(text)
        if self._shows_thinking:
            out.append(self._writer.thinking(text))

    def _close(self, out: list[bytes]) -> None:
        if self._open is None:
            return
        self._text_ends = False
        if self._signer is not None:
            out.append(self._writer.signature(self._signer.signature()))
            self._signer = None
        self._open = None
        out.append(self._writer.close())

    def _index(self) -> int:
        self._next += 1
        return self._next - 1
