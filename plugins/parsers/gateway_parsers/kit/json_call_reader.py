"""Reading calls written as JSON objects between markers."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum, auto
from functools import cached_property
from typing import ClassVar, Literal

from msgspec import Struct

from gateway.deltas import CallArgumentsDelta, CallEnded, CallStarted, Delta
from gateway_parsers.kit.json_value import JsonText, JsonValue
from gateway_parsers.kit.markers import WHITESPACE, Marker, MarkerSet
from gateway_parsers.kit.syntax import MAX_NAME, Accept


class JsonShape(Struct, frozen=True, kw_only=True, dict=True):
    """How calls of this kind are marked and keyed. One object, several or a list of them stand behind a start marker."""

    start: str
    end: str
    """Empty: nothing ends the calls but the end of their JSON."""
    name_keys: tuple[str, ...] = ("name",)
    argument_keys: tuple[str, ...] = ("arguments", "parameters")
    wrapper_keys: tuple[str, ...] = ("function",)
    """Keys under which name and arguments may stand one level deeper; a string there is the name."""

    @property
    def starts(self) -> tuple[str, ...]:
        return (self.start,)

    @property
    def ends(self) -> tuple[str, ...]:
        return (self.end,) if self.end else ()

    @cached_property
    def stops(self) -> MarkerSet:
        """What ends a call's JSON early where it stands outside a string."""
        return MarkerSet(Marker(text, "stop") for text in (*self.starts, *self.ends))


class _State(Enum):
    BEFORE = auto()  # a call's object, or a list of them
    MEMBER = auto()  # a key, or the end of the object
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    NAME = auto()
    ARGUMENTS = auto()
    ENCODED = auto()  # arguments written as a JSON string
    OTHER = auto()  # the value of a key that says nothing to us
    AFTER = auto()  # behind an object: the end marker, or one more object


class JsonCallReader:
    """The reader of `JsonShape`. A call starts when its name is known; its arguments go out as they come."""

    __slots__ = (
        "_accept",
        "_buffer",
        "_calls",
        "_depth",
        "_have_arguments",
        "_is_object",
        "_key",
        "_name",
        "_raw",
        "_scalar",
        "_some_arguments",
        "_state",
        "_syntax",
        "_text",
        "_value",
        "out",
        "recoveries",
        "status",
        "unclosed",
        "undecided",
    )

    def __init__(self, syntax: JsonShape, marker: str, accept: Accept | None) -> None:
        self.status: Literal["more", "done", "failed"] = "more"
        self.undecided = True
        self.unclosed = False
        self.recoveries = 0
        self.out: list[Delta] = []
        self._syntax = syntax
        self._accept = accept
        self._raw = [marker]
        self._calls = 0
        self._state = _State.BEFORE
        self._begin_object()

    @property
    def raw(self) -> str:
        return "".join(self._raw)

    def read(self, text: str, pos: int, *, final: bool) -> int:
        end = len(text)
        while pos < end and self.status == "more":
            state, undecided = self._state, self.undecided
            reached = self._steps[state](self, text, pos, final)
            if undecided and self.undecided:
                self._raw.append(text[pos:reached])
            if reached == pos and self._state is state:
                break
            pos = reached
        return pos

    def finish(self) -> None:
        if self.status != "more":
            return
        if self.undecided:
            self._fail()
        elif self._state is _State.AFTER:
            self._done()
        else:
            self.recoveries += 1
            if self._have_arguments and self._state in (_State.MEMBER, _State.KEY, _State.COLON):
                self._end_call()  # only the object's own bracket is missing
            self.status = "done"

    def _begin_object(self) -> None:
        self._depth = 0
        self._name: str | None = None
        self._buffer: list[str] = []
        self._have_arguments = False
        self._some_arguments = False
        self._key = ""
        self._value = JsonValue(self._syntax.stops)
        self._text = JsonText()
        self._scalar: str | None = None
        self._is_object: bool | None = None

    def _before(self, text: str, pos: int, final: bool) -> int:
        pos = _skip(text, pos, WHITESPACE)
        if pos == len(text):
            return pos
        if text[pos] == "{":
            self._begin_object()
            self._state = _State.MEMBER
            return pos + 1
        if text[pos] == "[":
            return pos + 1
        if text[pos] == "]":
            self._state = _State.AFTER  # a list of no calls
            self._decide()
            return pos + 1
        marker = self._syntax.stops.at(text, pos)
        if marker is not None and marker.text == self._syntax.start:
            self.recoveries += 1
            self._raw.clear()
            return pos + len(marker.text)
        if not final and self._syntax.stops.begins_at(text, pos):
            return pos
        self._fail()
        return pos

    def _member(self, text: str, pos: int, final: bool) -> int:
        pos = _skip(text, pos, WHITESPACE + ",")
        if pos == len(text):
            return pos
        if text[pos] == '"':
            self._state = _State.KEY
            self._key = ""
            self._text = JsonText()
            return pos + 1
        if text[pos] != "}":
            return self._broken(pos)
        if self._depth:
            self._depth -= 1
            return pos + 1
        if self._name is None:
            return self._broken(pos)
        self._end_call()
        return pos + 1

    def _key_text(self, text: str, pos: int, final: bool) -> int:
        pos, piece = self._text.read(text, pos, final=final)
        self._key += piece
        if len(self._key) > MAX_NAME:
            return self._broken(pos)
        if self._text.done:
            self._state = _State.COLON
        return pos

    def _colon(self, text: str, pos: int, final: bool) -> int:
        pos = _skip(text, pos, WHITESPACE)
        if pos == len(text):
            return pos
        if text[pos] != ":":
            return self._broken(pos)
        self._state = _State.VALUE
        return pos + 1

    def _value_start(self, text: str, pos: int, final: bool) -> int:
        pos = _skip(text, pos, WHITESPACE)
        if pos == len(text):
            return pos
        syntax = self._syntax
        quoted = text[pos] == '"'
        wrapped = self._key in syntax.wrapper_keys
        if self._name is None and (self._key in syntax.name_keys or (wrapped and quoted)):
            if not quoted:
                return self._broken(pos)
            self._state = _State.NAME
            self._key = ""
            self._text = JsonText()
            return pos + 1
        if wrapped and text[pos] == "{":
            self._depth += 1
            self._state = _State.MEMBER
            return pos + 1
        self._value = JsonValue(syntax.stops)
        if self._key not in syntax.argument_keys or self._have_arguments:
            self._state = _State.OTHER
        elif quoted:
            self._state = _State.ENCODED
            self._have_arguments = True
            self._is_object = None
            self._text = JsonText()
            return pos + 1
        else:
            self._state = _State.ARGUMENTS
            self._have_arguments = True
            self._scalar = "" if text[pos] not in "{[" else None
        return pos

    def _name_text(self, text: str, pos: int, final: bool) -> int:
        pos, piece = self._text.read(text, pos, final=final)
        self._key += piece
        if len(self._key) > MAX_NAME or "\n" in self._key:
            return self._broken(pos)
        if not self._text.done:
            return pos
        name = self._key.strip()
        if not name or (self._accept is not None and not self._accept(name)):
            return self._broken(pos)
        self._name = name
        self._decide()
        self.out.append(CallStarted(name))
        for part in self._buffer:
            self.out.append(CallArgumentsDelta(part))
        self._buffer.clear()
        self._state = _State.MEMBER
        return pos

    def _arguments(self, text: str, pos: int, final: bool) -> int:
        pos, piece = self._value.read(text, pos, final=final)
        if self._scalar is None:
            self._emit(piece)
        else:
            self._scalar += piece  # a number or a word; null means none
            if not "null".startswith(self._scalar):
                self._emit(self._scalar)
                self._scalar = None
        return self._value_end(pos)

    def _encoded_arguments(self, text: str, pos: int, final: bool) -> int:
        pos, said = self._text.read(text, pos, final=final)
        if self._is_object is None:
            said = said.lstrip()
            if said:
                self._is_object = said[0] == "{"
                if not self._is_object:
                    self._emit('"')
        if self._is_object:
            self._emit(said)
        elif self._is_object is False:
            quoted = json.dumps(said, ensure_ascii=False)
            self._emit(quoted[1:] if self._text.done else quoted[1:-1])
        if self._text.done:
            self._state = _State.MEMBER
        return pos

    def _other(self, text: str, pos: int, final: bool) -> int:
        pos, _ = self._value.read(text, pos, final=final)
        return self._value_end(pos)

    def _value_end(self, pos: int) -> int:
        value = self._value
        if not value.done and not value.interrupted:
            return pos
        self.recoveries += bool(value.repairs)
        if self._state is _State.ARGUMENTS:
            if self._scalar is None:
                self._emit(value.closing() if value.interrupted else "")
            elif self._scalar != "null":
                self._emit(self._scalar)  # cut off inside the word
        self._state = _State.MEMBER
        return self._broken(pos) if value.interrupted else pos

    def _after(self, text: str, pos: int, final: bool) -> int:
        pos = _skip(text, pos, WHITESPACE)
        if pos == len(text):
            return pos
        char = text[pos]
        marker = self._syntax.stops.at(text, pos)
        if marker is not None:
            pos += len(marker.text)
            if marker.text == self._syntax.end:
                self.status = "done"
            else:
                self.recoveries += bool(self._syntax.end)
                self._undecide(marker.text)
                self._state = _State.BEFORE
            return pos
        if self._syntax.stops.begins_at(text, pos):
            return len(text) if final else pos  # an end marker that was cut off
        if char in "]},;":
            self.recoveries += char == "}"
            return pos + 1
        if char == "{":
            self._undecide("")
            self._state = _State.BEFORE
            return pos
        self._done()
        return pos

    def _done(self) -> None:
        self.status = "done"
        self.unclosed = bool(self._syntax.end)
        self.recoveries += self.unclosed

    def _broken(self, pos: int) -> int:
        """What stands at `pos` cannot be read."""
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
            self.out.append(CallArgumentsDelta("{}"))
        self.out.append(CallEnded())
        self._calls += 1
        self._state = _State.AFTER

    def _decide(self) -> None:
        self.undecided = False
        self._raw.clear()

    def _undecide(self, raw: str) -> None:
        self.undecided = True
        self._raw.append(raw)

    def _emit(self, text: str) -> None:
        if not text:
            return
        self._some_arguments = True
        if self._name is None:
            self._buffer.append(text)
        else:
            self.out.append(CallArgumentsDelta(text))

    _steps: ClassVar[dict[_State, Callable[[JsonCallReader, str, int, bool], int]]] = {
        _State.BEFORE: _before,
        _State.MEMBER: _member,
        _State.KEY: _key_text,
        _State.COLON: _colon,
        _State.VALUE: _value_start,
        _State.NAME: _name_text,
        _State.ARGUMENTS: _arguments,
        _State.ENCODED: _encoded_arguments,
        _State.OTHER: _other,
        _State.AFTER: _after,
    }


def _skip(text: str, pos: int, chars: str) -> int:
    end = len(text)
    while pos < end and text[pos] in chars:
        pos += 1
    return pos
