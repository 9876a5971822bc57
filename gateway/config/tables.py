"""Decoding tables of the configuration into Structs, with precise error messages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, inspect

T = TypeVar("T", bound=Struct)
KeyPath = tuple[str, ...]

_MESSAGE = re.compile(
    r"(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`)?\Z", re.DOTALL
)
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|(?P<any>\[\.\.\.\])")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


class TableError(ValueError):
    """A table is invalid: `path` leads to the wrong value, and `problem` says what would be valid."""

    def __init__(self, path: KeyPath, problem: str) -> None:
        super().__init__(f"{dotted(path)}: {problem}")
        self.path = path
        self.problem = problem


def dotted(path: KeyPath) -> str:
    """A key path in TOML's notation."""
    return ".".join(
        key if _BARE_KEY.match(key) else msgspec.json.encode(key).decode() for key in path
    )


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name closest to `name`, ignoring case; None if none is similar."""
    by_folded = {each.casefold(): each for each in known}
    match = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[match[0]] if match else None


def suggestion(name: str, known: Collection[str]) -> str:
    """The end of an error message about an unknown name: the nearest known name, or all of them."""
    if near := nearest(name, known):
        return f'did you mean "{near}"?'
    return f"known: {', '.join(sorted(known))}" if known else "none is known here"


def decode_table(table: Mapping[str, Any], into: type[T], path: KeyPath) -> T:
    """Decode `table` as `into`, a Struct. Unknown keys are errors, whatever the Struct's own settings.

    Raises `TableError` for the first mistake. Its path starts with `path`.
    """
    fields = {field.encode_name for field in msgspec.structs.fields(into)}
    for key in table:
        if key not in fields:
            raise TableError((*path, key), _no_such_key(key, fields, [into]))
    try:
        return msgspec.convert(table, into)
    except msgspec.ValidationError as error:
        raise _translate(str(error), table, into, path) from error


def _translate(message: str, table: Any, into: Any, path: KeyPath) -> TableError:
    match = _MESSAGE.match(message)
    assert match is not None, "the pattern matches any text"
    steps = list(_STEP.finditer(match["path"] or ""))
    keys: list[str] = []
    kind = inspect.type_info(into)
    value = table
    for number, step in enumerate(steps):
        if step["name"] is not None:
            key: str | int = step["name"]
        elif step["index"] is not None:
            key = int(step["index"])
        elif isinstance(value, Mapping):
            key = _culprit(value, kind)
        else:
            break  # an element of a set, which has no key
        if match["key"] and number == len(steps) - 1:
            keys.append(str(key))
            return TableError((*path, *keys), "the key itself is not allowed here")
        keys.append(str(key))
        kind = _below(kind, key, value)
        value = value[key]
    if missing := re.fullmatch(r"Object missing required field `(.*)`", match["what"]):
        return TableError((*path, *keys, missing[1]), "this key is required and missing")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", match["what"]):
        structs = [each for each in _alternatives(kind) if isinstance(each, inspect.StructType)]
        known = {field.encode_name for each in structs for field in each.fields}
        problem = _no_such_key(unknown[1], known, [each.cls for each in structs])
        return TableError((*path, *keys, unknown[1]), problem)
    return TableError((*path, *keys), _problem(match["what"], kind))


def _no_such_key(key: str, known: Collection[str], structs: Iterable[Any]) -> str:
    """Describe the problem of a key that none of `structs` has. Their `key_hints`, if any, say what to write instead of
    keys that users are likely to try."""
    for each in structs:
        if hint := getattr(each, "key_hints", {}).get(key):
            return f"there is no such key; {hint}"
    return f"there is no such key; {suggestion(key, known)}"


def _problem(what: str, kind: inspect.Type) -> str:
    if invalid := re.fullmatch(r"Invalid enum value (.*)", what, re.DOTALL):
        choices = [
            str(value)
            for each in _alternatives(kind)
            if isinstance(each, inspect.LiteralType)
            for value in each.values
        ]
        return f"{invalid[1]} is not one of the choices; {suggestion(invalid[1].strip(chr(39)), choices)}"
    if what.startswith("Invalid RFC3339"):
        return "expected a time, such as 2030-01-31T00:00:00Z"
    if "matching regex" in what and isinstance(kind, inspect.Metadata) and kind.extra:
        return f"expected {kind.extra['wanted']}"
    if expected := re.fullmatch(r"Expected `([^`]*)`(.*?)(?:, got `([^`]*)`)?", what, re.DOTALL):
        wanted = [_WORDS.get(word, word) for word in expected[1].split(" | ") if word != "null"]
        got = f", not {_WORDS.get(expected[3], expected[3])}" if expected[3] else ""
        return f"expected {' or '.join(wanted)}{expected[2]}{got}"
    return what[:1].lower() + what[1:]


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.Metadata):
        yield from _alternatives(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _alternatives(each)
    else:
        yield kind


def _below(kind: inspect.Type, key: str | int, value: Any) -> inspect.Type:
    for each in _alternatives(kind):
        match each:
            case inspect.StructType(fields=fields):
                for field in fields:
                    if field.encode_name == key:
                        return field.type
            case inspect.DictType(value_type=below) if isinstance(value, Mapping):
                return below
            case inspect.ListType(item_type=below) | inspect.VarTupleType(item_type=below):
                return below
            case inspect.TupleType(item_types=below_each) if isinstance(key, int):
                return below_each[key]
    return inspect.AnyType()


def _culprit(table: Mapping[str, Any], kind: inspect.Type) -> str:
    """Find the wrong value in a dict, which msgspec's message does not name."""
    for each in _alternatives(kind):
        if isinstance(each, inspect.DictType):
            for key, value in table.items():
                try:
                    msgspec.convert({key: value}, _as_annotation(each))
                except msgspec.ValidationError:
                    return key
    return next(iter(table))


def _as_annotation(kind: inspect.DictType) -> Any:
    below = [
        each for each in _alternatives(kind.value_type) if isinstance(each, inspect.StructType)
    ]
    if len(below) == 1:
        return _dict_of(below[0].cls)
    plain = {
        inspect.IntType: int,
        inspect.FloatType: float,
        inspect.StrType: str,
        inspect.BoolType: bool,
        inspect.ListType: list,
        inspect.DictType: dict,
    }
    return _dict_of(plain.get(type(kind.value_type), object))


def _dict_of(value: Any) -> Any:
    return dict[str, value]
