"""From a parser's deltas to content blocks: another assembler over the same deltas as those of the other APIs.

Pure and synchronous. What a delta means is decided here, once; what becomes of it is the writer's: events
(`gateway_messages.events`), or one message (`gateway_messages.message`).

Promises: blocks have dense indices and never overlap; each is closed; thinking ends with its signature; the parts of a
call's input add up to what the model wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, Protocol, assert_never

from gateway.deltas import (
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    MessageStarted,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)
from gateway.errors import GatewayError
from gateway.protocols import FinishReason, Outcome
from gateway_messages.answer import End, StopReason
from gateway_messages.signatures import Signer


class BlockWriter(Protocol):
    """What becomes of the blocks. Each method returns what is to be sent; of the blocks, only the open one is written."""

    def start(self) -> bytes: ...

    def open_text(self, index: int) -> bytes: ...

    def text(self, text: str) -> bytes: ...

    def open_thinking(self, index: int) -> bytes: ...

    def thinking(self, text: str) -> bytes: ...

    def signature(self, signature: str) -> bytes: ...

    def open_tool_use(self, index: int, call_id: str, name: str) -> bytes: ...

    def tool_input(self, text: str) -> bytes: ...

    def close(self) -> bytes: ...

    def finish(self, end: End) -> bytes: ...

    def fail(self, error: GatewayError) -> bytes: ...

    def idle(self) -> bytes: ...


class MessageAssembler:
    """One answer while it is made: `gateway.protocols.AnswerWriter`. Not reusable."""

    def __init__(
        self,
        writer: BlockWriter,
        *,
        new_id: Callable[[str], str],
        new_signer: Callable[[], Signer],
        shows_thinking: bool = True,
        stop_sequences: Collection[str] = (),
        hides_output: bool = False,
    ) -> None:
        """`shows_thinking` False leaves the text out of thinking blocks; `hides_output` shows no blocks at all."""
        self._writer = writer
        self._new_id = new_id
        self._new_signer = new_signer
        self._shows_thinking = shows_thinking
        self._stop_sequences = stop_sequences
        self._hides_output = hides_output
        self._begun = False
        self._next = 0
        self._open: Literal["text", "thinking", "tool_use"] | None = None
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
            if type(delta) is TextDelta and self._open == "text":  # nearly every delta
                out.append(self._writer.text(delta.text))
            else:
                self._write(delta, out)
        return out[0] if len(out) == 1 else b"".join(out)

    def end(self, held: Sequence[Delta], reason: FinishReason) -> bytes:
        out = [self.feed(held)]
        if self._open == "tool_use":
            self._calls -= 1  # it was cut off, and is no call to be run
        self._close(out)
        return b"".join(out)

    def finish(self, outcome: Outcome) -> bytes:
        matched = outcome.stop_reason
        reason = self._stop_reason(outcome)
        return self._writer.finish(
            End(
                stop_reason=reason,
                stop_sequence=str(matched) if reason == "stop_sequence" else None,
                usage=outcome.usage,
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
        if outcome.stop_reason in self._stop_sequences:
            return "stop_sequence"
        return "tool_use" if self._calls else "end_turn"

    def _begin(self, out: list[bytes]) -> None:
        self._begun = True
        out.append(self._writer.start())

    def _write(self, delta: Delta, out: list[bytes]) -> None:
        match delta:
            case TextDelta(text=text):
                self._open_text(out)
                out.append(self._writer.text(text))
            case RefusalDelta(text=text):
                self._refused = True
                self._open_text(out)
                out.append(self._writer.text(text))
            case ReasoningDelta(text=text):
                self._think(text, out)
            case CallStarted():
                self._close(out)
                self._open = "tool_use"
                self._calls += 1
                call_id = delta.call_id or self._new_id("toolu_")
                out.append(self._writer.open_tool_use(self._index(), call_id, delta.name))
            case CallArgumentsDelta(text=text):
                if self._open != "tool_use":
                    raise RuntimeError("a parser wrote arguments outside a call")
                out.append(self._writer.tool_input(text))
            case CallEnded() | MessageStarted() | BlockEnded():
                self._close(out)
            case _:
                assert_never(delta)

    def _open_text(self, out: list[bytes]) -> None:
        if self._open != "text":
            self._close(out)
            self._open = "text"
            out.append(self._writer.open_text(self._index()))

    def _think(self, text: str, out: list[bytes]) -> None:
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
        if self._signer is not None:
            out.append(self._writer.signature(self._signer.signature()))
            self._signer = None
        self._open = None
        out.append(self._writer.close())

    def _index(self) -> int:
        self._next += 1
        return self._next - 1
