"""Reads calls in Python syntax: `[f(a=1, b="x"), g()]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from gateway.sdk import TextDelta, ToolDefinition
from gateway.sdk.json_schema import SchemaNode
from gateway_parsers.kit.argument_types import arguments_schema, member_node
from gateway_parsers.kit.coercion import quoted
from gateway_parsers.kit.literal_syntax import PYTHON, LiteralSyntax
from gateway_parsers.kit.literals import LiteralValue
from gateway_parsers.kit.marked_calls import MarkedCalls
from gateway_parsers.kit.markers import WHITESPACE, Marker, MarkerSet
from gateway_parsers.kit.names import offered_name
from gateway_parsers.kit.reader import StepReader, skip
from gateway_parsers.kit.syntax import MAX_NAME, Accept

_NAME_END: Final = re.compile(r"[^\w.\-]")
_KEY_END: Final = re.compile(r"[^\w]")


class PythonShape(MarkedCalls, frozen=True, kw_only=True):
    """Markup of the calls, which are in a list or consecutive."""

    @cached_property
    def stops(self) -> MarkerSet:
        return MarkerSet(Marker(text, "stop") for text in self.ends)

    @cached_property
    def literals(self) -> LiteralSyntax:
        return replace(PYTHON, stops=self.stops)


class PythonReader(StepReader):
    """The reader of `PythonShape`. A call starts at its parenthesis. Arguments are converted to JSON as they arrive."""

    __slots__ = (
        "_arguments_begun", "_bare", "_calls", "_key", "_key_ended", "_list", "_name_text", "_node", "_position", "_shape", "_tools",
        "_value", "_whole", "_words",
    )  # fmt: skip

    def __init__(
        self,
        shape: PythonShape,
        marker: str,
        accept: Accept | None,
        tools: Mapping[str, ToolDefinition],
    ) -> None:
        super().__init__(marker, accept, PythonReader._before)
        self._shape = shape
        self._tools = tools
        self._bare = marker in shape.bare
        self._list = marker.endswith("[")
        self._calls = 0
        self._name_text = ""
        self._begin_call(SchemaNode({}))

    def _begin_call(self, node: SchemaNode) -> None:
        self._node = node
        self._key = ""
        self._key_ended = False
        """Whether white space follows the name of an argument."""
        self._position = 0
        self._arguments_begun = False
        self._whole = False
        self._words: list[str] = []
        """Text after an object that holds all arguments."""
        self._value = LiteralValue(self._shape.literals, None)

    def finish(self, *, stopped: bool) -> None:
        if self.status != "more":
            return
        if self._step is PythonReader._after:
            self._done()
        elif self.undecided and self._step is PythonReader._argument and not self._key:
            self._begin()
            if stopped:
                self._end_call()
            self.recoveries += 1
            self.status = "done"
        elif self.undecided:
            self._fail()
        else:
            self.recoveries += 1
            if stopped and self._step is PythonReader._in_value and self._value.may_close:
                self._arguments(self._value.closing())  # only closing brackets are missing
                self._end_call()
            if stopped and self._step is PythonReader._argument and not self._key:
                self._end_call()
            self.status = "done"

    def _before(self, text: str, pos: int, final: bool) -> int:
        """Read before a call's name."""
        start = skip(text, pos, WHITESPACE)
        if start == len(text):
            return start
        char = text[start]
        if char == "[" and not self._list and not self._bare:
            self._list = True
            return start + 1
        if char.isalpha() or char == "_":
            self._name_text = ""
            self._step = PythonReader._name
            return start
        if char == "]" and self._list and not self._bare:
            self._step = PythonReader._after  # an empty list
            return start
        self._fail()
        return start

    def _name(self, text: str, pos: int, final: bool) -> int:
        hit = _NAME_END.search(text, pos)
        end = hit.start() if hit is not None else len(text)
        room = MAX_NAME - len(self._name_text)
        if end - pos > room:
            self._fail()
            return pos + room
        self._name_text += text[pos:end]
        if hit is not None:
            self._step = PythonReader._bracket
        return end

    def _bracket(self, text: str, pos: int, final: bool) -> int:
        start = skip(text, pos, " \t")
        if start == len(text):
            return start
        if text[start] != "(":
            self._fail()
            return start
        self._name_text = offered_name(self._name_text, self._tools)
        if self._accept is not None and self._accept(self._name_text) is None:
            self._step = PythonReader._evidence
            return start + 1
        if not self._accepts(self._name_text):
            self._fail()
            return start
        self._begin_call(arguments_schema(self._tools.get(self._name_text)))
        self._step = PythonReader._argument
        return start + 1

    def _begin(self) -> None:
        """Start the open call, if it has not started."""
        if self.undecided:
            self._accept = None
            self._start(self._name_text)

    def _evidence(self, text: str, pos: int, final: bool) -> int:
        """After the parenthesis of a tool that was not offered: it is a call if a named argument follows."""
        if not self._key:
            pos = skip(text, pos, WHITESPACE)
        hit = _KEY_END.search(text, pos)
        end = hit.start() if hit is not None else len(text)
        room = MAX_NAME - len(self._key)
        if end - pos > room:
            self._fail()
            return pos + room
        self._key += text[pos:end]
        if hit is None:
            return end
        if text[end] != "=" or not self._key.isidentifier():
            self._fail()
            return end
        self._accept = None
        self._start(self._name_text)
        key = self._key
        self._begin_call(arguments_schema(self._tools.get(self._name_text)))
        self._begin_value(key)
        return end + 1

    def _argument(self, text: str, pos: int, final: bool) -> int:
        """Read before an argument, or within its name."""
        if not self._key:
            pos = skip(text, pos, WHITESPACE + ",")
            if pos == len(text):
                return pos
            char = text[pos]
            if char == ")":
                self._end_call()
                return pos + 1
            if self._shape.stops.at(text, pos) is not None:
                return self._broken(pos)
            if not final and self._shape.stops.begins_at(text, pos):
                return pos
            if not (char.isalpha() or char == "_"):
                return self._positional(text, pos)
            self._key_ended = False
        if not self._key_ended:
            hit = _KEY_END.search(text, pos)
            end = hit.start() if hit is not None else len(text)
            room = MAX_NAME - len(self._key)
            if end - pos > room:
                return self._broken(pos + room, self._key + text[pos : pos + room])
            self._key += text[pos:end]
            pos = end
            if hit is None:
                return pos
            self._key_ended = True
        start = skip(text, pos, " \t")
        if start == len(text):
            return start
        if text[start] in "=:":
            self._begin_value(self._key)
            return start + 1
        word, self._key = self._key, ""
        if text[start] not in ",)":
            return self._broken(start, word)
        self._begin_value(self._next_name())
        _, as_json = self._value.read(word + ",", 0, final=False)
        self._arguments(as_json)
        self._step = PythonReader._argument
        return start

    def _positional(self, text: str, pos: int) -> int:
        if text.startswith("*", pos):
            return pos + 1
        if text[pos] == "{" and not self._arguments_begun:
            self._begin()
            self._whole = True
            self._arguments_begun = True
            self._value = LiteralValue(replace(self._shape.literals, sets=False), self._node)
            self._step = PythonReader._in_value
            return pos
        if text[pos] in "]}":
            return self._broken(pos)
        self._begin_value(self._next_name())
        return pos

    def _next_name(self) -> str:
        """The name of a positional argument, from the order of the tool's parameters."""
        names = list(self._node.resolved().get("properties") or ())
        index = self._position
        return names[index] if index < len(names) else f"argument_{index + 1}"

    def _begin_value(self, key: str) -> None:
        if self._whole:
            self.recoveries += 1
        self._begin()
        self._arguments(f"{', ' if self._arguments_begun else '{'}{quoted(key)}: ")
        self._arguments_begun = True
        self._position += 1
        self._key = ""
        self._value = LiteralValue(self._shape.literals, member_node(self._node, key))
        self._step = PythonReader._in_value

    def _in_value(self, text: str, pos: int, final: bool) -> int:
        pos, as_json = self._value.read(text, pos, final=final)
        self._arguments(as_json)
        if self._value.interrupted:
            self._arguments(self._value.closing())
            return self._broken(pos)
        if self._value.done:
            self.recoveries += bool(self._value.repairs)
            self._step = PythonReader._argument if not self._whole else PythonReader._rest
        return pos

    def _rest(self, text: str, pos: int, final: bool) -> int:
        """After one object that holds all arguments: the rest of the parentheses is text."""
        end = text.find(")", pos)
        self._words.append(text[pos : end if end >= 0 else len(text)])
        if end < 0:
            return len(text)
        rest = "".join(self._words).strip(WHITESPACE + ",")
        self._end_call()
        if rest:
            self.recoveries += 1
            self.out.append(TextDelta(rest))
        return end + 1

    def _end_call(self) -> None:
        self._begin()
        if not self._whole:
            self._arguments("}" if self._arguments_begun else "{}")
        self._end()
        self._calls += 1
        if self._list:
            self._accept = None  # a list that has begun with a call is one of calls
        self._step = PythonReader._after

    def _broken(self, pos: int, word: str = "") -> int:
        """Handle unreadable text at `pos`, after the beginning `word` of an argument."""
        if self.undecided:
            self._fail()  # its arguments are not known
            return pos
        self.recoveries += 1
        self._end_call()
        if word:
            self.out.append(TextDelta(word + " "))
        return pos

    def _after(self, text: str, pos: int, final: bool) -> int:
        """Read after a call."""
        start = skip(text, pos, WHITESPACE)
        if start == len(text):
            return start
        char = text[start]
        stops = self._shape.stops
        marker = stops.at(text, start)
        if marker is not None:
            self.status = "done"
            return start + len(marker.text)
        if stops.begins_at(text, start):
            return len(text) if final else start  # an end marker that is cut off or incomplete
        enclosed = bool(self._shape.end) and not self._bare
        if char == "]" and self._list:
            self._list = False
            if not enclosed:
                self.status = "done"
            return start + 1
        if char in ",;" and (self._list or enclosed):
            return start + 1
        if (char.isalpha() or char == "_") and (self._list or enclosed):
            self._undecide("")
            self._name_text = ""
            self._step = PythonReader._name
            return start
        self._done()
        return start

    def _done(self) -> None:
        self.status = "done"
        self.unclosed = bool(self._shape.end) and not self._bare
        self.recoveries += self.unclosed or self._list

    def _fail(self) -> None:
        self.status = "failed"
        self.unclosed = self._calls > 0 and bool(self._shape.end) and not self._bare
