"""One thing after the other: an upstream may write several calls at once, the gateway's deltas are of one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

import msgspec

from gateway.deltas import CallArgumentsDelta, CallEnded, CallStarted, Delta, TextDelta


class Call:
    """A call that is not known to be over."""

    def __init__(self, key: Hashable, call_id: str | None, *, custom: bool) -> None:
        self.key = key
        self.call_id = call_id
        self.custom = custom
        self.name = ""
        self.parts: list[str] = []
        """Its arguments, or the text of a custom tool."""
        self.told = 0
        """How many of the parts are written."""
        self.started = False
        self.ended = False

    def whole(self) -> bool:
        """Whether nothing can follow: it is over, or its arguments are one JSON object."""
        if self.ended or self.custom or not self.parts:
            return self.ended
        if not self.parts[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(msgspec.json.decode("".join(self.parts)), dict)
        except (msgspec.DecodeError, RecursionError):
            return False


class Blocks:
    """Puts text and calls in order. The first call that is open is written as it comes; what follows it waits for its end.

    That end is told (`end`), or seen: something else begins, and the call's arguments are whole.
    """

    def __init__(self, *, one_call: bool) -> None:
        """With `one_call`, whatever follows the first call is dropped: the client asked for no more than one."""
        self.ready: list[Delta] = []
        """What can be written; whoever takes it empties it."""
        self._one_call = one_call
        self._waiting: deque[Call | Delta] = deque()
        """The first, if there is one, is a call that is being written."""
        self._calls: dict[Hashable, Call] = {}

    def write(self, delta: Delta) -> None:
        """Text, reasoning, a refusal, the beginning of a message."""
        if self._waiting and not self._passed():
            self._waiting.append(delta)
            return
        if type(delta) is TextDelta and self.ready and type(last := self.ready[-1]) is TextDelta:
            self.ready[-1] = TextDelta(last.text + delta.text, last.start)
        else:
            self.ready.append(delta)

    def call(self, key: Hashable) -> Call | None:
        """The call under that key, whether it is over or not."""
        return self._calls.get(key)

    def start(self, key: Hashable, call_id: str | None, *, custom: bool = False) -> Call:
        """A call begins, or another one under the same key."""
        call = self._calls[key] = Call(key, call_id, custom=custom)
        if self._waiting:
            self._passed()
        self._waiting.append(call)
        return call

    def arguments(self, call: Call, text: str) -> None:
        """More of a call: it is written once its name is known and it is the first."""
        if text:
            call.parts.append(text)
        if self._waiting and self._waiting[0] is call:
            self._tell(call)

    def end(self, key: Hashable) -> None:
        """The call is over."""
        call = self._calls.get(key)
        if call is not None:
            call.ended = True
            if self._waiting and self._waiting[0] is call and not self._one_call:
                self._passed()

    def finish(self, *, cut: bool) -> None:
        """The output is over. With `cut`, a limit ended it, and a last call that is not whole is left open.

        Raises ValueError for a call without a name.
        """
        while self._waiting:
            first = self._waiting[0]
            if not isinstance(first, Call):
                self.ready.append(first)
            else:
                if not first.name:
                    raise ValueError("a call has no name")
                self._tell(first)
                if cut and len(self._waiting) == 1 and not first.whole():
                    break
                self._close(first)
                if self._one_call:
                    break
            self._waiting.popleft()
        self._waiting.clear()

    def _passed(self) -> bool:
        """Go on as far as calls are whole; whether nothing waits any more."""
        waiting = self._waiting
        while waiting:
            first = waiting[0]
            if isinstance(first, Call):
                self._tell(first)
                if self._one_call or not first.started or not first.whole():
                    return False
                self._close(first)
            else:
                self.ready.append(first)
            waiting.popleft()
        return True

    def _tell(self, call: Call) -> None:
        if not call.started:
            if not call.name:
                return
            call.started = True
            self.ready.append(CallStarted(call.name, call.call_id))
        if len(call.parts) == call.told:
            return
        text = "".join(call.parts[call.told :])
        if call.custom:
            text = msgspec.json.encode(text).decode()[1:-1]
            if not call.told:
                text = '{"input":"' + text
        call.told = len(call.parts)
        self.ready.append(CallArgumentsDelta(text))

    def _close(self, call: Call) -> None:
        if call.custom:
            self.ready.append(CallArgumentsDelta('"}' if call.told else '{"input":""}'))
        self.ready.append(CallEnded())
