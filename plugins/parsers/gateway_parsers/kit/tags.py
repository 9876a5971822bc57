"""Calls as tags, one per parameter: `<function=f><parameter=a>1</parameter></function>` and similar."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from html import unescape

from msgspec import Struct

from gateway_parsers.kit.arguments import Hint, Trim
from gateway_parsers.kit.markers import Marker, MarkerSet, check_distinct

_TOKENIZER_SPACE = "\u0120"
"""The space as some tokenizers show it."""
_ATTRIBUTE = re.compile(r"([\w:.-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")


class TagShape(Struct, frozen=True, kw_only=True, dict=True):
    """Markup of the calls.

    `start` and `end` enclose one or more calls. A call consists of `call_open`, its name up to `head_end`, and
    parameters. A parameter consists of `key_open`, its key up to `key_end`, `value_open` if not empty, and its value up
    to `value_close`.
    """

    start: str
    end: str
    call_open: str
    """Empty if the name follows `start`."""
    call_close: str
    """Empty if `end` ends the call."""
    key_open: str
    value_close: str
    head_end: tuple[str, ...] = (">",)
    """Ends of the name. A parameter or an end of the call directly after the name also ends it."""
    key_end: str = ">"
    value_open: str = ""
    type_open: str = ""
    """Start of a value's type, which may precede `value_open`; empty if the markup has none."""
    type_close: str = ""
    more_call_opens: tuple[str, ...] = ()
    more_key_opens: tuple[str, ...] = ()
    """Other spellings of `call_open` and `key_open`."""
    more_starts: tuple[str, ...] = ()
    """Additional texts that start calls: older spellings, or `call_open` for models that omit `start`."""
    prose_starts: tuple[str, ...] = ()
    """Those starts that may be prose, which is then shown as it is."""
    prefaces: tuple[str, ...] = ()
    """Start of markup before `start` that names a recipient, up to `preface_end`, and is ignored."""
    preface_end: str = ""
    doubled_names: bool = False
    """Whether a tool `f` may be called `f.f`."""
    noise: tuple[str, ...] = ()
    """Markup before or between calls that is ignored."""
    titled: str = ""
    """Noise that a name may follow, which is repeated in the call."""
    json_marks: tuple[str, ...] = ()
    """Marks around arguments that are one JSON object."""
    name_attribute: str = ""
    """The attribute with the name; empty if the whole head is the name."""
    key_attribute: str = ""
    type_attribute: str = ""
    """The attribute with a value's type: `true` or `string` for a string, anything else for JSON."""
    escaped: bool = False
    """Whether attributes have entities: `&quot;`, `&amp;`, `&lt;` and others."""
    cdata: bool = False
    """Whether values may be CDATA sections, parameters without a name are named by their order, and tags may have the
    tokenizer's sign for a space."""
    trim: Trim = "nothing"

    def __post_init__(self) -> None:
        check_distinct(self.starts, self.ends)

    @property
    def starts(self) -> tuple[str, ...]:
        return (self.start, *self.more_starts, *self.prefaces)

    @property
    def ends(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for text in (self.end, self.call_close) if text))

    @property
    def bare(self) -> frozenset[str]:
        return frozenset()

    @property
    def markup(self) -> tuple[str, ...]:
        texts = (
            *self.starts,
            self.end,
            self.call_open,
            self.call_close,
            self.key_open,
            self.value_close,
            *(text for text in self.noise if text.startswith("<")),
        )
        return tuple(dict.fromkeys(text for text in (*texts, self.value_open) if text))

    @cached_property
    def outside(self) -> MarkerSet:
        """Markers that may precede a call."""
        return _set(
            opens=(self.call_open, *self.more_call_opens),
            starts=(self.start, *self.more_starts),
            ends=(self.end, self.call_close),
            noise=self.noise,
        )

    @cached_property
    def heads(self) -> MarkerSet:
        """Markers that may follow a name: its own end, or what can only follow it."""
        return _set(
            heads=self.head_end,
            keys=self.key_opens,
            ends=(self.call_close, *self.section_ends),
            starts=(self.opener,) if self.opener else (),
            opens=() if self.name_attribute else ("{",),
            noise=self.stray,
        )

    @property
    def section_ends(self) -> tuple[str, ...]:
        """`end`, and its other spellings."""
        return (self.end, *(text for text in self.noise if text.startswith("</")))

    @property
    def marked_keys(self) -> bool:
        """Whether keys are between two markers, and not in a tag."""
        return len(self.key_end) > 1 and not self.key_attribute

    @property
    def opener(self) -> str:
        """The marker directly before a name, if no attributes follow it."""
        opener = self.call_open or self.start
        return opener if opener.endswith(">") else ""

    @cached_property
    def stray(self) -> tuple[str, ...]:
        """Markup of parameters that stands at a wrong place."""
        texts = (self.value_close, self.value_open, self.key_end, self.type_open, self.type_close)
        return tuple(text for text in texts if len(text) > 1)

    @property
    def key_opens(self) -> tuple[str, ...]:
        return (self.key_open, *self.more_key_opens)

    @cached_property
    def body(self) -> MarkerSet:
        """Markers that may occur between parameters."""
        return _set(
            keys=self.key_opens,
            noise=(*self.json_marks, *self.stray),
            closes=(self.call_close or self.end,),
            ends=self.section_ends,
            opens=(self.call_open,),
            starts=(self.start, *self.more_starts),
        )

    @cached_property
    def keys(self) -> MarkerSet:
        """Markers that end a key: its own end, or what can only follow it."""
        in_line = (self.key_end == ">") != bool(self.key_attribute)
        return _set(
            heads=(self.key_end, "\n") if in_line else (self.key_end,),
            opens=(self.value_open,),
            ends=(self.call_close, *self.section_ends),
            starts=(self.key_open,) if self.marked_keys else (),
        )

    @cached_property
    def gaps(self) -> MarkerSet:
        """Markers that may follow a key."""
        return _set(
            opens=(self.value_open,),
            keys=(self.key_open,),
            closes=(self.call_close,),
            ends=self.section_ends,
            noise=(self.key_end,) if self.marked_keys else (),
        )

    @property
    def drifts(self) -> tuple[str, ...]:
        """Beginnings of misspelt ends of a value: without its `>`, or without the prefix of the family's tags."""
        if self.value_close.startswith("<|close|>"):
            return (self.value_close.removesuffix("<|sep|>"),)
        if not self.value_close.startswith("</"):
            return ()
        own = self.value_close.removesuffix(">")
        plain = "</parameter"
        return (own, plain) if own != plain and own.endswith("parameter") else (own,)

    @cached_property
    def values(self) -> MarkerSet:
        """Markers that end a value: its own end, or what can only follow it."""
        key = f"{self.key_open} {self.key_attribute}=" if self.key_attribute else self.key_open
        return _set(
            closes=(self.value_close,),
            keys=(key,),
            ends=(self.call_close, *self.section_ends),
            opens=(self.value_open or self.key_open.removesuffix("="),),
            drifts=self.drifts,
        )

    @cached_property
    def after_value(self) -> MarkerSet:
        """Markers that may follow a value."""
        return _set(
            closes=(self.value_close,),
            keys=self.key_opens,
            ends=(self.call_close, *self.section_ends),
            starts=(self.start, *self.more_starts, self.call_open),
        )

    @cached_property
    def next_value(self) -> MarkerSet:
        """Markers that show that a value without its own end has ended: another parameter, or another call."""
        return _set(
            closes=(self.value_close,),
            keys=(*self.key_opens, "" if self.key_end == ">" else self.key_end),
            starts=(self.start, *self.more_starts, self.call_open),
        )

    @cached_property
    def after_inner_end(self) -> MarkerSet:
        """Markers that may follow an end of the call inside a value: the value's own end, or another call."""
        return _set(
            closes=(self.value_close,), starts=(self.start, *self.more_starts, self.call_open)
        )

    @cached_property
    def preface(self) -> MarkerSet:
        """Markers that end a preface."""
        return _set(heads=(self.preface_end,))

    def name(self, head: str) -> str:
        """The name in the text between `call_open` and `head_end`; empty if there is none."""
        return self._label(head, self.name_attribute)

    def key(self, head: str) -> tuple[str, Hint]:
        """The key, and the type that the markup declares for its value."""
        hint: Hint = None
        if self.type_attribute:
            declared = self._attributes(head).get(self.type_attribute)
            if declared is not None:
                hint = "string" if declared in ("true", "string") else "json"
        return self._label(head, self.key_attribute), hint

    def _label(self, head: str, attribute: str) -> str:
        if self.cdata:
            head = head.replace(_TOKENIZER_SPACE, " ")
        if attribute:
            attributes = self._attributes(head)
            if attribute in attributes:
                return attributes[attribute].strip()
            head = head.strip().removeprefix(attribute).lstrip(" =")
        return head.strip().strip("\"'").strip()

    def _attributes(self, head: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for key, double, single, plain in _ATTRIBUTE.findall(head):
            value = double or single or plain
            if self.escaped and "&" in value:
                value = unescape(value)
            found.setdefault(key, value)
        return found


def hint_of(declared: str) -> Hint:
    """The hint of a value's type between `type_open` and `type_close`. `any` is plain text."""
    name = declared.partition("[")[0].strip().lower()
    if not name:
        return None
    return "string" if name in ("string", "any") else "json"


def attribute_of(head: str, attribute: str) -> str:
    """The value of an attribute in a tag, quoted or not; empty if it is missing."""
    for key, double, single, plain in _ATTRIBUTE.findall(head):
        if key == attribute:
            return str(double or single or plain).strip()
    return ""


_ACTIONS: Mapping[str, str] = {
    "opens": "open",
    "starts": "call",
    "closes": "close",
    "ends": "stop",
    "noise": "swallow",
    "keys": "key",
    "heads": "head",
    "drifts": "drift",
}


def _set(**groups: Sequence[str]) -> MarkerSet:
    """Create a marker set from markers grouped by action. The first group with a text wins."""
    found: dict[str, Marker] = {}
    for group, texts in groups.items():
        for text in texts:
            if text and text not in found:
                found[text] = Marker(text, _ACTIONS[group])  # type: ignore[arg-type]
    return MarkerSet(found.values())
