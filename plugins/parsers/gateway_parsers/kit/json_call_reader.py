"""Reads calls written as JSON objects between markers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gateway.sdk import CallArgumentsDelta, TextDelta, ToolDefinition
from gateway_parsers.kit.argument_types import arguments_schema
from gateway_parsers.kit.coercion import quoted, string_value
from gateway_parsers.kit.encoded import EncodedArguments
from gateway_parsers.kit.free_text import custom_arguments, is_custom
from gateway_parsers.kit.json_shape import JsonShape
from gateway_parsers.kit.json_text import JsonStringReader
from gateway_parsers.kit.json_value import JsonValue
from gateway_parsers.kit.json_words import scalar
from gateway_parsers.kit.markers import WHITESPACE
from gateway_parsers.kit.names import offered_name
from gateway_parsers.kit.reader import Step, StepReader, skip
from gateway_parsers.kit.syntax import MAX_NAME, Accept

_DRIFTED_KEYS: Final = ("args", "params")
"""Keys that models write in place of `arguments`."""
_QUOTES: Final = "\"'"
_FENCE: Final = re.compile(r"`{0,3}[a-z]{0,16}")


class JsonCallReader(StepReader):
    """The reader of `JsonShape`. A call starts when its name is known and its arguments are an object, or missing.
    Arguments are emitted as they arrive."""

    __slots__ = (
        "_bare", "_begun", "_beside", "_buffer", "_calls", "_depth", "_doubled", "_encoded", "_free", "_have_arguments", "_is_beside", "_key", "_key_open",
        "_length", "_list", "_listed", "_name", "_scalar", "_some_arguments", "_spare", "_syntax", "_text", "_tools", "_value",
    )  # fmt: skip

    def __init__(
        self,
        syntax: JsonShape,
        marker: str,
        accept: Accept | None,
        tools: Mapping[str, ToolDefinition],
    ) -> None:
        super().__init__(marker, accept, JsonCallReader._before)
        self._syntax = syntax
        self._tools = tools
        self._bare = marker in syntax.bare
        self._list = marker.endswith("[")
        """Whether the calls are in a list."""
        self._calls = 0
        self._begin_object()
        if self._bare and marker.endswith("{"):
            self._step = JsonCallReader._member

    def finish(self, *, stopped: bool) -> None:
        if self.status != "more":
            return
        if self._step is JsonCallReader._after:
            self._done()
        elif self.undecided and not self._ends_after_name():
            self._fail()
        else:
            self.recoveries += 1
            if self._is_complete(stopped=stopped):
                self._end_call()
            self.status = "done"

    def _ends_after_name(self) -> bool:
        """Whether the output ended after the name of a call and before its arguments. Starts the call."""
        bare = self._bare and self._step is not JsonCallReader._member
        return self._name is not None and not bare and self._take_beside() and self._begin()

    def _is_complete(self, *, stopped: bool) -> bool:
        """Whether the last call of an ended output lacks only closing brackets."""
        step = self._step
        if step is JsonCallReader._arguments_value:
            if not stopped or not self._value.may_close or self._scalar is not None:
                return False
            self._emit(self._value.closing())
            return True
        if step is JsonCallReader._member:
            return self._have_arguments or stopped
        in_object = step is JsonCallReader._key_text or step is JsonCallReader._colon
        return self._have_arguments and in_object

    def _begin_object(self) -> None:
        self._depth = 0
        self._begun = False
        self._doubled = False
        self._listed = False
        """Whether the arguments are in a list that has no end yet."""
        self._name: str | None = None
        self._buffer: list[str] = []
        self._have_arguments = False
        self._some_arguments = False
        self._key = ""
        self._key_open = False
        self._length = 0
        self._value = JsonValue(self._syntax.stops)
        self._text = JsonStringReader()
        self._scalar: str | None = None
        self._encoded = EncodedArguments('"')
        self._spare = ""
        """Text after the object in arguments that are a string. It becomes text after the call."""
        self._free: list[str] = []
        """The JSON text of arguments that are read whole before it is known what they are."""
        self._beside: dict[str, list[str]] = {}
        """Members beside the name that may be the arguments, as pieces of JSON."""
        self._is_beside = False
        """Whether the open member is one of them."""

    @property
    def _is_custom(self) -> bool:
        return is_custom(self._tools.get(self._name or ""))

    def _before(self, text: str, pos: int, final: bool) -> int:
        pos = skip(text, pos, WHITESPACE)
        if pos == len(text):
            return pos
        if text[pos] == "{":
            self._begin_object()
            self._step = JsonCallReader._member
            return pos + 1
        if text[pos] == "[":
            if self._bare and self._list:
                self._fail()
                return pos
            self._list = True
            return pos + 1
        if self._bare:
            self._fail()
            return pos
        if text[pos] == "`":
            return self._fence(text, pos, final)
        if text[pos] == "]":
            self._step = JsonCallReader._after  # an empty list
            return pos + 1
        marker = self._syntax.stops.at(text, pos)
        if marker is not None and marker.text in self._syntax.starts:
            self.recoveries += 1
            return pos + len(marker.text)
        if not final and self._syntax.stops.begins_at(text, pos):
            return pos
        self._fail()
        return pos

    def _fence(self, text: str, pos: int, final: bool) -> int:
        """Skip the fence of a code block around calls."""
        hit = _FENCE.match(text, pos)
        end = hit.end() if hit is not None else pos
        if end == len(text) and not final:
            return pos
        if end - pos < 3 or end == len(text):
            self._fail()
            return pos
        self.recoveries += 1
        return end

    def _member(self, text: str, pos: int, final: bool) -> int:
        pos = skip(text, pos, WHITESPACE + ",")
        if pos == len(text):
            return pos
        if text[pos] in _QUOTES:
            self._begin_text(text[pos], JsonCallReader._key_text)
            return pos + 1
        if text[pos] == "{" and self._is_doubled():
            self.recoveries += 1
            self._doubled = True
            return pos + 1
        if text[pos] == "]" and self._listed:
            self._listed = False
            return pos + 1
        if text[pos] != "}":
            return self._broken(pos)
        if self._depth:
            self._depth -= 1
            return pos + 1
        if self._name is None or not self._take_beside() or not self._begin():
            return self._broken(pos)
        self._end_call()
        return pos + 1

    def _take_beside(self) -> bool:
        """Make the members beside the name the arguments, if there are no others. Returns False if the tool has no such
        parameters."""
        beside = {} if self._have_arguments else self._beside
        if not beside:
            return True
        tool = self._tools.get(self._name or "")
        known = arguments_schema(tool).resolved().get("properties")
        if not is_custom(tool) and isinstance(known, dict) and known.keys().isdisjoint(beside):
            return False
        self.recoveries += 1
        members = (f"{quoted(key)}: {''.join(parts)}" for key, parts in beside.items())
        self._have_arguments = True
        in_value = self._step is JsonCallReader._other or self._step is JsonCallReader._value_start
        self._emit("{" + ", ".join(members) + "}" * (not in_value))  # in a value if it is cut off
        return True

    def _is_doubled(self) -> bool:
        """Whether a second brace at the start of a call is ignored. Models learn it from templates with `{{`."""
        return not (self._bare or self._doubled or self._key or self._depth)

    def _key_text(self, text: str, pos: int, final: bool) -> int:
        pos, fits = self._short_text(text, pos, final)
        if not fits:
            return self._broken(pos)
        if self._text.done:
            if self._syntax.name_is_key and self._name is None:
                return self._named(self._key, pos, then_colon=True)
            known = self._key in self._syntax.first_keys or (
                self._is_custom and self._key == "input"
            )
            if self._bare and self.undecided and not known:
                return self._broken(pos)
            self._step = JsonCallReader._colon
        return pos

    def _colon(self, text: str, pos: int, final: bool) -> int:
        pos = skip(text, pos, WHITESPACE)
        if pos == len(text):
            return pos
        if text[pos] != ":":
            return self._broken(pos)
        self._step = JsonCallReader._value_start
        return pos + 1

    def _value_start(self, text: str, pos: int, final: bool) -> int:
        pos = skip(text, pos, WHITESPACE)
        if pos == len(text):
            return pos
        syntax = self._syntax
        is_text = text[pos] in _QUOTES
        wrapped = self._key in syntax.wrapper_keys and not syntax.name_is_key
        if self._name is None and (self._key in syntax.name_keys or (wrapped and is_text)):
            if not is_text:
                return self._broken(pos)
            self._begin_text(text[pos], JsonCallReader._name_text)
            return pos + 1
        if wrapped and text[pos] == "{":
            self._depth += 1
            self._step = JsonCallReader._member
            return pos + 1
        self._value = JsonValue(syntax.stops)
        is_arguments = self._key in syntax.argument_keys or (
            self._key in _DRIFTED_KEYS and text[pos] == "{" and not self._bare
        )
        if self._have_arguments or not (syntax.name_is_key or is_arguments):
            self._step = JsonCallReader._other
            self._scalar = None if text[pos] in "{[" or is_text else ""
            self._is_beside = not self._have_arguments and self._key not in syntax.ignored_keys
            if self._is_beside:
                self._beside[self._key] = []  # of several members with one key the last counts
        elif is_text and (self._name is None or self._is_custom):
            self._step = JsonCallReader._free_arguments
            self._have_arguments = True
            self._value = JsonValue(syntax.stops, member=True)
        elif is_text:
            self._step = JsonCallReader._encoded_arguments
            self._have_arguments = True
            self._encoded = EncodedArguments(text[pos])
            return pos + 1
        elif text[pos] == "[" and self._is_custom:
            self._step = JsonCallReader._free_arguments
            self._have_arguments = True
        elif text[pos] == "[":
            self._step = JsonCallReader._in_list
            return pos + 1
        elif text[pos] in "},":
            self.recoveries += 1  # a missing value
            self._have_arguments = True
            self._step = JsonCallReader._member
        else:
            self._step = JsonCallReader._arguments_value
            self._have_arguments = True
            self._scalar = "" if text[pos] != "{" else None
        return pos

    def _in_list(self, text: str, pos: int, final: bool) -> int:
        """Inside a list in place of the arguments, which may be empty or have them as its only item."""
        pos = skip(text, pos, WHITESPACE)
        if pos == len(text):
            return pos
        if text[pos] not in "]{":
            return self._broken(pos)
        self.recoveries += 1
        self._have_arguments = True
        if text[pos] == "{":
            self._listed = True
            self._scalar = None
            self._step = JsonCallReader._arguments_value
            return pos
        self._step = JsonCallReader._member
        return pos + 1

    def _begin_text(self, quote: str, step: Step) -> None:
        """Start a key or a name; `step` reads it."""
        self.recoveries += quote == "'"
        self._step = step
        self._key = ""
        self._length = 0
        self._text = JsonStringReader(quote)

    def _name_text(self, text: str, pos: int, final: bool) -> int:
        pos, fits = self._short_text(text, pos, final)
        if not fits:
            return self._broken(pos)
        if not self._text.done:
            return pos
        return self._named(self._key, pos)

    def _short_text(self, text: str, pos: int, final: bool) -> tuple[int, bool]:
        """Read more of a key or a name. False if it exceeds `MAX_NAME` characters or one line."""
        limit = pos + MAX_NAME - self._length
        line = text.find("\n", pos, limit)
        limit = line if line >= 0 else limit
        whole = limit >= len(text)
        length, piece = self._text.read(text[pos:limit], 0, final=final and whole)
        self._length += length
        self._key += piece
        return pos + length, self._text.done or whole

    def _named(self, name: str, pos: int, *, then_colon: bool = False) -> int:
        name = offered_name(name.strip(), self._tools)
        if name and self._accept is not None and self._accept(name) is None:
            if not self._have_arguments:
                self._name = name
                self._step = JsonCallReader._evidence
                return pos
            self._accept = None
        if not name or (self._accept is not None and not self._accept(name)):
            return self._broken(pos)
        self._name = name
        if self._have_arguments:
            self._begin()
        self._step = JsonCallReader._colon if then_colon else JsonCallReader._member
        return pos

    def _begin(self) -> bool:
        """Start the call, if it has not started. Returns False if its name is not acceptable."""
        if self._begun:
            return True
        if self._free and not self._decide():
            return False
        make_id = self._syntax.make_id
        if not self._start(self._name or "", make_id() if make_id is not None else None):
            return False
        self._begun = True
        for part in self._buffer:
            self._arguments(part)
        self._buffer.clear()
        return True

    def _decide(self) -> bool:
        """Read arguments whose tool was not known. Returns False if the tool cannot take them."""
        written = "".join(self._free)
        self._free.clear()
        if self._is_custom:
            self._buffer.append(custom_arguments(string_value(written) or "", decoded=True))
            self._some_arguments = True
            return True
        encoded = EncodedArguments(written[0])
        end, as_json = encoded.read(written, 1, final=True)
        if encoded.failed:
            return False
        if as_json:
            self._buffer.append(as_json)
            self._some_arguments = True
        self.recoveries += bool(encoded.repairs)
        self._spare = encoded.spare
        return end == len(written)

    def _evidence(self, text: str, pos: int, final: bool) -> int:
        """After the name of a tool that was not offered: it is a call if arguments follow."""
        if not self._key_open:
            pos = skip(text, pos, WHITESPACE + ",")
            if pos == len(text):
                return pos
            if text[pos] not in _QUOTES:
                return self._broken(pos)
            self._key_open = True
            self._begin_text(text[pos], JsonCallReader._evidence)
            return pos + 1
        pos, fits = self._short_text(text, pos, final)
        if fits and not self._text.done:
            return pos
        self._key_open = False
        self._accept = None
        if not fits or self._key not in self._syntax.argument_keys:
            return self._broken(pos)
        self._step = JsonCallReader._colon
        return pos

    def _arguments_value(self, text: str, pos: int, final: bool) -> int:
        pos, piece = self._value.read(text, pos, final=final)
        if self._scalar is None:
            self._emit(piece)
        else:
            self._scalar += piece  # a number or a literal, held until complete
        return self._value_end(pos)

    def _encoded_arguments(self, text: str, pos: int, final: bool) -> int:
        encoded = self._encoded
        pos, as_json = encoded.read(text, pos, final=final)
        if encoded.failed:
            return self._broken(pos)
        self._emit(as_json)
        if encoded.done:
            self.recoveries += bool(encoded.repairs)
            self._spare = encoded.spare
            self._step = JsonCallReader._member
        return pos

    def _free_arguments(self, text: str, pos: int, final: bool) -> int:
        """Read arguments that are no object."""
        value = self._value
        pos, piece = value.read(text, pos, final=final)
        self._free.append(piece)
        if not value.done and not value.interrupted:
            return pos
        self.recoveries += bool(value.repairs)
        if value.interrupted:
            self._free.append(value.ending())
        if self._name is not None:
            self._free_text()
        self._step = JsonCallReader._member
        return self._broken(pos) if value.interrupted else pos

    def _free_text(self) -> None:
        """Send a custom tool's arguments that are no object as its text."""
        written = "".join(self._free)
        self._free.clear()
        text = string_value(written)
        self._emit(custom_arguments(written if text is None else text, decoded=text is not None))

    def _other(self, text: str, pos: int, final: bool) -> int:
        pos, piece = self._value.read(text, pos, final=final)
        value = self._value
        if self._scalar is not None:
            self._scalar += piece
        ends = value.done or value.interrupted
        if self._is_beside:
            beside = self._beside[self._key]
            if self._scalar is None:
                beside.append(piece if not value.interrupted else piece + value.ending())
            elif ends:
                beside.append(scalar(self._scalar) if self._scalar else "null")
        if ends:
            self._scalar = None
        return self._value_end(pos)

    def _value_end(self, pos: int) -> int:
        value = self._value
        if not value.done and not value.interrupted:
            return pos
        self.recoveries += bool(value.repairs)
        if self._step is JsonCallReader._arguments_value:
            if self._scalar is None:
                self._emit(value.closing() if value.interrupted else "")
            else:
                as_json = scalar(self._scalar)
                if as_json != "null" and self._is_custom:
                    self._emit(custom_arguments(self._scalar))
                elif as_json != "null":
                    return self._broken(pos)
                else:
                    self.recoveries += as_json != self._scalar  # null means no arguments
        self._step = JsonCallReader._member
        return self._broken(pos) if value.interrupted else pos

    def _after(self, text: str, pos: int, final: bool) -> int:
        pos = skip(text, pos, WHITESPACE)
        if pos == len(text):
            return pos
        char = text[pos]
        stops = self._syntax.stops
        marker = stops.at(text, pos)
        if marker is not None and not final and stops.may_grow(text, pos, marker):
            return pos
        if marker is not None:
            pos += len(marker.text)
            if marker.text in (self._syntax.end, *self._syntax.more_ends):
                self.status = "done"
            else:
                self.recoveries += bool(self._syntax.end)
                self._undecide(marker.text)
                self._list = False
                self._step = JsonCallReader._before
            return pos
        if stops.begins_at(text, pos):
            return len(text) if final else pos  # an end marker that is cut off
        enclosed = self._list or (bool(self._syntax.end) and not self._bare)
        if char == ";" or (enclosed and char in "]},"):
            self.recoveries += char == "}"
            self._list = self._list and char != "]"
            return pos + 1
        if char == "}" and self._bare:
            self.recoveries += 1
            return pos + 1
        if char == "`" and enclosed and not self._bare:
            self.recoveries += 1
            return pos + 1  # the fence of a code block around the calls
        if char == "," and self._bare:
            self._undecide(",")
            self._step = JsonCallReader._before
            return pos + 1
        if char == "{" and (self._list or not self._bare):
            self._undecide("")
            self._step = JsonCallReader._before
            return pos
        self._done()
        return pos

    def _done(self) -> None:
        self.status = "done"
        self.unclosed = bool(self._syntax.end) and not self._bare
        self.recoveries += self.unclosed

    def _broken(self, pos: int) -> int:
        """Handle unreadable text at `pos`."""
        if self.undecided:
            self._fail()
            return pos
        self.recoveries += 1
        self._end_call()
        return pos

    def _fail(self) -> None:
        self.status = "failed"
        self.unclosed = self._calls > 0 and bool(self._syntax.end)

    def _end_call(self) -> None:
        if not self._some_arguments:
            self._arguments("{}")
        self._end()
        if self._spare:
            self.recoveries += 1
            self.out.append(TextDelta(self._spare))
        self._calls += 1
        self._step = JsonCallReader._after

    def _emit(self, text: str) -> None:
        if not text:
            return
        self._some_arguments = True
        if self._begun or (self._name is not None and self._begin()):
            self.out.append(CallArgumentsDelta(text))
        else:
            self._buffer.append(text)
