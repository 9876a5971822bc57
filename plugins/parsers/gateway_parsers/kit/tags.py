"""Calls written as tags, one per parameter: `<function=f><parameter=a>1</parameter></function>` and its kin."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from gateway_parsers.kit.arguments import Hint, Trim
from gateway_parsers.kit.markers import Marker, MarkerSet

_ATTRIBUTE = re.compile(r"([\w:.-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")


class TagShape(Struct, frozen=True, kw_only=True, dict=True):
    """How calls of this kind are marked.

    `start` and `end` enclose one call or several. A call begins with `call_open`, which its name follows up to
    `head_end`; each parameter with `key_open`, which its key follows up to `key_end`; then comes its value (behind
    `value_open`, where that is not empty) up to `value_close`.
    """

    start: str
    end: str
    call_open: str
    """Empty: the name follows `start`."""
    call_close: str
    """Empty: `end` ends the call."""
    key_open: str
    value_close: str
    head_end: tuple[str, ...] = (">",)
    """What ends the name. Where a parameter, or the end of the call, follows the name directly, that does too."""
    key_end: str = ">"
    value_open: str = ""
    more_starts: tuple[str, ...] = ()
    """Further texts that begin calls: older spellings, or `call_open` for models that forget `start`."""
    prefaces: tuple[str, ...] = ()
    """What begins markup before `start` that names an addressee, up to `preface_end`, and says nothing else."""
    preface_end: str = ""
    doubled_names: bool = False
    """A tool `f` may be called `f.f`."""
    noise: tuple[str, ...] = ()
    """Markup that may stand before or between calls, and says nothing."""
    json_marks: tuple[str, ...] = ()
    """What stands around arguments that are one JSON object."""
    name_attribute: str = ""
    """The attribute that is the name; empty: all of the head is."""
    key_attribute: str = ""
    type_attribute: str = ""
    """The attribute that says whether a value is a string: `true` or `string` mean it is, anything else JSON."""
    escaped: bool = False
    """Attributes are written with `&quot;` and `&amp;`."""
    trim: Trim = "nothing"

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
        )
        return tuple(dict.fromkeys(text for text in (*texts, self.value_open) if text))

    @cached_property
    def outside(self) -> MarkerSet:
        """What may stand before a call."""
        return _set(
            opens=(self.call_open,),
            starts=(self.start, *self.more_starts),
            ends=(self.end, self.call_close),
            noise=self.noise,
        )

    @cached_property
    def heads(self) -> MarkerSet:
        """What may follow a name."""
        return _set(
            heads=self.head_end,
            keys=(self.key_open,),
            ends=(self.call_close, self.end),
        )

    @cached_property
    def body(self) -> MarkerSet:
        """What may stand between parameters."""
        return _set(
            keys=(self.key_open,),
            noise=self.json_marks,
            closes=(self.call_close or self.end,),
            ends=(self.end,),
            opens=(self.call_open,),
            starts=(self.start, *self.more_starts),
        )

    @cached_property
    def keys(self) -> MarkerSet:
        """What ends a key: its own end, or what can only stand behind it."""
        in_line = self.key_end == ">" and not self.key_attribute
        return _set(
            heads=(self.key_end, "\n") if in_line else (self.key_end,),
            opens=(self.value_open,),
            ends=(self.call_close, self.end),
        )

    @cached_property
    def gaps(self) -> MarkerSet:
        """What may follow a key."""
        return _set(
            opens=(self.value_open,),
            keys=(self.key_open,),
            closes=(self.call_close,),
            ends=(self.end,),
        )

    @cached_property
    def values(self) -> MarkerSet:
        """What ends a value: its own end, or what can only stand behind it."""
        key = f"{self.key_open} {self.key_attribute}=" if self.key_attribute else self.key_open
        return _set(
            closes=(self.value_close,),
            keys=(key,),
            ends=(self.call_close, self.end),
            opens=(self.value_open or self.key_open.removesuffix("="),),
        )

    @cached_property
    def behind_value(self) -> MarkerSet:
        """What may follow a value."""
        return _set(
            closes=(self.value_close,),
            keys=(self.key_open,),
            ends=(self.call_close, self.end),
            starts=(self.start, *self.more_starts, self.call_open),
        )

    @cached_property
    def next_value(self) -> MarkerSet:
        """What shows that a value has ended before, but for its own end: another parameter, or another call."""
        return _set(
            closes=(self.value_close,),
            keys=(self.key_open, "" if self.key_end == ">" else self.key_end),
            starts=(self.start, *self.more_starts, self.call_open),
        )

    @cached_property
    def beyond(self) -> MarkerSet:
        """What may follow an end of the call that stands in a value: the value's own end, or another call."""
        return _set(
            closes=(self.value_close,), starts=(self.start, *self.more_starts, self.call_open)
        )

    @cached_property
    def preface(self) -> MarkerSet:
        """What ends a preface."""
        return _set(heads=(self.preface_end,))

    def name(self, head: str) -> str:
        """The name in what stands between `call_open` and `head_end`; empty if there is none."""
        return self._label(head, self.name_attribute)

    def key(self, head: str) -> tuple[str, Hint]:
        """A key, and what the markup says of its value."""
        hint: Hint = None
        if self.type_attribute:
            said = self._attributes(head).get(self.type_attribute)
            if said is not None:
                hint = "string" if said in ("true", "string") else "json"
        return self._label(head, self.key_attribute), hint

    def _label(self, head: str, attribute: str) -> str:
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
            if self.escaped:
                value = value.replace("&quot;", '"').replace("&amp;", "&")
            found.setdefault(key, value)
        return found


def attribute_of(head: str, attribute: str) -> str:
    """The value of an attribute in a tag, quoted or not; empty if it has none of that name."""
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
}


def _set(**groups: Sequence[str]) -> MarkerSet:
    """Markers by what they do; the first group that names a text has it."""
    found: dict[str, Marker] = {}
    for group, texts in groups.items():
        for text in texts:
            if text and text not in found:
                found[text] = Marker(text, _ACTIONS[group])  # type: ignore[arg-type]
    return MarkerSet(found.values())
