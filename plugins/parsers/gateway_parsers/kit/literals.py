"""Converts streamed values in near-JSON syntax (Python's, Gemma's) to JSON."""

from __future__ import annotations

import json
import re
from typing import Final

from gateway.sdk.json_schema import ANY_TYPE, SchemaNode
from gateway_parsers.kit import lenient_strings
from gateway_parsers.kit.argument_types import member_node
from gateway_parsers.kit.coercion import coerced, quoted
from gateway_parsers.kit.json_text import escape
from gateway_parsers.kit.json_words import scalar
from gateway_parsers.kit.literal_syntax import LiteralSyntax
from gateway_parsers.kit.markers import WHITESPACE
from gateway_parsers.kit.reader import may_become, skip

_CLOSERS: Final = {"{": "}", "[": "]", "(": ")"}
_MAX_SPACES: Final = 64
_MAX_QUOTED: Final = 400
"""Characters after an end of the call within which the end of its string is searched."""
_WORDS: Final = {"True": "true", "False": "false", "None": "null", "undefined": "null"}


class _Container:
    __slots__ = ("closer", "count", "first", "is_object", "key", "node", "undecided")

    def __init__(self, opener: str, node: SchemaNode | None, *, undecided: bool) -> None:
        self.closer = _CLOSERS[opener]
        self.is_object = opener == "{"
        self.undecided = undecided
        """Whether it is not yet known to be an object rather than a set. Its bracket is not written yet."""
        self.first = ("", "")
        """Its first member while undecided, as a key and as a value; empty if there is none yet."""
        self.count = 0
        self.node = node
        self.key: SchemaNode | None = None
        """The schema of the value whose key was read; objects only."""


class LiteralValue:
    """Reads one value and returns it as JSON. It ends at a comma or closing bracket of the enclosing syntax."""

    __slots__ = (
        "_expects_value", "_first_name", "_held", "_mark", "_node", "_stack", "_syntax", "_word", "_word_depth", "done",
        "interrupted", "repairs",
    )  # fmt: skip

    def __init__(
        self, syntax: LiteralSyntax, node: SchemaNode | None, *, first_name: str = ""
    ) -> None:
        """`first_name`: the key of an object's first member if the model wrote none."""
        self.done = False
        self.interrupted = False
        """Whether a marker of the syntax's `stops` ended the value early."""
        self.repairs = 0
        self._syntax = syntax
        self._node = node
        self._first_name = first_name
        self._stack: list[_Container] = []
        self._mark: str | None = None
        self._held: list[str] | None = None
        """A string that must be converted to another type once complete."""
        self._word: list[str] | None = None
        self._word_depth = 0
        self._expects_value = True

    def read(self, text: str, pos: int, *, final: bool) -> tuple[int, str]:
        """Like `JsonValue.read`."""
        parts: list[str] = []
        while pos < len(text) and not self.done and not self.interrupted:
            state = (self._mark, self._word is None)
            if self._mark is not None:
                reached = self._string(text, pos, final, parts)
            elif self._word is not None:
                reached = self._more_word(text, pos, final, parts)
            else:
                reached = self._structure(text, pos, final, parts)
            if reached == pos and state == (self._mark, self._word is None):
                break
            pos = reached
        return pos, "".join(parts)

    @property
    def may_close(self) -> bool:
        """Whether the value lacks only closing brackets: no string is open and no key lacks a value."""
        if self._word is not None:
            return not self._is_key()
        waits = self._expects_value and (not self._stack or self._stack[-1].is_object)
        return self._mark is None and not waits

    def closing(self) -> str:
        """The closing brackets that complete a value that ended outside a string."""
        parts: list[str] = []
        if self._word is not None:
            self._end_word(parts)
        if not self._stack and self._expects_value:
            parts.append("null")
        while self._stack:
            if self._stack[-1].undecided:
                self._decide(self._stack[-1], parts, is_object=True)
            if self._expects_value:
                parts.append("null")
            self._pop(parts)
            self._expects_value = False
        return "".join(parts)

    def _structure(self, text: str, pos: int, final: bool, parts: list[str]) -> int:
        pos = skip(text, pos, WHITESPACE)
        if pos == len(text):
            return pos
        char = text[pos]
        if char in self._syntax.stops.firsts:
            self.interrupted = self._syntax.stops.at(text, pos) is not None
            if self.interrupted or (not final and self._syntax.stops.begins_at(text, pos)):
                return pos
        container = self._stack[-1] if self._stack else None
        if char in ")]}":
            return self._close(char, pos, parts)
        if container is not None and container.undecided and container.first[0]:
            self._decide(
                container, parts, is_object=char != ","
            )  # a value needs no colon before it
        if char == ",":
            if container is None:
                self._begin_item(parts)
                parts.append("null")
                self._end_value()
                return pos
            if container.is_object and self._expects_value:
                self.repairs += 1
                parts.append("null")
            self._expects_value = False
            return pos + 1
        if char in ":=" and container is not None and self._expects_value:
            return pos + 1
        mark = self._syntax.marks.at(text, pos)
        if not final:
            if mark is None and self._syntax.marks.begins_at(text, pos):
                return pos
            if mark is not None and self._syntax.marks.may_grow(text, pos, mark):
                return pos
        is_key = container is not None and container.is_object and not self._expects_value
        if not is_key and char in _CLOSERS:
            self._begin_item(parts)
            names_first = not self._stack and bool(self._first_name)
            undecided = char == "{" and (self._syntax.sets or names_first)
            if not undecided:
                parts.append("{" if char == "{" else "[")
            self._stack.append(_Container(char, self._schema(), undecided=undecided))
            self._expects_value = False
            return pos + 1
        if mark is not None:
            self._begin_item(parts)
            self._mark = mark.text
            types = self._types()
            self._held = None
            if is_key or (types and "string" not in types and self._syntax.coerces_strings):
                self._held = []
            else:
                parts.append('"')
            return pos + len(mark.text)
        self._begin_item(parts)
        self._word = []
        self._word_depth = 0
        return pos

    def _begin_item(self, parts: list[str]) -> None:
        """Start a key or a list item."""
        if self._stack and not self._expects_value:
            container = self._stack[-1]
            if container.count:
                parts.append(", ")
            container.count += 1

    def _is_key(self) -> bool:
        return bool(self._stack) and self._stack[-1].is_object and not self._expects_value

    def _schema(self) -> SchemaNode | None:
        """The schema of the value that starts here."""
        if not self._stack:
            return self._node
        container = self._stack[-1]
        if container.is_object:
            return container.key
        return container.node.items() if container.node is not None else None

    def _types(self) -> frozenset[str]:
        node = None if self._is_key() else self._schema()
        return frozenset(node.types()) if node is not None else frozenset()

    def _string(self, text: str, pos: int, final: bool, parts: list[str]) -> int:
        mark = self._mark
        assert mark is not None
        escapes = self._syntax.escapes[mark]
        hit = self._syntax.ends[mark].search(text, pos)
        if hit is None:
            self._append(text[pos:], parts)
            return len(text)
        at = hit.start()
        if at > pos:
            self._append(text[pos:at], parts)
        if text[at] == "\\" and escapes:
            after, decoded = _escaped(text, at, final=final)
            self._append(decoded, parts)
            return after
        if not text.startswith(mark, at):
            if not final and may_become(text, at, mark):
                return at
            stops_here = self._stops_string(text, at, final)
            if stops_here is None:
                return at
            if stops_here:
                self.repairs += 1
                self._end_string(parts)
                return at
            self._append(text[at], parts)
            return at + 1
        after = at + len(mark)
        if escapes:
            closes = self._closes(text, after, final)
            if closes is None:
                return at
            if not closes:
                self.repairs += 1
                self._append(mark, parts)
                return after
        elif mark == self._syntax.lenient_mark and not self._is_key():
            closes = self._leniently_closes(text, after, final)
            if closes is None:
                return at
            if not closes:
                self.repairs += 1
                self._append('"', parts)
                return after
        self._end_string(parts)
        return after

    def _leniently_closes(self, text: str, after: int, final: bool) -> bool | None:
        """Whether the lenient mark before `after` ends a string; None if more text is needed."""
        container = self._stack[-1] if self._stack else None
        in_object = container is not None and container.is_object
        known = (
            container.node.resolved().get("properties") if container and container.node else None
        )
        return lenient_strings.closes(
            text,
            after,
            mark=self._syntax.lenient_mark,
            keys=known if isinstance(known, dict) and known else None,
            in_object=in_object,
            stops=self._syntax.stops,
            final=final,
        )

    def _end_string(self, parts: list[str]) -> None:
        self._mark = None
        if self._is_key():
            self._end_key("".join(self._held or ()), parts)
        else:
            if self._held is None:
                parts.append('"')
            else:
                parts.append(coerced("".join(self._held), self._types() or ANY_TYPE))  # type: ignore[arg-type]
            self._end_value()

    def _stops_string(self, text: str, at: int, final: bool) -> bool | None:
        """Whether a marker at `at` ends a string whose own end is missing; None if more text is needed."""
        stops = self._syntax.stops
        if text[at] not in stops.firsts:
            return False
        marker = stops.at(text, at)
        if marker is None:
            return None if not final and stops.begins_at(text, at) else False
        after = at + len(marker.text)
        limit = after + _MAX_QUOTED
        end = text.find(self._mark or "", after, limit)
        other = stops.near(text, after, _MAX_QUOTED)
        if end >= 0 and (other is None or end < after + other[0]):
            return False
        return True if final or other is not None or len(text) > limit else None

    def _closes(self, text: str, after: int, final: bool) -> bool | None:
        """Whether the mark before `after` ends its string; None if more text is needed."""
        following = skip(text, after, WHITESPACE)
        if following == len(text):
            return True if final or following - after > _MAX_SPACES else None
        stops = self._syntax.stops
        if text[following] in stops.firsts:
            if stops.at(text, following) is not None:
                return True
            if stops.begins_at(text, following):
                return True if final else None
        return text[following] in ",)]}:=" or following - after > _MAX_SPACES

    def _append(self, text: str, parts: list[str]) -> None:
        if self._held is not None:
            self._held.append(text)
        elif text:
            parts.append(json.dumps(text, ensure_ascii=False)[1:-1])

    def _more_word(self, text: str, pos: int, final: bool, parts: list[str]) -> int:
        """Read a word: a number, a name, or any unquoted text."""
        assert self._word is not None
        hit = self._syntax.word_ends[self._is_key()].search(text, pos)
        at = hit.start() if hit is not None else len(text)
        self._word.append(text[pos:at])
        if hit is None:
            return at
        char = text[at]
        stops = self._syntax.stops
        lenient_mark = self._syntax.lenient_mark
        if lenient_mark and not self._is_key() and "string" in (self._types() or ANY_TYPE):
            if char in stops.firsts and lenient_mark.startswith(text[at : at + len(lenient_mark)]):
                return self._unmarked_end(text, at, final, parts)
            if char in ",)]}" and not self._word_depth:
                on = lenient_strings.continues(
                    text, at, mark=lenient_mark, stops=stops, final=final
                )
                if on is None:
                    return at
                if on:
                    self._word.append(char)
                    return at + 1
        if char in stops.firsts:
            if stops.at(text, at) is not None:
                self._end_word(parts)
                return at
            if not final and stops.begins_at(text, at):
                return at
            self._word.append(char)
            return at + 1
        if char in _CLOSERS:
            self._word_depth += 1
        elif self._word_depth == 0:
            self._end_word(parts)
            return at
        elif char in ")]}":
            self._word_depth -= 1
        self._word.append(char)
        return at + 1

    def _unmarked_end(self, text: str, at: int, final: bool, parts: list[str]) -> int:
        """Handle a possible end mark of a string that had no opening mark."""
        assert self._word is not None
        lenient_mark = self._syntax.lenient_mark
        after = at + len(lenient_mark)
        whole = text.startswith(lenient_mark, at)
        closes = self._leniently_closes(text, after, final) if whole else final or None
        if closes is None:
            return at
        self.repairs += 1
        if not closes:
            self._word.append('"')
            return after
        parts.append(quoted("".join(self._word).strip(WHITESPACE)))
        self._word = None
        self._end_value()
        return min(after, len(text))

    def _end_word(self, parts: list[str]) -> None:
        word = "".join(self._word or ()).strip(WHITESPACE)
        self._word = None
        if self._is_key():
            self._end_key(word, parts)
            return
        types = self._types()
        if word in ("None", "null"):
            parts.append("null")  # as in JSON, even if the schema does not allow it
        elif types:
            parts.append(coerced(_WORDS.get(word, word), types))  # type: ignore[arg-type]
        else:
            parts.append(scalar(word))
        self._end_value()

    def _end_key(self, key: str, parts: list[str]) -> None:
        container = self._stack[-1]
        is_word = self._held is None
        self._held = None
        container.key = member_node(container.node, key) if container.node is not None else None
        if container.undecided:
            container.first = quoted(key), scalar(key) if is_word else quoted(key)
        else:
            parts += (quoted(key), ": ")
        self._expects_value = True

    def _decide(self, container: _Container, parts: list[str], *, is_object: bool) -> None:
        """Write the bracket of an undecided container, and its first member."""
        container.undecided = False
        key, value = container.first
        if not is_object and len(self._stack) == 1 and self._first_name:
            container.is_object = True
            parts += ("{", quoted(self._first_name), ": ", value)
            self._expects_value = False
            return
        container.is_object = is_object
        parts.append("{" if is_object else "[")
        if is_object and key:
            parts += (key, ": ")
        elif not is_object:
            parts.append(value)
            self._expects_value = False

    def _end_value(self) -> None:
        self._held = None
        self._expects_value = False
        self.done = not self._stack

    def _close(self, char: str, pos: int, parts: list[str]) -> int:
        if not self._stack:
            self.repairs += 1
            parts.append("null")  # a missing value
            self.done = True
            return pos
        if self._stack[-1].undecided:
            self._decide(self._stack[-1], parts, is_object=not self._stack[-1].first[0])
        if self._stack[-1].is_object and self._expects_value:
            self.repairs += 1
            parts.append("null")
            self._expects_value = False
        if char != self._stack[-1].closer:
            self.repairs += 1
            if all(char != container.closer for container in self._stack):
                while self._stack:
                    self._pop(parts)
                self.done = True
                return pos
            while self._stack[-1].closer != char:
                self._pop(parts)
        self._pop(parts)
        self._end_value()
        return pos + 1

    def _pop(self, parts: list[str]) -> None:
        container = self._stack.pop()
        if container.undecided:
            self._decide(container, parts, is_object=True)
        parts.append("}" if container.is_object else "]")


def _escaped(text: str, pos: int, *, final: bool) -> tuple[int, str]:
    """Decode the escape at `pos`, in Python or JSON. Returns its end and its text; the end is `pos` if more text is
    needed."""
    if text.startswith("\\\n", pos):
        return pos + 2, ""
    if text.startswith("\\x", pos):
        digits = text[pos + 2 : pos + 4]
        if len(digits) < 2 and not final:
            return pos, ""
        if re.fullmatch("[0-9a-fA-F]{2}", digits):
            return pos + 4, chr(int(digits, 16))
    return escape(text, pos, final=final)
