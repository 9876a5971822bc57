"""Puts interleaved text and calls in order.

An upstream may stream several calls in parallel; the gateway's deltas describe one item at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

import msgspec

from gateway.sdk import CallArgumentsDelta, CallEnded, CallStarted, Delta, TextDelta
from gateway.sdk.wire import decode_text


class CallBlock:
    """A call that may still receive arguments."""

    def __init__(self, key: Hashable, call_id: str | None, *, custom: bool) -> None:
        self.key = key
        self.call_id = call_id
        self.custom = custom
        self.name = ""
        self.parts: list[str] = []
        """Pieces of its arguments, or of a custom tool's input."""
        self.sent_parts = 0
        """Number of parts already written."""
        self.started = False
        self.ended = False

    def is_complete(self) -> bool:
        """Whether the call is complete: it has ended, or its arguments are one whole JSON object."""
        if self.ended or self.custom or not self.parts:
            return self.ended
        if not self.parts[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(decode_text("".join(self.parts)), dict)
        except msgspec.DecodeError:
            return False


class Blocks:
    """Orders text and calls. The first open call is streamed; everything after it waits until that call ends.

    A call ends when `end` is called, or when another item begins and its arguments are complete.
    """

    def __init__(self, *, one_call: bool) -> None:
        """With `one_call`, drop everything after the first call, as a request without parallel calls requires."""
        self.ready: list[Delta] = []
        """Deltas ready to be sent. The caller clears the list after taking them."""
        self._one_call = one_call
        self._waiting: deque[CallBlock | Delta] = deque()
        """Deferred output. The first entry, if any, is the call that is being streamed."""
        self._calls: dict[Hashable, CallBlock] = {}

    def write(self, delta: Delta) -> None:
        """Add text, reasoning, a refusal or the start of a message."""
        if self._waiting and not self._flush_complete():
            self._waiting.append(delta)
            return
        if type(delta) is TextDelta and self.ready and type(last := self.ready[-1]) is TextDelta:
            self.ready[-1] = TextDelta(last.text + delta.text, last.start)
        else:
            self.ready.append(delta)

    def call(self, key: Hashable) -> CallBlock | None:
        """The call with this key, open or ended; None if there is none."""
        return self._calls.get(key)

    def start(self, key: Hashable, call_id: str | None, *, custom: bool = False) -> CallBlock:
        """Start a call. Replaces any earlier call with the same key."""
        call = self._calls[key] = CallBlock(key, call_id, custom=custom)
        if self._waiting:
            self._flush_complete()
        self._waiting.append(call)
        return call

    def arguments(self, call: CallBlock, text: str) -> None:
        """Add arguments. They are sent once the call's name is known and no earlier call is open."""
        if text:
            call.parts.append(text)
        if self._waiting and self._waiting[0] is call:
            self._emit_item(call)

    def end(self, key: Hashable) -> None:
        """Mark the call as ended."""
        call = self._calls.get(key)
        if call is not None:
            call.ended = True
            if self._waiting and self._waiting[0] is call and not self._one_call:
                self._flush_complete()

    def finish(self, *, cut: bool) -> None:
        """Flush at the end of the output. With `cut`, a limit ended it and an incomplete last call stays open.

        Raises ValueError for a call without a name.
        """
        while self._waiting:
            first = self._waiting[0]
            if not isinstance(first, CallBlock):
                self.ready.append(first)
            else:
                if not first.name:
                    raise ValueError("a call has no name")
                self._emit_item(first)
                if cut and len(self._waiting) == 1 and not first.is_complete():
                    break
                self._close(first)
                if self._one_call:
                    break
            self._waiting.popleft()
        self._waiting.clear()

    def _flush_complete(self) -> bool:
        """Flush up to the first incomplete call. Returns whether nothing is left waiting."""
        waiting = self._waiting
        while waiting:
            first = waiting[0]
            if isinstance(first, CallBlock):
                self._emit_item(first)
                if self._one_call or not first.started or not first.is_complete():
                    return False
                self._close(first)
            else:
                self.ready.append(first)
            waiting.popleft()
        return True

    def _emit_item(self, call: CallBlock) -> None:
        if not call.started:
            if not call.name:
                return
            call.started = True
            self.ready.append(CallStarted(call.name, call.call_id))
        if len(call.parts) == call.sent_parts:
            return
        text = "".join(call.parts[call.sent_parts :])
        if call.custom:
            text = msgspec.json.encode(text).decode()[1:-1]
            if not call.sent_parts:
                text = '{"input":"' + text
        call.sent_parts = len(call.parts)
        self.ready.append(CallArgumentsDelta(text))

    def _close(self, call: CallBlock) -> None:
        if call.custom:
            self.ready.append(CallArgumentsDelta('"}' if call.sent_parts else '{"input":""}'))
        self.ready.append(CallEnded())
