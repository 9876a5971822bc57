"""Reads calls in tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gateway.sdk import TextDelta, ToolDefinition
from gateway_parsers.kit.argument_types import arguments_schema
from gateway_parsers.kit.arguments import ArgumentWriter
from gateway_parsers.kit.free_text import custom_arguments, is_custom, without_margins
from gateway_parsers.kit.json_value import JsonValue
from gateway_parsers.kit.keyword_arguments import keyword_arguments
from gateway_parsers.kit.markers import WHITESPACE, Marker, MarkerContext
from gateway_parsers.kit.names import offered_name
from gateway_parsers.kit.reader import may_become, skip
from gateway_parsers.kit.syntax import MAX_NAME, Accept
from gateway_parsers.kit.tag_parameters import TagParameters
from gateway_parsers.kit.tags import TagShape

_NAME: Final = re.compile(r"[^\s<>{}\[\]()\"'|]+")
_GLUED: Final = re.compile(r"([\w.:-]+)\s*([ \t(].*)", re.DOTALL)
"""A name with what may be its arguments."""
_AFTER_NAME: Final = "<{(>:" + WHITESPACE
_PROSE: Final = re.compile(r"[\s<{]")
"""What ends a name."""
_ADDRESSEE_END: Final = re.compile(r"[^\w.\-]")
_ANYWHERE: Final = MarkerContext()
_BEFORE_JSON: Final = " \t:>("
"""What may be between a name and its arguments as JSON on one line."""
_FOREIGN_END: Final = re.compile(r"</[\w:.-]{1,64}>")
_FOREIGN_END_SO_FAR: Final = re.compile(r"<(?:/[\w:.-]{0,64})?")
_AROUND_JSON: Final = ")}]>;,`" + WHITESPACE
_LEAD_OF_JSON: Final = re.compile(r"\s*(?:`{1,3}\w{0,16}|[\[(])\s*")
_NOTHING: Final = ("null", "None", "[]")
_SEPARATORS: Final = ",;" + WHITESPACE
"""Junk between parameters that is no text."""
_MAX_LEAD: Final = 400
"""Number of characters between the name of a function and its first parameter that make it no call."""
_MAX_JUNK: Final = 40
"""Maximum number of meaningless characters between a key and its value."""


class TagReader(TagParameters):
    """The reader of `TagShape`. A call starts when its name is known. String values are emitted as they arrive."""

    __slots__ = ("_called", "_calls", "_junk", "_junk_length", "_names", "_tools")

    def __init__(
        self,
        shape: TagShape,
        marker: str,
        accept: Accept | None,
        tools: Mapping[str, ToolDefinition],
        *,
        names: tuple[str, ...] = (),
    ) -> None:
        """`names`: what the first call may be named; anything else is no call from the first character that differs.
        Empty: anything."""
        named = marker == shape.call_open or not shape.call_open
        first = TagReader._name if named else TagReader._outside
        super().__init__(
            shape, marker, accept, TagReader._preface if marker in shape.prefaces else first
        )
        self._tools = tools
        self._names = names
        self._calls = 0
        self._called = ""
        """The name of the open call, which starts with its arguments."""
        self._junk: list[str] = []
        """Text in the open call outside of its parameters."""
        self._junk_length = 0

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
        known = name in self._tools and not self._names
        if not stopped or not known or not self._accepts(name):
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
        name = offered_name(self._called, self._tools)
        if text[start] != "{" or not _NAME.fullmatch(name) or not self._accepts(name):
            outside = self._shape.outside
            if outside.at(text, start) is not None:
                self._called = ""
                self._step = TagReader._outside
            elif final or not outside.begins_at(text, start):
                self.recoveries += 1
                self.status = "done"  # the header of a message that is text
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
        if self._names:
            reached = self._first_name(text, pos)
            if self._names:
                return reached
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
        in_line = None if self._shape.name_attribute else _GLUED.fullmatch(head.lstrip())
        if in_line is not None and in_line[1] in self._tools and self._accepts(in_line[1]):
            return self._begin_glued(in_line[1], in_line[2], marker, pos)
        if self._shape.doubled_names and name not in self._tools:
            first, _, second = name.partition(".")
            name = first if first == second and first in self._tools else name
        name = offered_name(name, self._tools)
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

    def _first_name(self, text: str, pos: int) -> int:
        """Read characters of a name that is one of `_names`. They are empty once it is known to be one; the characters
        are then read again."""
        start = pos
        while pos < len(text):
            head = self._head + text[start:pos]
            if head in self._names and text[pos] in _AFTER_NAME:
                self._names = ()
                return start
            head += text[pos]
            if not any(name.startswith(head) for name in self._names):
                self._fail()
                break
            pos += 1
        self._head += text[start:pos]
        return pos

    def _begin_glued(self, name: str, rest: str, marker: Marker, pos: int) -> int:
        """Begin a call whose name runs into what may be its arguments, `rest`."""
        self._head = ""
        self._begin_arguments(name)
        self._step = TagReader._body
        self._add_junk(rest)
        if marker.action not in ("head", "swallow") or self.status == "failed":
            return pos
        if marker.text == "\n":
            self._add_junk("\n")
        return pos + len(marker.text)

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
        self._odd_keys = None
        self._junk = []
        self._junk_length = 0

    def _skip_nameless(self) -> None:
        """Skip a call without a name after other calls; some models end so."""
        self.recoveries += 1
        self.undecided = False
        self._raw.clear()
        self._step = TagReader._outside

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
            if self._writer.empty and self._json is None:
                if text[start] == "{" and self._is_lead_of_json(""):
                    self._begin()
                    self._junk = []
                    self._junk_length = 0
                    self._json = JsonValue(shape.body)
                    self._step = TagReader._json_body
                    return start
                if self._is_lead_of_json(text[start]):
                    self._add_junk(text[start])
                    return start + 1
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

    def _is_lead_of_json(self, more: str) -> bool:
        """Whether what precedes parameters, with `more`, is no text if an object with all arguments follows."""
        if not self._junk_length and not more:
            return True
        if self._junk_length > _MAX_JUNK:
            return False
        return _LEAD_OF_JSON.fullmatch("".join(self._junk) + more) is not None

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

    def _end_call(self) -> None:
        text = without_margins("".join(self._junk))
        if self._json is not None or not text.strip(_SEPARATORS):
            text = text.strip(_AROUND_JSON)
        custom = is_custom(self._tools.get(self._called))
        if text in _NOTHING and not custom and self._json is None and self._writer.empty:
            self.recoveries += bool(text)
            text = ""
        keywords = None
        if text and self.undecided and not custom:
            keywords = keyword_arguments(text, self._schema)
        if keywords is not None:
            self._begin()
            self._arguments(keywords)
            self._end()
            self._calls += 1
            self._step = TagReader._outside
            return
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
