"""Reads calls with the name in a separate header."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gateway.sdk import TextDelta, ToolDefinition
from gateway_parsers.kit import labels
from gateway_parsers.kit.argument_types import arguments_schema
from gateway_parsers.kit.encoded import EncodedArguments
from gateway_parsers.kit.free_text import custom_arguments, is_custom, without_margins
from gateway_parsers.kit.header_shape import HeaderShape
from gateway_parsers.kit.json_value import JsonValue
from gateway_parsers.kit.keyword_arguments import keyword_arguments
from gateway_parsers.kit.markers import WHITESPACE, MarkerContext
from gateway_parsers.kit.reader import StepReader, skip
from gateway_parsers.kit.syntax import MAX_NAME, Accept

_ANYWHERE: Final = MarkerContext()
_FENCE: Final = re.compile(r"```[\w-]{0,16}[ \t]{0,16}(?=[\n{\"])")
_FENCE_SO_FAR: Final = re.compile(r"```[\w-]{0,16}[ \t]{0,16}|`{1,2}")
_NAME_INSIDE: Final = re.compile(
    r"""\{\s*"name"\s*:\s*"([^"\\\n]+)"\s*(?:,\s*("(?:arguments|parameters)"\s*:\s*(?=\{))?|(?=\}))"""
)
"""A name at the beginning of arguments. The second group precedes the arguments proper."""
_NAME_SO_FAR: Final = re.compile(
    r"""\{\s*(?:"|"n|"na|"nam|"name|"name"\s*|"name"\s*:\s*|"name"\s*:\s*"[^"\\\n]*|"""
    r""""name"\s*:\s*"[^"\\\n]+"\s*(?:,\s*(?:"\w*|"\w+"\s*|"\w+"\s*:\s*)?)?)?"""
)
_NOTHING: Final = ("null", "None", "[]")

_BRACKETS: Final = "[(" + WHITESPACE
"""What may precede arguments without being text."""


class HeaderReader(StepReader):
    """The reader of `HeaderShape`. A call starts with its arguments and ends with their JSON."""

    __slots__ = (
        "_calls",
        "_encoded",
        "_fenced",
        "_free",
        "_label",
        "_nameless",
        "_part",
        "_parts",
        "_shape",
        "_tools",
        "_value",
    )

    def __init__(
        self,
        shape: HeaderShape,
        marker: str,
        accept: Accept | None,
        tools: Mapping[str, ToolDefinition],
    ) -> None:
        named = marker == shape.call
        super().__init__(marker, accept, HeaderReader._header if named else HeaderReader._outside)
        self._shape = shape
        self._tools = tools
        self._calls = 0
        self._parts: list[str] = []
        self._part = ""
        self._label: tuple[str, str | None] = ("", None)
        """Name and id of a call whose arguments are not known to be any."""
        self._nameless = False
        """Whether the header has an id without a name, which may be in the arguments."""
        self._fenced = False
        """Whether the arguments are in a code block."""
        self._free: list[str] = []
        """Arguments that are no JSON, or what precedes the JSON."""
        self._value = JsonValue(shape.stops, special=True)
        self._encoded = EncodedArguments('"')

    def finish(self, *, stopped: bool) -> None:
        if self.status != "more":
            return
        if self.undecided and self._step in _IN_ARGUMENTS:
            self._end_in_arguments(stopped=stopped)
        elif self.undecided:
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

    def _end_in_arguments(self, *, stopped: bool) -> None:
        """Handle an output that ends in arguments that are no JSON, or before any."""
        if stopped:
            self._end_free()
            if self.status == "more":
                self._done()
            return
        if not self._start(*self._label):
            self._fail()
            return
        text = without_margins("".join(self._free))
        if text and is_custom(self._tools.get(self._label[0])):
            text = custom_arguments(text)[:-2]
        self._arguments(text)
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
            if not self._calls and self.undecided and text[start] not in shape.opens:
                self.recoveries += 1
                self._begin_header()  # the call's start marker is missing
                return start
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
        self._fenced = False
        self._free = []
        self._step = HeaderReader._header

    def _header(self, text: str, pos: int, final: bool) -> int:
        shape = self._shape
        hit = shape.header.find(text, pos, _ANYWHERE, final=final, until=pos + MAX_NAME)
        end = hit[0] if hit is not None else len(text)
        if hit is None and not final:
            end -= shape.header.held(text, pos, _ANYWHERE)
        # Each part counts, so that empty ones have an end, too.
        room = MAX_NAME - len(self._part) - sum(map(len, self._parts)) - len(self._parts)
        if self._parts and self._parts[-1] in shape.kinds:
            # A line that is too long for a name has no end.
            line = text.find("\n", pos, min(end, pos + max(room, 0) + 1))
            if line >= 0 and self._is_named(self._part + text[pos:line]):
                return line
        if end - pos > room:
            self._fail()
            return pos + max(room, 0)
        self._part += text[pos:end]
        if hit is None:
            return end
        marker = hit[1]
        if marker.action in ("head", "swallow"):
            if marker.text in shape.arguments_after and self._is_named(self._part):
                return end + len(marker.text)
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

    def _is_named(self, part: str) -> bool:
        """Whether the header, whose last part is `part`, has the name of a call. Only arguments follow then."""
        part = part.strip()
        if part in self._shape.kinds:
            return False
        self._label = self._shape.label([*self._parts, part], self._tools)
        self._nameless = bool(self._tools) and labels.is_nameless(part) and part not in self._tools
        if not self._label[0]:
            return False
        self._step = HeaderReader._before_arguments
        return True

    def _before_arguments(self, text: str, pos: int, final: bool) -> int:
        """Read between a header and its arguments."""
        start = skip(text, pos, WHITESPACE)
        if start == len(text):
            return start
        shape = self._shape
        custom = is_custom(self._tools.get(self._label[0]))
        if text[start] == "`" and (shape.fences or not custom):
            hit = _FENCE.match(text, start)
            if hit is not None:
                self._fenced = True
                return hit.end()
            begun = _FENCE_SO_FAR.match(text, start)
            if not final and begun is not None and begun.end() == len(text):
                return start
        marker = shape.header.at(text, start)
        if not final and shape.header.begins_at(text, start):
            return start
        if marker is not None and marker.action == "stop":
            self._end_free()
            return start
        if marker is not None and marker.action in ("head", "swallow"):
            self._parts.append("")
            if len(self._parts) > MAX_NAME:
                self._fail()
            return start + len(marker.text)
        if text[start] == "{":
            if self._nameless:
                return self._named_inside(text, start, final)
            return self._begin_json(start)
        if text[start] == '"' and not custom:
            self._encoded = EncodedArguments('"')
            self._step = HeaderReader._encoded_json
            return start + 1
        self._step = HeaderReader._free_text if custom else HeaderReader._before_json
        return start

    def _begin_json(self, pos: int) -> int:
        lead = "".join(self._free).strip(_BRACKETS)
        if not self._start(*self._label, lead=lead):
            self._fail()
            return pos
        self._value = JsonValue(self._shape.stops, special=True)
        self._step = HeaderReader._json
        return pos

    def _named_inside(self, text: str, pos: int, final: bool) -> int:
        """Read the beginning of an object that may have the name, if the header has only an id."""
        beginning = text[pos : pos + MAX_NAME]
        if not final and len(beginning) < MAX_NAME and _NAME_SO_FAR.fullmatch(beginning):
            return pos
        hit = _NAME_INSIDE.match(beginning)
        if hit is None or hit[1] not in self._tools:
            return self._begin_json(pos)
        self._label = self._shape.label([hit[1]], self._tools)
        self.recoveries += 1
        if hit[2]:
            return self._begin_json(pos + hit.end())
        pos = self._begin_json(pos)
        if self.status == "more":
            _, piece = self._value.read("{", 0, final=False)
            self._arguments(piece)
            pos += hit.end()
        return pos

    def _free_text(self, text: str, pos: int, final: bool) -> int:
        """Read a custom tool's arguments as they are."""
        return self._until_stop(text, pos, final)

    def _before_json(self, text: str, pos: int, final: bool) -> int:
        """Read text before arguments, which are then an object with quoted names."""
        at = text.find("{", pos)
        while at >= 0:
            inner = skip(text, at + 1, WHITESPACE)
            if inner == len(text):
                break
            if text[inner] in "\"'":
                break
            at = text.find("{", inner)
        limit = at if at >= 0 else len(text)
        reached = self._until_stop(text[:limit] if at >= 0 else text, pos, final)
        if sum(map(len, self._free)) > MAX_NAME:
            self._fail()
        elif self._step is HeaderReader._before_json and reached == limit < len(text):
            inner = skip(text, at + 1, WHITESPACE)
            if inner < len(text):
                return self._begin_json(at)
        return reached

    def _until_stop(self, text: str, pos: int, final: bool) -> int:
        """Collect arguments that are no JSON."""
        stops = self._shape.text_stops
        hit = stops.find(text, pos, _ANYWHERE, final=final)
        end = hit[0] if hit is not None else len(text)
        if hit is None and not final:
            end -= stops.held(text, pos, _ANYWHERE)
        self._free.append(text[pos:end])
        if hit is not None:
            self._end_free()
        return end

    def _end_free(self) -> None:
        """End arguments that are no JSON."""
        text = without_margins("".join(self._free))
        if self._fenced:
            text = without_margins(text.removesuffix("```"))
        custom = is_custom(self._tools.get(self._label[0]))
        nothing = not text or (not custom and text in _NOTHING)
        arguments = "{}" if nothing else custom_arguments(text) if custom else None
        if arguments is None:
            schema = arguments_schema(self._tools.get(self._label[0]))
            arguments = keyword_arguments(text, schema)
        if arguments is None or not self._start(*self._label):
            self._fail()
            return
        self.recoveries += 1
        self._arguments(arguments)
        self._end_call()

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
            if spare := encoded.spare:
                self.out.append(TextDelta(spare))
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
        if marker is None and (text[start] in "}])" or (self._fenced and text[start] == "`")):
            self.recoveries += 1
            return start + 1
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


_IN_ARGUMENTS: Final = (
    HeaderReader._before_arguments, HeaderReader._free_text, HeaderReader._before_json,
)  # fmt: skip
