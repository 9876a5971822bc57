"""Values in a literal syntax that is nearly JSON (Python's, Gemma's), made into JSON as they arrive."""

from __future__ import annotations

import json
import re
from typing import Final

from gateway_parsers.kit import loose_mark
from gateway_parsers.kit.coercion import coerced, quoted
from gateway_parsers.kit.json_text import escape
from gateway_parsers.kit.literal_syntax import LiteralSyntax
from gateway_parsers.kit.markers import WHITESPACE, Position
from gateway_parsers.kit.reader import skip
from gateway_parsers.kit.schema import ANY, SchemaNode

_ANYWHERE: Final = Position()
_CLOSERS: Final = {"{": "}", "[": "]", "(": ")"}
_MAX_SPACES: Final = 64
_MAX_QUOTED: Final = 400
"""Characters behind an end of the call within which the end of its string is looked for."""
_WORDS: Final = {"True": "true", "False": "false", "None": "null", "undefined": "null"}


class _Container:
    __slots__ = ("closer", "count", "key", "node")

    def __init__(self, opener: str, node: SchemaNode | None) -> None:
        self.closer = _CLOSERS[opener]
        self.count = 0
        self.node = node
        self.key: SchemaNode | None = None
        """The schema of the value whose key was read; only in objects."""


class LiteralValue:
    """Reads one value and gives it as JSON. Its text ends where a comma or a closing bracket of what is around it stands."""

    __slots__ = (
        "_expects_value", "_held", "_mark", "_node", "_stack", "_syntax", "_word", "_word_depth", "done",
        "interrupted", "repairs",
    )  # fmt: skip

    def __init__(self, syntax: LiteralSyntax, node: SchemaNode | None) -> None:
        self.done = False
        self.interrupted = False
        """A marker of the syntax's `stops` stands where the value should go on."""
        self.repairs = 0
        self._syntax = syntax
        self._node = node
        self._stack: list[_Container] = []
        self._mark: str | None = None
        self._held: list[str] | None = None
        """A string that must become something else, once it is whole."""
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
        """Whether the value is whole but for its brackets: no string is open, and no key waits for its value."""
        if self._word is not None:
            return not self._is_key()
        waits = bool(self._stack) and self._stack[-1].closer == "}" and self._expects_value
        return self._mark is None and not waits

    def closing(self) -> str:
        """What is missing to make a value whole that ended outside a string, as far as brackets can do it."""
        parts: list[str] = []
        if self._word is not None:
            self._end_word(parts)
        while self._stack:
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
        if char == ",":
            if container is None:
                self._begin_item(parts)
                parts.append("null")
                self._end_value()
                return pos
            if container.closer == "}" and self._expects_value:
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
        is_key = container is not None and container.closer == "}" and not self._expects_value
        if not is_key and char in _CLOSERS:
            self._begin_item(parts)
            parts.append("{" if char == "{" else "[")
            self._stack.append(_Container(char, self._schema()))
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
        """A key, or an item of a list, begins."""
        if self._stack and not self._expects_value:
            container = self._stack[-1]
            if container.count:
                parts.append(", ")
            container.count += 1

    def _is_key(self) -> bool:
        return bool(self._stack) and self._stack[-1].closer == "}" and not self._expects_value

    def _schema(self) -> SchemaNode | None:
        """The schema of the value that begins."""
        if not self._stack:
            return self._node
        container = self._stack[-1]
        if container.closer == "}":
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
            self._say(text[pos:], parts)
            return len(text)
        at = hit.start()
        if at > pos:
            self._say(text[pos:at], parts)
        if text[at] == "\\" and escapes:
            after, said = _escaped(text, at, final=final)
            self._say(said, parts)
            return after
        if not text.startswith(mark, at):
            if not final and mark.startswith(text[at:]):
                return at
            stops_here = self._stops_string(text, at, final)
            if stops_here is None:
                return at
            if stops_here:
                self.repairs += 1
                self._end_string(parts)
                return at
            self._say(text[at], parts)
            return at + 1
        after = at + len(mark)
        if escapes:
            closes = self._closes(text, after, final)
            if closes is None:
                return at
            if not closes:
                self.repairs += 1
                self._say(mark, parts)
                return after
        elif mark == self._syntax.loose and not self._is_key():
            closes = self._loosely_closes(text, after, final)
            if closes is None:
                return at
            if not closes:
                self.repairs += 1
                self._say('"', parts)
                return after
        self._end_string(parts)
        return after

    def _loosely_closes(self, text: str, after: int, final: bool) -> bool | None:
        """Whether the loose mark before `after` ends a string; None: more text must come."""
        container = self._stack[-1] if self._stack else None
        in_object = container is not None and container.closer == "}"
        known = (
            container.node.resolved().get("properties") if container and container.node else None
        )
        return loose_mark.closes(
            text,
            after,
            mark=self._syntax.loose,
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
                parts.append(coerced("".join(self._held), self._types() or ANY))  # type: ignore[arg-type]
            self._end_value()

    def _stops_string(self, text: str, at: int, final: bool) -> bool | None:
        """Whether a marker at `at` ends the string, whose own end is missing; None: more text must come."""
        stops = self._syntax.stops
        if text[at] not in stops.firsts:
            return False
        marker = stops.at(text, at)
        if marker is None:
            return None if not final and stops.begins_at(text, at) else False
        after = at + len(marker.text)
        limit = after + _MAX_QUOTED
        end = text.find(self._mark or "", after, limit)
        other = stops.find(text, after, _ANYWHERE, final=True)
        if end >= 0 and (other is None or end < other[0]):
            return False
        return True if final or other is not None or len(text) > limit else None

    def _closes(self, text: str, after: int, final: bool) -> bool | None:
        """Whether the mark before `after` ends its string; None: more text must come."""
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

    def _say(self, text: str, parts: list[str]) -> None:
        if self._held is not None:
            self._held.append(text)
        elif text:
            parts.append(json.dumps(text, ensure_ascii=False)[1:-1])

    def _more_word(self, text: str, pos: int, final: bool, parts: list[str]) -> int:
        """A word: a number, a name, or whatever a model writes without marks."""
        assert self._word is not None
        hit = self._syntax.word_ends[self._is_key()].search(text, pos)
        at = hit.start() if hit is not None else len(text)
        self._word.append(text[pos:at])
        if hit is None:
            return at
        char = text[at]
        stops = self._syntax.stops
        loose = self._syntax.loose
        if loose and not self._is_key() and "string" in (self._types() or ANY):
            if char in stops.firsts and loose.startswith(text[at : at + len(loose)]):
                return self._unmarked_end(text, at, final, parts)
            if char in ",)]}" and not self._word_depth:
                on = loose_mark.goes_on(text, at, mark=loose, stops=stops, final=final)
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
        """At what may be the mark that ends a string which began without one."""
        assert self._word is not None
        loose = self._syntax.loose
        after = at + len(loose)
        whole = text.startswith(loose, at)
        closes = self._loosely_closes(text, after, final) if whole else final or None
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
        if types:
            parts.append(coerced(_WORDS.get(word, word), types))  # type: ignore[arg-type]
        else:
            parts.append(_WORDS.get(word) or coerced(word, ANY))
        self._end_value()

    def _end_key(self, key: str, parts: list[str]) -> None:
        container = self._stack[-1]
        self._held = None
        container.key = container.node.member(key) if container.node is not None else None
        parts += (quoted(key), ": ")
        self._expects_value = True

    def _end_value(self) -> None:
        self._held = None
        self._expects_value = False
        self.done = not self._stack

    def _close(self, char: str, pos: int, parts: list[str]) -> int:
        if not self._stack:
            self.repairs += 1
            parts.append("null")  # a value that is not there
            self.done = True
            return pos
        if self._stack[-1].closer == "}" and self._expects_value:
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
        parts.append("}" if container.closer == "}" else "]")


def _escaped(text: str, pos: int, *, final: bool) -> tuple[int, str]:
    """The escape at `pos`, in Python or JSON: where it ends, and what it says; `pos` itself if more text is needed."""
    if text.startswith("\\\n", pos):
        return pos + 2, ""
    if text.startswith("\\x", pos):
        digits = text[pos + 2 : pos + 4]
        if len(digits) < 2 and not final:
            return pos, ""
        if re.fullmatch("[0-9a-fA-F]{2}", digits):
            return pos + 4, chr(int(digits, 16))
    return escape(text, pos, final=final)
