"""Strings that record the origin of their characters through the operations of a chat template.

Texts of a request are passed to templates as `MarkedText` strings, which compare, search and measure like any string.
Results of operators, methods and filters are marked too: exactly for operations that this module implements, otherwise
entirely as text from outside. Text of the template itself is an ordinary `str`.
"""

from __future__ import annotations

import json
import operator
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from threading import Lock
from typing import Any, SupportsIndex, TypeAlias

from jinja2 import Undefined

from gateway.sdk.engines import Origin, Part

# Looking up a member of an enumeration in its class costs several times as much as a name of the module.
_TEMPLATE, _OUTSIDE = Origin.TEMPLATE, Origin.OUTSIDE

Runs: TypeAlias = tuple[tuple[int, Origin], ...]
"""Lengths and origins of consecutive runs. Runs are not empty, and adjacent runs differ in origin."""


class MarkedText(str):
    """A string of which at least a part is not from the template."""

    __slots__ = ()

    @property
    def runs(self) -> Runs:
        raise NotImplementedError

    def _cut(self, start: int, end: int) -> str:
        """`self[start:end]`, where `0 <= start <= end <= len(self)`."""
        raise NotImplementedError

    def _map_characters(self, change: Callable[[str], str]) -> str:
        """`change(self)` for a `change` that maps each character independently."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self

    def __add__(self, other: str) -> str:
        return _added(self, other) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> str:
        return _added(other, self) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> str:
        return repeated(self, str.__mul__(self, count))

    def __rmul__(self, count: SupportsIndex) -> str:
        return repeated(self, str.__mul__(self, count))

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if isinstance(key, slice):
            start, end, step = key.indices(len(self))
            if step == 1:
                return self._cut(start, max(start, end))
            return concat([self._cut(at, at + 1) for at in range(start, end, step)])
        at = operator.index(key)
        at += len(self) if at < 0 else 0
        if not 0 <= at < len(self):
            raise IndexError("string index out of range")
        return self._cut(at, at + 1)

    def __iter__(self) -> Iterator[str]:
        return (self._cut(at, at + 1) for at in range(len(self)))

    def strip(self, chars: str | None = None, /) -> str:
        start = len(self) - len(str.lstrip(self, chars))
        return self._cut(start, max(start, len(str.rstrip(self, chars))))

    def lstrip(self, chars: str | None = None, /) -> str:
        return self._cut(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> str:
        return self._cut(0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> str:
        return self._cut(len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> str:
        return self._cut(0, len(str.removesuffix(self, suffix)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._cut_pieces(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._cut_pieces(str.rsplit(self, sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[str]:
        lines: list[str] = []
        at = 0
        whole = str.splitlines(self, True)
        for shown, line in zip(str.splitlines(self, keepends), whole, strict=True):
            lines.append(self._cut(at, at + len(shown)))
            at += len(line)
        return lines

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        before, found, _ = str.partition(self, sep)
        return self._cut_three(len(before), len(found))

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        before, found, _ = str.rpartition(self, sep)
        return self._cut_three(len(before), len(found))

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        return replaced(self, old, new, count)

    def join(self, iterable: Iterable[str], /) -> str:
        return joined(self, iterable)

    def upper(self) -> str:
        return self._map_characters(str.upper)

    def lower(self) -> str:
        return self._map_characters(str.lower)

    def _cut_pieces(self, pieces: Sequence[str], sep: str | None) -> list[str]:
        made: list[str] = []
        at = 0
        for piece in pieces:
            if sep is None:
                at = str.find(self, piece, at)
            made.append(self._cut(at, at + len(piece)))
            at += len(piece) + (0 if sep is None else len(sep))
        return made

    def _cut_three(self, start: int, length: int) -> tuple[str, str, str]:
        end = start + length
        return self._cut(0, start), self._cut(start, end), self._cut(end, len(self))


class _SingleOrigin(MarkedText):
    """A string with a single origin."""

    __slots__ = ()

    origin: Origin

    @property
    def runs(self) -> Runs:
        return ((len(self), self.origin),) if self else ()

    def _cut(self, start: int, end: int) -> str:
        return type(self)(str.__getitem__(self, slice(start, end)))

    def _map_characters(self, change: Callable[[str], str]) -> str:
        return type(self)(change(self))

    def __iter__(self) -> Iterator[str]:
        return map(type(self), str.__iter__(self))

    def strip(self, chars: str | None = None, /) -> str:
        return type(self)(str.strip(self, chars))


class OutsideText(_SingleOrigin):
    """Text from outside."""

    __slots__ = ()

    origin = Origin.OUTSIDE


class AssistantText(_SingleOrigin):
    """Text of earlier assistant messages."""

    __slots__ = ()

    origin = Origin.ASSISTANT


class MixedOriginText(MarkedText):
    """A string of several origins."""

    __slots__ = ("_ends", "_runs")

    _runs: Runs
    _ends: Sequence[int] | None
    """End offset of each run, once they are needed."""

    @property
    def runs(self) -> Runs:
        return self._runs

    def _cut(self, start: int, end: int) -> str:
        runs: list[tuple[int, Origin]] = []
        ends = self._ends
        if ends is None:
            ends = self._ends = tuple(accumulate(length for length, _ in self._runs))
        index = bisect_right(ends, start)
        at = ends[index - 1] if index else 0
        while at < end:
            length, origin = self._runs[index]
            runs.append((min(at + length, end) - max(at, start), origin))
            at += length
            index += 1
        return _from_runs(str.__getitem__(self, slice(start, end)), runs)

    def _map_characters(self, change: Callable[[str], str]) -> str:
        changed = change(self)
        if len(changed) == len(self):
            return _from_runs(changed, self._runs)
        return concat(_from_runs(change(text), [(1, origin)]) for text, origin in parts_of(self))

    def __iter__(self) -> Iterator[str]:
        for text, origin in parts_of(self):
            for character in text:
                yield _from_runs(character, [(1, origin)])


def _from_runs(text: str, runs: Sequence[tuple[int, Origin]]) -> str:
    """`text` with these origins. For a single run its length is ignored."""
    if not text:
        return ""
    if len(runs) == 1:
        origin = runs[0][1]
        if origin is _TEMPLATE:
            return str.__str__(text)
        return OutsideText(text) if origin is _OUTSIDE else AssistantText(text)
    mixed = MixedOriginText(text)
    mixed._runs = tuple(runs)
    mixed._ends = None
    return mixed


def parts_of(text: str) -> list[Part]:
    """The parts of a text, as ordinary strings with their origins."""
    if not isinstance(text, MarkedText):
        return [(str(text), _TEMPLATE)] if text else []
    parts: list[Part] = []
    plain = str.__str__(text)
    at = 0
    for length, origin in text.runs:
        end = at + length
        parts.append((plain[at:end], origin))
        at = end
    return parts


_ORIGINS: Mapping[type[str], Origin] = {
    str: Origin.TEMPLATE,
    OutsideText: OutsideText.origin,
    AssistantText: AssistantText.origin,
}
"""The origins of the types that have one."""
_MARKED = frozenset((OutsideText, AssistantText, MixedOriginText))


def _runs_of(string: str) -> Runs:
    origin = _ORIGINS.get(type(string))
    if origin is None:
        return string.runs if isinstance(string, MarkedText) else ((len(string), _TEMPLATE),)
    return ((len(string), origin),)


def concat(strings: Iterable[str]) -> str:
    """The concatenated strings."""
    strings = list(strings)
    if len(strings) == 1 and strings[0] and type(strings[0]) in _MARKED:
        return strings[0]
    text = "".join(strings)
    runs: list[tuple[int, Origin]] = []
    size, last = 0, _TEMPLATE
    for string in strings:
        whole = _ORIGINS.get(type(string))
        if whole is last:
            size += len(string)
            continue
        for length, origin in _runs_of(string) if whole is None else ((len(string), whole),):
            if origin is last:
                size += length
            elif length:
                if size:
                    runs.append((size, last))
                size, last = length, origin
    if not runs and last is _TEMPLATE:
        return text
    runs.append((size, last))
    return _from_runs(text, runs)


def _added(first: str, second: str) -> str:
    """`concat` of two, of which templates make long chains."""
    if not first or not second:
        return concat((first, second))
    runs = [*_runs_of(first)]
    length, origin = runs[-1]
    later = _runs_of(second)
    if later[0][1] is origin:
        runs[-1] = (length + later[0][0], origin)
        later = later[1:]
    runs += later
    return _from_runs(str.__add__(first, second), runs)


def joined(separator: str, strings: Iterable[str]) -> str:
    """`separator.join(strings)`; each part keeps its origin."""
    strings = list(strings)
    str.join("", strings)  # raises what `join` raises for values that are not strings
    if len(strings) < 2:
        return concat(strings)
    between = [string for each in strings for string in (separator, each)]
    return concat(between[1:])


def replaced(text: str, old: str, new: str, count: SupportsIndex = -1) -> str:
    """`text.replace(old, new, count)`; what remains of `text` keeps its origin."""
    result = str.replace(text, old, new, count)
    if not isinstance(text, MarkedText) and not isinstance(new, MarkedText):
        return result
    if not old:
        return OutsideText(result)
    pieces = text.split(old, count) if isinstance(text, MarkedText) else str.split(text, old, count)
    return joined(new, pieces)


def repeated(text: str, result: str) -> str:
    """`result`, which is `text` repeated, with the origins of `text`."""
    return concat([text] * (len(result) // len(text))) if text else result


def mark_outside(value: Any) -> Any:
    """A copy of a JSON value with all strings marked as from outside. Not recursive, so depth is not limited by the
    stack."""
    if isinstance(value, str):
        return OutsideText(value)
    if not isinstance(value, dict | list | tuple):
        return value
    holder: list[Any] = [None]
    todo: list[tuple[Any, Any, Any]] = [(holder, 0, value)]
    while todo:
        place, key, node = todo.pop()
        copy: Any
        if isinstance(node, dict):
            copy = {}
            for name, each in node.items():
                name = OutsideText(name) if isinstance(name, str) else name
                copy[name] = OutsideText(each) if isinstance(each, str) else each
                if isinstance(each, dict | list | tuple):
                    todo.append((copy, name, each))
        else:
            copy = [OutsideText(each) if isinstance(each, str) else each for each in node]
            todo += [
                (copy, index, each)
                for index, each in enumerate(node)
                if isinstance(each, dict | list | tuple)
            ]
        place[key] = copy
    return holder[0]


class Room:
    """Memory that is left for the JSON texts of values that are kept together."""

    def __init__(self, size: int) -> None:
        """`size`, in bytes."""
        self._left = size
        self._lock = Lock()

    def take(self, text: str) -> bool:
        """Whether there is room for a text, which is then taken."""
        size = sys.getsizeof(text)
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True


class KeptObject(dict[str, Any]):
    """A marked object that several prompts share. It has text from outside, and is not changed.

    Names that begin with `_` are not shown to templates."""

    __slots__ = ("_room", "_texts")

    _room: Room
    """For its JSON texts. Without one, none is kept."""
    _texts: dict[object, OutsideText]
    """Its JSON texts, by their form."""


class JsonObject(dict[str, Any]):
    """A marked object that templates which print it show as JSON."""

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)


class KeptList(list[Any]):
    """Likewise, a list."""

    __slots__ = ("_room", "_texts")

    _room: Room
    _texts: dict[object, OutsideText]


def keep_texts(value: Any, room: Room) -> None:
    """Let the JSON texts of `value`, and of the objects and lists of its kind in it, be kept as far as there is room."""
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, KeptObject | KeptList):
            each._texts, each._room = {}, room
            todo += each.values() if isinstance(each, KeptObject) else each


def kept_text(value: KeptObject | KeptList, form: str, write: Callable[[], str]) -> OutsideText:
    """The JSON text of `value` in a form, which `write` makes if it is not kept."""
    try:
        texts, room = value._texts, value._room
    except AttributeError:
        return OutsideText(write())
    text = texts.get(form)
    if text is None:
        text = OutsideText(write())
        if room.take(text):
            texts[form] = text
    return text


_PLAIN = frozenset({str, int, float, bool, type(None)})


def is_templates(values: Iterable[Any]) -> bool:
    """Whether all of `values`, and everything they contain, come from the template."""
    todo = list(values)
    while todo:
        value = todo.pop()
        if type(value) in _PLAIN:
            continue
        if isinstance(value, dict):
            todo += value.keys()
            todo += value.values()
        elif isinstance(value, list | tuple):
            todo += value
        elif not isinstance(value, Undefined):
            return False
    return True
