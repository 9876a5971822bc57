"""Reads the parameters of calls in tags: keys, types and values."""

from __future__ import annotations

import re
from typing import Final

from gateway.sdk.json_schema import SchemaNode
from gateway_parsers.kit.arguments import ArgumentWriter, Hint
from gateway_parsers.kit.json_value import JsonValue
from gateway_parsers.kit.markers import WHITESPACE, Marker, MarkerContext, MarkerSet
from gateway_parsers.kit.odd_names import has_odd_names, more_of_known, more_of_quoted
from gateway_parsers.kit.reader import Step, StepReader, may_become, skip
from gateway_parsers.kit.syntax import MAX_NAME, Accept
from gateway_parsers.kit.tags import TagShape, hint_of
from gateway_parsers.kit.value_end import after_misspelt_end, is_end, is_key

_KEY_AND_VALUE: Final = re.compile(r"\s*([\w.-]+)\s*[:=]\s*(\S.*)")
"""A key on a line that its value starts, as in `<parameter=ids: [1]`."""
_ANYWHERE: Final = MarkerContext()
_CDATA: Final = "<![CDATA["
_CDATA_END: Final = "]]>"
_MAX_HEAD: Final = 2 * MAX_NAME
_MAX_JUNK: Final = 40
"""Maximum number of meaningless characters between a key and its value."""
_MAX_TYPE: Final = 200
"""Maximum number of characters of a value's type and its end."""
_MAX_QUOTED: Final = 400
"""Characters after an end of the call within which the end of its value is searched."""


class TagParameters(StepReader):
    """The steps from the start of a parameter to its end. String values are emitted as they arrive."""

    __slots__ = (
        "_before",
        "_head",
        "_json",
        "_nested",
        "_odd_keys",
        "_rest",
        "_schema",
        "_shape",
        "_writer",
    )  # fmt: skip

    def __init__(self, shape: TagShape, marker: str, accept: Accept | None, step: Step) -> None:
        super().__init__(marker, accept, step)
        self._shape = shape
        self._head = ""
        """The name or the key that is being read."""
        self._json: JsonValue | None = None
        """All arguments as one object, in place of parameters."""
        self._rest = ""
        """Trailing text that may be the start of an end marker."""
        self._before = ""
        """Last character of the open value."""
        self._nested = 0
        """Number of nested values that the open value has started itself."""
        self._schema = SchemaNode({})
        self._writer = ArgumentWriter(self._schema, shape.trim)
        self._odd_keys: bool | None = None
        """Whether the tool has parameters with a `>` in their names; None: not known yet."""

    def _body(self, text: str, pos: int, final: bool) -> int:
        """Read between parameters."""
        raise NotImplementedError

    def _too_long(self) -> None:
        """Handle a name or a key, `_head`, that is too long."""
        raise NotImplementedError

    def _add_junk(self, text: str) -> None:
        """Keep text that is in no parameter."""
        raise NotImplementedError

    def _collect(
        self, markers: MarkerSet, text: str, pos: int, final: bool
    ) -> tuple[int, Marker | None]:
        """Collect text up to a marker of `markers`."""
        room = _MAX_HEAD - len(self._head)
        hit = markers.find(text, pos, _ANYWHERE, final=final, until=pos + room)
        if hit is not None:
            end = hit[0]
        else:
            end = len(text) - (0 if final else markers.held(text, pos, _ANYWHERE))
        if end - pos > room:
            self._head += text[pos : pos + room]
            self._too_long()
            return pos + room, None
        self._head += text[pos:end]
        return (end, None) if hit is None else hit

    def _key(self, text: str, pos: int, final: bool) -> int:
        pos, marker = self._collect(self._shape.keys, text, pos, final)
        if marker is None:
            return pos
        if marker.text == ">":
            more = self._more_of_key(text, pos, final)
            if more is None:
                return pos
            if more:
                self._head += text[pos : pos + more]
                return pos + more
        head, self._head = self._head, ""
        if marker.action == "call":
            self.recoveries += 1  # another key begins
            return pos + len(marker.text)
        if marker.action == "stop":
            self.recoveries += 1  # a key without a value is dropped
            self._step = type(self)._body
            return pos
        self.recoveries += marker.action == "open" or marker.text == "\n"
        value = ""
        in_line = marker.text == "\n" and not self._shape.key_attribute
        if in_line and (split := _KEY_AND_VALUE.fullmatch(head)) is not None:
            head, value = split[1], split[2]
        key, hint = self._shape.key(head)
        if self._shape.cdata and not key:
            self.recoveries += 1
            key = self._next_name()
        if self._shape.type_open and marker.action == "head":
            self._head = key
            self._step = TagParameters._type
            return pos + len(marker.text)
        self._begin_value(key, hint)
        if value:
            self._write(value)
        self._flush()
        if self._shape.cdata:
            self._step = TagParameters._cdata_start
        else:
            gap = self._shape.value_open and marker.action == "head"
            self._step = TagParameters._gap if gap else TagParameters._value
        return pos + len(marker.text)

    def _more_of_key(self, text: str, pos: int, final: bool) -> int | None:
        """The number of characters from the `>` at `pos` on that belong to the key; None if more text is needed."""
        if self._shape.key_attribute:
            return more_of_quoted(self._head, text, pos, final=final)
        names = self._schema.resolved().get("properties")
        if not isinstance(names, dict):
            return 0
        if self._odd_keys is None:
            self._odd_keys = has_odd_names(names)
        if not self._odd_keys:
            return 0
        return more_of_known(self._shape.key(self._head)[0], names, text, pos, final=final)

    def _begin_value(self, key: str, hint: Hint) -> None:
        self._writer.key(key, hint)
        self._before = ""
        self._nested = 0

    def _type(self, text: str, pos: int, final: bool) -> int:
        """Read between a key and `value_open`, where the value's type may be."""
        start = skip(text, pos, WHITESPACE)
        if start == len(text):
            return start
        opening, closing = self._shape.type_open, self._shape.type_close
        value_start = start + len(opening)
        limit = value_start + _MAX_TYPE
        end = -1
        if text.startswith(opening, start):
            end = text.find(closing, value_start, limit)
            if end < 0 and not final and len(text) < limit:
                return start
        elif not final and may_become(text, start, opening):
            return start
        key, self._head = self._head, ""
        self._begin_value(key, hint_of(text[value_start:end]) if end >= 0 else None)
        self._flush()
        self._step = TagParameters._gap
        return end + len(closing) if end >= 0 else start

    def _next_name(self) -> str:
        """The name of a parameter that has none, from the order of the tool's parameters."""
        names = list(self._schema.resolved().get("properties") or ())
        return names[self._writer.count] if self._writer.count < len(names) else "value"

    def _cdata_start(self, text: str, pos: int, final: bool) -> int:
        """At the start of a value that may be a CDATA section."""
        if text.startswith(_CDATA, pos):
            self._step = TagParameters._cdata_text
            return pos + len(_CDATA)
        if not final and may_become(text, pos, _CDATA):
            return pos
        self._step = TagParameters._value
        return pos

    def _cdata_text(self, text: str, pos: int, final: bool) -> int:
        end = text.find(_CDATA_END, pos)
        limit = end
        if end < 0:
            limit = len(text)
            while not final and limit > pos and _CDATA_END.startswith(text[limit - 1 :]):
                limit -= 1
        self._write(text[pos:limit])
        if end < 0:
            self._flush()
            return limit
        self._writer.end()
        self._flush()
        self._step = TagParameters._cdata_tail
        return end + len(_CDATA_END)

    def _cdata_tail(self, text: str, pos: int, final: bool) -> int:
        """After a CDATA section: the end of the value."""
        start = skip(text, pos, WHITESPACE)
        close = self._shape.value_close
        if start == len(text) or (not final and may_become(text, start, close)):
            return start
        self._step = type(self)._body
        if text.startswith(close, start):
            return start + len(close)
        self.recoveries += 1
        return start

    def _gap(self, text: str, pos: int, final: bool) -> int:
        """Read between a key and its value."""
        start = skip(text, pos, WHITESPACE)
        if start == len(text):
            return start
        marker = self._shape.gaps.at(text, start)
        if marker is None and self._shape.gaps.begins_at(text, start):
            return len(text) if final else start
        if marker is not None and marker.action == "open":
            self._step = TagParameters._value
            return start + len(marker.text)
        if marker is not None and marker.action == "swallow":
            self.recoveries += 1
            return start + len(marker.text)
        if marker is None:
            reach = start + _MAX_JUNK
            hit = self._shape.gaps.find(text, start, _ANYWHERE, final=True, until=reach)
            near = hit is not None and hit[0] - start <= _MAX_JUNK
            if (
                hit is None
                and not final
                and len(text) - start <= _MAX_JUNK + self._shape.gaps.longest
            ):
                return start
            if hit is not None and near and hit[1].action == "open":
                self._add_junk(text[start : hit[0]])
                self._step = TagParameters._value
                return hit[0] + len(hit[1].text)
        self.recoveries += 1
        self._step = TagParameters._value  # the value without its own start marker
        return start

    def _value(self, text: str, pos: int, final: bool) -> int:
        markers = self._shape.values
        hit = markers.find(text, pos, _ANYWHERE, final=final)
        if hit is None:
            end = len(text) - markers.held(text, pos, _ANYWHERE)
            self._write(text[pos:end])
            self._flush()
            self._rest = text[end:] if final else ""
            return len(text) if final else end
        end, marker = hit
        self._write(text[pos:end])
        ends = self._ends_value(text, end, marker, final, before=self._before)
        if ends is None:
            self._flush()
            return end
        after = end + len(marker.text)
        if not ends:
            if marker.action != "drift":
                opens = marker.action in ("key", "open")
                self._nested = max(0, self._nested + (1 if opens else -1))
            self._write(marker.text)
            self._flush()
            return after
        closed = marker.action == "close"
        if marker.action == "drift":
            end = after_misspelt_end(text, after)
        self.recoveries += not closed
        self._writer.end(closed=closed)
        self._flush()
        self._step = type(self)._body
        return after if closed else end

    def _ends_value(
        self, text: str, at: int, marker: Marker, final: bool, *, before: str
    ) -> bool | None:
        """Whether a marker at `at`, after the character `before`, ends the value rather than being part of it; None if
        more text is needed."""
        shape = self._shape
        after = at + len(marker.text)
        match marker.action:
            case "close":
                return is_end(shape, text, after, nested=self._nested, final=final)
            case "key":
                return is_key(shape, text, after, before=before, schema=self._schema, final=final)
            case "open":
                return False
            case "drift":
                return self._is_misspelt_end(text, after, final)
            case _:
                quoted = self._is_quoted(text, after, final)
                return None if quoted is None else not quoted

    def _is_misspelt_end(self, text: str, pos: int, final: bool) -> bool | None:
        """Whether what starts like the end of the value, up to `pos`, is its end in another spelling, because markup
        follows that ends the value anyway; None if more text is needed."""
        start = after_misspelt_end(text, pos)
        following = self._shape.after_value.at(text, start)
        if following is None:
            undecided = start == len(text) or self._shape.after_value.begins_at(text, start)
            return None if undecided and not final else False
        if following.action == "close":
            return False
        before = text[start - 1]
        return following.action == "call" or self._ends_value(
            text, start, following, final, before=before
        )

    def _write(self, text: str) -> None:
        """Append to the value."""
        if text:
            self._before = text[-1]
            self._writer.text(text)

    def _is_quoted(self, text: str, pos: int, final: bool) -> bool | None:
        """Whether an end of the call up to `pos`, inside a value, is part of the value, because the value's own end
        comes next; None if more text is needed."""
        hit = self._shape.after_inner_end.near(text, pos, _MAX_QUOTED)
        if hit is not None:
            return hit[1].action == "close"
        return (
            False
            if final or len(text) - pos > _MAX_QUOTED + self._shape.after_inner_end.longest
            else None
        )

    def _flush(self) -> None:
        if self._writer.parts:
            if (
                self._json is None
            ):  # otherwise the arguments are complete, and parameters after them are ignored
                self._arguments("".join(self._writer.parts))
            self._writer.parts.clear()
