"""Reads calls with the name in a separate header."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gateway_parsers.kit.encoded import EncodedArguments
from gateway_parsers.kit.header_shape import HeaderShape
from gateway_parsers.kit.json_value import JsonValue
from gateway_parsers.kit.markers import WHITESPACE, MarkerContext
from gateway_parsers.kit.reader import StepReader, skip
from gateway_parsers.kit.syntax import MAX_NAME, Accept

_ANYWHERE: Final = MarkerContext()


class HeaderReader(StepReader):
    """The reader of `HeaderShape`. A call starts with its arguments and ends with their JSON."""

    __slots__ = ("_calls", "_encoded", "_label", "_part", "_parts", "_shape", "_tools", "_value")

    def __init__(
        self, shape: HeaderShape, marker: str, accept: Accept | None, tools: Collection[str]
    ) -> None:
        named = marker == shape.call
        super().__init__(marker, accept, HeaderReader._header if named else HeaderReader._outside)
        self._shape = shape
        self._tools = tools
        self._calls = 0
        self._parts: list[str] = []
        self._part = ""
        self._label: tuple[str, str | None] = ("", None)
        """Name and id of a call whose arguments are encoded."""
        self._value = JsonValue(shape.stops, special=True)
        self._encoded = EncodedArguments('"')

    def finish(self, *, stopped: bool) -> None:
        if self.status != "more":
            return
        if self.undecided:
            self._end_at_name(stopped=stopped)
        elif self._step is HeaderReader._json:
            self.recoveries += 1
            if stopped and self._value.may_close:
                self._arguments(self._value.closing())  # only closing brackets are missing
                self._end()
            self.status = "done"
        elif self._step is HeaderReader._encoded_json:
            self.recoveries += 1
            self.status = "done"
        else:
            self._done()

    def _end_at_name(self, *, stopped: bool) -> None:
        """Handle an output that ends before a call is certain. It is a call if it ends with a tool's name."""
        part = self._part[: len(self._part) - self._shape.header.held(self._part, 0, _ANYWHERE)]
        name, call_id = "", None
        if self._step is HeaderReader._header:
            name, call_id = self._shape.label([*self._parts, part.strip()], self._tools)
        if not stopped or name not in self._tools or not self._start(name, call_id):
            self._fail()
            return
        self._arguments("{}")
        self._end_call()
        self._done()

    def _outside(self, text: str, pos: int, final: bool) -> int:
        """Inside a section, before or after a call."""
        start = skip(text, pos, WHITESPACE)
        if start == len(text):
            return start
        shape = self._shape
        marker = shape.outside.at(text, start)
        if marker is None:
            if shape.outside.begins_at(text, start):
                if not final:
                    return start
                if not self.undecided:
                    return len(text)  # an end marker that is cut off or incomplete
            if self._calls and not self.undecided:
                self._done()
            else:
                self._fail()
            return start
        match marker.action:
            case "open":
                if not self.undecided:
                    self._undecide(marker.text)
                self._begin_header()
            case "stop":
                self.undecided = False  # a section may be empty
                self._raw.clear()
                self.status = "done"
            case _:
                self.recoveries += 1
        return start + len(marker.text)

    def _begin_header(self) -> None:
        self._parts = []
        self._part = ""
        self._step = HeaderReader._header

    def _header(self, text: str, pos: int, final: bool) -> int:
        shape = self._shape
        hit = shape.header.find(text, pos, _ANYWHERE, final=final, until=pos + MAX_NAME)
        end = hit[0] if hit is not None else len(text)
        if hit is None and not final:
            end -= shape.header.held(text, pos, _ANYWHERE)
        # Each part counts, so that empty ones have an end, too.
        room = MAX_NAME - len(self._part) - sum(map(len, self._parts)) - len(self._parts)
        if end - pos > room:
            self._fail()
            return pos + max(room, 0)
        self._part += text[pos:end]
        if hit is None:
            return end
        marker = hit[1]
        if marker.action in ("head", "swallow"):
            if marker.action == "head":
                self._parts.append(self._part.strip())
                self._part = ""
            return end + len(marker.text)
        name, call_id = shape.label([*self._parts, self._part.strip()], self._tools)
        if marker.text == '"' and name:
            self._encoded = EncodedArguments(marker.text)
            self._label = name, call_id
            self._step = HeaderReader._encoded_json
            return end + 1
        if marker.text == "[" or not self._start(name, call_id):
            self._fail()
            return end
        if marker.action == "open":
            self._value = JsonValue(shape.stops, special=True)
            self._step = HeaderReader._json
            return end
        self.recoveries += 1
        self._arguments("{}")
        self._end_call()
        return end

    def _json(self, text: str, pos: int, final: bool) -> int:
        value = self._value
        pos, piece = value.read(text, pos, final=final)
        self._arguments(piece)
        if value.done or value.interrupted:
            self.recoveries += bool(value.repairs) or value.interrupted
            self._arguments(value.closing() if value.interrupted else "")
            self._end_call()
        return pos

    def _encoded_json(self, text: str, pos: int, final: bool) -> int:
        """Inside arguments that were JSON-encoded twice."""
        stops = self._shape.stops
        hit = stops.find(text, pos, _ANYWHERE, final=final)
        limit = hit[0] if hit is not None else len(text)
        if hit is None and not final:
            limit -= stops.held(text, pos, _ANYWHERE)
        encoded = self._encoded
        length, piece = encoded.read(text[pos:limit], 0, final=final or hit is not None)
        ended = encoded.done or (hit is not None and pos + length == limit)
        if encoded.is_object or ended:
            begun = not self.undecided or (not encoded.failed and self._start(*self._label))
            if not begun:
                self._fail()
                return pos + length
        if encoded.failed:
            self._fail()
            return pos + length
        self._arguments(piece)
        if ended:
            self.recoveries += 1
            if not encoded.done and encoded.is_object:
                self._arguments(encoded.ending())
            elif not encoded.is_object:
                self._arguments("{}")
            self._end_call()
        return pos + length

    def _end_call(self) -> None:
        self._end()
        self._calls += 1
        self._step = HeaderReader._after_json

    def _after_json(self, text: str, pos: int, final: bool) -> int:
        """After a call's JSON."""
        start = skip(text, pos, WHITESPACE)
        if start == len(text):
            return start
        shape = self._shape
        marker = shape.after_json.at(text, start)
        if marker is None and shape.after_json.begins_at(text, start):
            return len(text) if final else start  # an end marker that is cut off or incomplete
        if marker is not None and not final and shape.after_json.may_grow(text, start, marker):
            return start
        if marker is None:
            self._leave()
            return start
        match marker.action:
            case "close":
                self._leave()
            case "stop":
                self.status = "done"
            case "open":
                self._leave()
                return start
            case _:
                pass
        return start + len(marker.text)

    def _leave(self) -> None:
        """End the call."""
        if self._shape.section:
            self._step = HeaderReader._outside
        else:
            self.status = "done"

    def _done(self) -> None:
        self.status = "done"
        self.unclosed = bool(self._shape.ends)
        self.recoveries += self.unclosed

    def _fail(self) -> None:
        self.status = "failed"
        self.unclosed = self._calls > 0 and bool(self._shape.ends)
