"""Reads calls in tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Final

from gateway.sdk import TextDelta, ToolDefinition
from gateway.sdk.json_schema import SchemaNode
from gateway_parsers.kit.argument_types import arguments_schema
from gateway_parsers.kit.arguments import ArgumentWriter, Hint
from gateway_parsers.kit.free_text import custom_arguments, is_custom, without_margins
from gateway_parsers.kit.json_value import JsonValue
from gateway_parsers.kit.markers import WHITESPACE, Marker, MarkerContext, MarkerSet
from gateway_parsers.kit.reader import StepReader, may_become, skip
from gateway_parsers.kit.syntax import MAX_NAME, Accept
from gateway_parsers.kit.tags import TagShape, hint_of
from gateway_parsers.kit.value_end import after_misspelt_end, is_end, is_key

_NAME: Final = re.compile(r"[^\s<>{}\[\]()\"'|]+")
_PROSE: Final = re.compile(r"[\s<{]")
"""What ends a name."""
_ADDRESSEE_END: Final = re.compile(r"[^\w.\-]")
_KEY_AND_VALUE: Final = re.compile(r"\s*([\w.-]+)\s*[:=]\s*(\S.*)")
"""A key on a line that its value starts, as in `<parameter=ids: [1]`."""
_ANYWHERE: Final = MarkerContext()
_QUOTED_KEY: Final = {
    quote: re.compile(
        rf"[^{quote}<\n]*{quote}[ \t]*(?:[\w:.-]{{1,64}}[ \t]*=[ \t]*{quote}[^{quote}<\n]*{quote}[ \t]*){{0,8}}>"
    )
    for quote in "\"'"
}
"""The rest of a tag whose key has a `>`, which is at most `MAX_NAME` characters long."""
_MORE_OF_KEY: Final = re.compile(r"[^<>\n]{1,128}")
_MANY_KEYS: Final = 256
"""Parameters of a tool among which one with a `>` in its name is searched."""
_KEY_SO_FAR: Final = re.compile(r"[^<\n]*")
_CDATA: Final = "<![CDATA["
_CDATA_END: Final = "]]>"
_BEFORE_JSON: Final = " \t:>("
"""What may be between a name and its arguments as JSON on one line."""
_FOREIGN_END: Final = re.compile(r"</[\w:.-]{1,64}>")
_FOREIGN_END_SO_FAR: Final = re.compile(r"<(?:/[\w:.-]{0,64})?")
_AROUND_JSON: Final = ")}]>;,`" + WHITESPACE
_SEPARATORS: Final = ",;" + WHITESPACE
"""Junk between parameters that is no text."""
_MAX_LEAD: Final = 400
"""Number of characters between the name of a function and its first parameter that make it no call."""
_MAX_HEAD: Final = 2 * MAX_NAME
_MAX_JUNK: Final = 40
"""Maximum number of meaningless characters between a key and its value."""
_MAX_TYPE: Final = 200
"""Maximum number of characters of a value's type and its end."""
_MAX_QUOTED: Final = 400
"""Characters after an end of the call within which the end of its value is searched."""


class TagReader(StepReader):
    """The reader of `TagShape`. A call starts when its name is known. String values are emitted as they arrive."""

    __slots__ = (
        "_before",
        "_called",
        "_calls",
        "_head",
        "_json",
        "_junk",
        "_junk_length",
        "_nested",
        "_odd_keys",
        "_rest",
        "_schema",
        "_shape",
        "_tools",
        "_writer",
    )  # fmt: skip

    def __init__(
        self,
        shape: TagShape,
        marker: str,
        accept: Accept | None,
        tools: Mapping[str, ToolDefinition],
    ) -> None:
        named = marker == shape.call_open or not shape.call_open
        first = TagReader._name if named else TagReader._outside
        super().__init__(marker, accept, TagReader._preface if marker in shape.prefaces else first)
        self._shape = shape
        self._tools = tools
        self._head = ""
        self._calls = 0
        self._called = ""
        """The name of the open call, which starts with its arguments."""
        self._junk: list[str] = []
        """Text in the open call outside of its parameters."""
        self._junk_length = 0
        self._json: JsonValue | None = None
        self._rest = ""
        """Trailing text that may be the start of an end marker."""
        self._before = ""
        """Last character of the open value."""
        self._nested = 0
        """Number of nested values that the open value has started itself."""
        self._schema = SchemaNode({})
        self._writer = ArgumentWriter(self._schema, shape.trim)

    def finish(self, *, stopped: bool) -> None:
        if self.status != "more":
            return
        if self.undecided and self._step is TagReader._body:
            self._end_before_arguments(stopped=stopped)
        elif self.undecided:
            self._end_at_name(stopped=stopped)
        elif self._step is TagReader._outside:
            self._done()
        else:
            self.recoveries += 1
            if self._step is TagReader._value:
                self._end_in_value(stopped=stopped)
            value = self._json
            in_json = self._step in (TagReader._json_body, TagReader._json_message)
            if stopped and in_json and value is not None and value.may_close:
                self._arguments(value.closing())
                self._end_call()
            elif stopped and self._step is TagReader._body:
                self._end_call()  # only the call's own end marker is missing
            elif self._step is TagReader._body and self._json is None:
                self._writer.release(every=True)
                self._flush()
            self.status = "done"

    def _end_before_arguments(self, *, stopped: bool) -> None:
        """Handle an output that ends between a call's name and its first parameter."""
        text = without_margins("".join(self._junk))
        if stopped:
            self._end_call()
            if self.status == "more":
                self.recoveries += 1
                self.status = "done"
            return
        self.recoveries += 1
        self._begin()
        custom = is_custom(self._tools.get(self._called))
        self._arguments(custom_arguments(text)[:-2] if text and custom else text)
        self.status = "done"

    def _begin(self) -> None:
        """Start the open call, if it has not started."""
        if self.undecided and self._called:
            self._accept = None
            self._start(self._called)

    def _end_in_value(self, *, stopped: bool) -> None:
        """Handle an output that ends in a value: within its end marker, or in its text."""
        if stopped and len(self._rest) > 2 and self._shape.value_close.startswith(self._rest):
            self._writer.end()
            self._step = TagReader._body
        else:
            self._writer.text(self._rest)
        self._flush()

    def _end_at_name(self, *, stopped: bool) -> None:
        """Handle an output that ends before a call is certain. It is a call if it ends with a tool's name."""
        shape = self._shape
        head = self._head[: len(self._head) - shape.heads.held(self._head, 0, _ANYWHERE)]
        name = shape.name(head) if self._step is TagReader._name else ""
        if not stopped or name not in self._tools or not self._accepts(name):
            self._fail()
            return
        self._begin_arguments(name)
        self._end_call()
        self._done()
        self.status = "done"

    def _preface(self, text: str, pos: int, final: bool) -> int:
        """Read markup before the calls that names the recipient."""
        end, complete = self._addressee(text, pos)
        if complete:
            ends = self._shape.preface
            if not final and ends.begins_at(text, end):
                return end
            marker = ends.at(text, end)
            if marker is None or not self._head:
                self._fail()
                return end
            self._called, self._head = self._head, ""
            self._step = TagReader._addressed
            return end + len(marker.text)
        return end

    def _addressed(self, text: str, pos: int, final: bool) -> int:
        """Read after a preface: calls, or the arguments of the tool that it names."""
        start = skip(text, pos, WHITESPACE)
        if start == len(text):
            return start
        name = self._called
        if text[start] != "{" or name not in self._tools or not self._accepts(name):
            self._called = ""
            self._step = TagReader._outside
            return start
        self.recoveries += 1
        self.verbatim = False
        self._begin_arguments(name)
        self._begin()
        self._json = JsonValue(self._shape.body)
        self._step = TagReader._json_message
        return start

    def _json_message(self, text: str, pos: int, final: bool) -> int:
        """Read the arguments of a call that is a message of its own."""
        value = self._json
        assert value is not None
        pos, piece = value.read(text, pos, final=final)
        self._arguments(piece)
        if value.done or value.interrupted:
            self._arguments(value.closing() if value.interrupted else "")
            self._end_call()
            self.status = "done"
        return pos

    def _outside(self, text: str, pos: int, final: bool) -> int:
        """Read before or after a call."""
        start = skip(text, pos, WHITESPACE)
        if start == len(text):
            return start
        marker = self._shape.outside.at(text, start)
        if marker is None and self._calls and not self.undecided and text[start] == "<":
            after = self._after_foreign_end(text, start, final)
            if after is None:
                return start
            if after > start:
                self.recoveries += 1
                return after
        if marker is None:
            if self._shape.outside.begins_at(text, start):
                if not final:
                    return start
                if not self.undecided:
                    return len(text)  # an end marker that is cut off
            return self._no_call(start)
        if not final and self._shape.outside.may_grow(text, start, marker):
            return start
        after = start + len(marker.text)
        match marker.action:
            case "stop":
                if self._calls == 0:
                    return self._no_call(start)
                if marker.text == self._shape.end:
                    self.status = "done"
                else:
                    self.recoveries += 1
            case "swallow":
                if marker.text == self._shape.titled:
                    self._head = ""
                    self._step = TagReader._title
            case "call" if self._shape.call_open:
                self.recoveries += 1
            case _:
                if not self.undecided:
                    self._undecide(marker.text)
                self._step = TagReader._name
        return after

    def _after_foreign_end(self, text: str, start: int, final: bool) -> int | None:
        """The position behind an end tag of no tag, if the calls go on or end there; `start` if there is none, and None if
        more text is needed."""
        hit = _FOREIGN_END.match(text, start)
        if hit is None:
            begun = _FOREIGN_END_SO_FAR.match(text, start)
            waits = begun is not None and begun.end() == len(text)
            return None if waits and not final else start
        following = skip(text, hit.end(), WHITESPACE)
        outside = self._shape.outside
        if following == len(text) or outside.begins_at(text, following):
            return hit.end() if final else None
        return hit.end() if outside.at(text, following) is not None else start

    def _title(self, text: str, pos: int, final: bool) -> int:
        """Read a name before the call that repeats it."""
        end, complete = self._addressee(text, pos)
        if complete:
            self._head = ""
            self._step = TagReader._outside
        return end

    def _addressee(self, text: str, pos: int) -> tuple[int, bool]:
        """Read a name. Returns where it or the text ends, and whether the name is complete and short enough."""
        hit = _ADDRESSEE_END.search(text, pos)
        end = hit.start() if hit is not None else len(text)
        self._head += text[pos:end]
        if len(self._head) > MAX_NAME:
            self._fail()
            return end, False
        return end, hit is not None

    def _no_call(self, pos: int) -> int:
        if self._calls and not self.undecided:
            self._done()
        else:
            self._fail()
        return pos

    def _name(self, text: str, pos: int, final: bool) -> int:
        if not self._head:
            pos = skip(text, pos, WHITESPACE)
        if self._shape.prose_starts:
            hit = _PROSE.search(text, pos)
            if hit is not None and not self._shape.heads.at(text, hit.start()):
                if not final and self._shape.heads.begins_at(text, hit.start()):
                    self._head += text[pos : hit.start()]
                    return hit.start()
                self._fail()
                return hit.start()
        pos, marker = self._collect(self._shape.heads, text, pos, final)
        if self.status == "failed" or marker is None:
            return pos
        if marker.action == "call":
            return self._begin_anew(text, pos, marker, final)
        if marker.text == self._shape.key_end and (glued := self._glued_key()) is not None:
            name, self._head = glued
            self._begin_arguments(name)
            self._begin()
            self.recoveries += 1
            self._step = TagReader._key
            return pos
        head = self._head.rstrip(_BEFORE_JSON) if marker.action == "open" else self._head
        name = self._shape.name(head)
        if self._shape.doubled_names and name not in self._tools:
            first, _, second = name.partition(".")
            name = first if first == second and first in self._tools else name
        self._head = ""
        if not name and self._calls:
            self._skip_nameless()
            return pos + len(marker.text) if marker.action == "head" else pos
        if not _NAME.fullmatch(name) or len(name) > MAX_NAME or not self._accepts(name):
            self._fail()
            return pos
        self._begin_arguments(name)
        self._step = TagReader._body
        self.recoveries += marker.action == "swallow"
        return pos + len(marker.text) if marker.action in ("head", "swallow") else pos

    def _glued_key(self) -> tuple[str, str] | None:
        """The tool and its parameter in a name that runs into the first key, because the key's start is missing."""
        if not self._shape.marked_keys:
            return None
        head = self._head.strip(WHITESPACE)
        for name in sorted(filter(head.startswith, self._tools), key=len, reverse=True):
            key = head[len(name) :].lstrip(WHITESPACE)
            names = arguments_schema(self._tools[name]).resolved().get("properties")
            if isinstance(names, dict) and key in names and self._accepts(name):
                return name, key
        return None

    def _begin_anew(self, text: str, pos: int, marker: Marker, final: bool) -> int:
        """Handle a start marker after a name: it stands for the start of the first key, or what precedes it was no
        name."""
        name = self._shape.name(self._head)
        key_end = self._shape.key_end
        if len(key_end) > 1 and _NAME.fullmatch(name) and self._accepts(name):
            start = pos + len(marker.text)
            end = text.find(key_end[0], start, start + MAX_NAME)
            waits = end < 0 and len(text) - start < MAX_NAME
            if not final and (waits or (end >= 0 and may_become(text, end, key_end))):
                return pos
            if end >= 0 and text.startswith(key_end, end):
                self._head = ""
                self._begin_arguments(name)
                self._begin()
                self.recoveries += 1
                self._step = TagReader._key
                return start
        if self._head.strip() or self._calls:
            self._fail()
            return pos
        self.recoveries += 1
        self._head = ""
        return pos + len(marker.text)

    def _begin_arguments(self, name: str) -> None:
        self._schema = arguments_schema(self._tools.get(name))
        self._writer = ArgumentWriter(self._schema, self._shape.trim)
        self._json = None
        self._called = name
        self._odd_keys: bool | None = None
        """Whether the tool has parameters with a `>` in their names."""
        self._junk = []
        self._junk_length = 0

    def _skip_nameless(self) -> None:
        """Skip a call without a name after other calls; some models end so."""
        self.recoveries += 1
        self.undecided = False
        self._raw.clear()
        self._step = TagReader._outside

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

    def _too_long(self) -> None:
        if self.undecided:
            self._fail()
            return
        self._add_junk(self._head)
        self._head = ""
        self._step = TagReader._body

    def _body(self, text: str, pos: int, final: bool) -> int:
        """Read between parameters. Text that is neither markup nor white space is the text of a custom tool's call, or
        comes after the call."""
        shape = self._shape
        start = skip(text, pos, WHITESPACE)
        if start > pos:
            limit = self._junk_limit(pos, start) if self._junk_length else start
            self._add_junk(text[pos:limit])
            if limit < start:
                return limit
        if start == len(text):
            return start
        hit = shape.body.find(text, start, _ANYWHERE, final=final)
        if hit is None or hit[0] > start:
            bare_json = text[start] == "{" and self._writer.empty and not self._junk_length
            if bare_json and self._json is None:
                self._begin()
                self._json = JsonValue(shape.body)
                self._step = TagReader._json_body
                return start
            limit = hit[0] if hit is not None else len(text)
            if hit is None:
                limit -= shape.body.held(text, start, _ANYWHERE)
            end = self._junk_limit(start, limit)
            self._add_junk(text[start:end])
            return len(text) if final and hit is None and end == limit else end
        marker = hit[1]
        if marker.action == "key":
            self._begin()
            self._step = TagReader._key
            return start + len(marker.text)
        if marker.action == "swallow":
            self.recoveries += marker.text not in shape.json_marks
            return start + len(marker.text)
        self._end_call()
        if self.status == "failed":
            return start
        if marker.action == "close":
            if not shape.call_close:
                self.status = "done"
            return start + len(marker.text)
        if shape.call_open:
            self.recoveries += 1
        elif not shape.call_close or marker.text != shape.end:
            self._done()
        return start

    def _junk_limit(self, start: int, end: int) -> int:
        """Where text outside of the parameters from `start` to `end` is too much for a call; `end` if it is not."""
        if not self.undecided or is_custom(self._tools.get(self._called)):
            return end
        return min(end, start + _MAX_LEAD - self._junk_length)

    def _add_junk(self, text: str) -> None:
        """Keep text outside of the parameters. As much as `_MAX_LEAD` before the first one shows that this is no call."""
        self._junk.append(text)
        if not self._junk_length and not text.strip(WHITESPACE):
            return  # white space before it does not count
        self.recoveries += not self._junk_length
        self._junk_length += len(text)
        if self._junk_limit(0, 1) == 0:
            self._fail()

    def _json_body(self, text: str, pos: int, final: bool) -> int:
        """Read all arguments as one JSON object, in place of parameters."""
        value = self._json
        assert value is not None
        pos, piece = value.read(text, pos, final=final)
        self._arguments(piece)
        if value.done or value.interrupted:
            self.recoveries += value.interrupted or not self._shape.json_marks
            self._arguments(value.closing() if value.interrupted else "")
            self._step = TagReader._body
        return pos

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
            self._step = TagReader._body
            return pos
        self.recoveries += marker.action == "open" or marker.text == "\n"
        value = ""
        if marker.text == "\n" and (split := _KEY_AND_VALUE.fullmatch(head)) is not None:
            head, value = split[1], split[2]
        key, hint = self._shape.key(head)
        if self._shape.cdata and not key:
            self.recoveries += 1
            key = self._next_name()
        if self._shape.type_open and marker.action == "head":
            self._head = key
            self._step = TagReader._type
            return pos + len(marker.text)
        self._begin_value(key, hint)
        if value:
            self._write(value)
        self._flush()
        if self._shape.cdata:
            self._step = TagReader._cdata_start
        else:
            gap = self._shape.value_open and marker.action == "head"
            self._step = TagReader._gap if gap else TagReader._value
        return pos + len(marker.text)

    def _more_of_key(self, text: str, pos: int, final: bool) -> int | None:
        """The number of characters from the `>` at `pos` on that belong to the key; None if more text is needed."""
        if not self._shape.key_attribute:
            return self._more_of_known_key(text, pos, final)
        quote = next((mark for mark in "\"'" if self._head.count(mark) % 2), "")
        if not quote:
            return 0
        hit = _QUOTED_KEY[quote].match(text, pos, pos + MAX_NAME)
        if hit is not None:
            return hit.end() - 1 - pos
        begun = _KEY_SO_FAR.match(text, pos)
        waits = begun is not None and begun.end() == len(text) and len(text) - pos <= MAX_NAME
        return None if waits and not final else 0

    def _more_of_known_key(self, text: str, pos: int, final: bool) -> int | None:
        """Like `_more_of_key`, for keys without quotation marks: the tool has such a parameter."""
        names = self._schema.resolved().get("properties")
        if not isinstance(names, dict):
            return 0
        if self._odd_keys is None:
            self._odd_keys = any(">" in name for name in islice(names, _MANY_KEYS))
        if not self._odd_keys:
            return 0
        head = self._shape.key(self._head)[0]
        if pos + 1 == len(text) and not final:
            return None
        end = pos
        while (hit := _MORE_OF_KEY.match(text, end + 1)) is not None:
            if hit.end() - pos > MAX_NAME:
                break
            if hit.end() == len(text) and not final:
                return None
            if text[hit.end() : hit.end() + 1] != ">":
                break
            if head + text[pos : hit.end()] in names:
                return hit.end() - pos
            end = hit.end()
            if end + 1 == len(text) and not final:
                return None
        return 0

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
        self._step = TagReader._gap
        return end + len(closing) if end >= 0 else start

    def _next_name(self) -> str:
        """The name of a parameter that has none, from the order of the tool's parameters."""
        names = list(self._schema.resolved().get("properties") or ())
        return names[self._writer.count] if self._writer.count < len(names) else "value"

    def _cdata_start(self, text: str, pos: int, final: bool) -> int:
        """At the start of a value that may be a CDATA section."""
        if text.startswith(_CDATA, pos):
            self._step = TagReader._cdata_text
            return pos + len(_CDATA)
        if not final and may_become(text, pos, _CDATA):
            return pos
        self._step = TagReader._value
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
        self._step = TagReader._cdata_tail
        return end + len(_CDATA_END)

    def _cdata_tail(self, text: str, pos: int, final: bool) -> int:
        """After a CDATA section: the end of the value."""
        start = skip(text, pos, WHITESPACE)
        close = self._shape.value_close
        if start == len(text) or (not final and may_become(text, start, close)):
            return start
        self._step = TagReader._body
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
            self._step = TagReader._value
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
                self._step = TagReader._value
                return hit[0] + len(hit[1].text)
        self.recoveries += 1
        self._step = TagReader._value  # the value without its own start marker
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
        self._step = TagReader._body
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

    def _end_call(self) -> None:
        text = without_margins("".join(self._junk))
        if self._json is not None or not text.strip(_SEPARATORS):
            text = text.strip(_AROUND_JSON)
        custom = is_custom(self._tools.get(self._called))
        if text and self.undecided and not custom:
            self._fail()  # its arguments are not known
            return
        if text and custom and self._json is None and self._writer.empty:
            self._begin()
            self._arguments(custom_arguments(text))
            text = ""
        elif self._json is None:
            self._begin()
            self._writer.finish()
        self._flush()
        self._end()
        if text:
            self.out.append(TextDelta(text))
        self._calls += 1
        self._step = TagReader._outside

    def _done(self) -> None:
        self.status = "done"
        self.unclosed = True
        self.recoveries += 1

    def _fail(self) -> None:
        self.status = "failed"
        self.unclosed = self._calls > 0
