"""What msgspec says of a wrong value becomes an error in OpenAI's words, at the place of the value."""

from __future__ import annotations

import copy
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.base.errors import InvalidRequest, ParamPath
from gateway.wire.conversion_errors import explain


class Dog(Struct, tag="dog"):
    name: str
    age: Annotated[int, Meta(ge=0, le=30)] = 0


class Cat(Struct, tag="cat"):
    lives: Annotated[float, Meta(gt=0, le=9)]
    likes: dict[str, str] = {}
    age: str = ""


class Fish(Struct, tag="fish"):
    """Pets of any depth."""

    eats: list[Pet] = []


Pet: TypeAlias = Dog | Cat | Fish


class House(Struct, kw_only=True):
    pet: Pet
    pets: list[Pet] = []
    only: Dog | UnsetType = UNSET
    size: Literal["small", "large"] | UnsetType = UNSET
    door: Literal["red"] | None = None
    owner: Annotated[str, Meta(pattern=r"\A[a-z]+\Z", min_length=1, max_length=5)] | None = None
    rooms: Annotated[list[int], Meta(max_length=3)] = []
    sizes: dict[str, float] = {}
    names: str | list[str] = ""
    sold: bool = False
    mode: Literal["auto"] | Dog = "auto"
    by_name: dict[str, Dog] = {}


WHOLE: dict[str, Any] = {
    "pet": {"type": "dog", "name": "Rex"},
    "pets": [
        {"type": "cat", "lives": 9.0, "likes": {"fish": "yes", "a.b[0]": "no"}},
        {"type": "fish", "eats": [{"type": "fish", "eats": [{"type": "dog", "name": "Pip"}]}]},
    ],
    "only": {"type": "dog", "name": "Bob"},
    "size": "small",
    "owner": "ada",
    "rooms": [1, 2],
    "sizes": {"hall": 2.5},
    "names": ["a", "b"],
    "sold": True,
    "by_name": {"rex": {"type": "dog", "name": "Rex"}},
}


def refusal_of(raw: Any, into: Any = House, param: str | ParamPath = ()) -> InvalidRequest:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(raw, into)
    return explain(str(caught.value), raw, into, param)


def changed(place: ParamPath, value: Any) -> dict[str, Any]:
    """A copy of `WHOLE` with another value at a place."""
    raw = copy.deepcopy(WHOLE)
    inner: Any = raw
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return raw


def test_what_is_changed_is_right_otherwise() -> None:
    msgspec.convert(WHOLE, House)


VALUES: dict[str, Any] = {
    "a string": "a",
    "an integer": 1,
    "a decimal": 1.5,
    "a boolean": True,
    "an array": [],
    "an object": {},
    "null": None,
}
PLACES: list[tuple[ParamPath, str]] = [
    (("pet",), "an object"),
    (("pet", "name"), "a string"),
    (("pet", "type"), "a string"),
    (("pets",), "an array"),
    (("pets", 0, "lives"), "a decimal"),
    (("pets", 0, "likes"), "an object"),
    (("pets", 0, "age"), "a string"),
    (("pets", 1), "an object"),
    (("pets", 1, "eats", 0, "eats", 0, "type"), "a string"),
    (("pets", 1, "eats", 0, "eats", 0, "age"), "an integer"),
    (("only", "name"), "a string"),
    (("rooms",), "an array"),
    (("rooms", 1), "an integer"),
    (("sizes",), "an object"),
    (("sizes", "hall"), "a decimal"),
    (("names", 1), "a string"),
    (("names",), "one of a string or array"),
    (("sold",), "a boolean"),
]


@pytest.mark.parametrize("outer", [(), ("input", 3)])
@pytest.mark.parametrize(("place", "kind"), PLACES)
def test_a_value_of_a_wrong_type_is_told_at_its_place(
    outer: ParamPath, place: ParamPath, kind: str
) -> None:
    fitting = {"a decimal": {"an integer"}, "one of a string or array": {"a string", "an array"}}
    for name, value in VALUES.items():
        if name != kind and name not in fitting.get(kind, ()):
            error = refusal_of(changed(place, value), param=outer)
            assert error.at == (*outer, *place)
            assert error.code == "invalid_type"
            assert str(error).endswith(f": expected {kind}, but got {name} instead.")


@pytest.mark.parametrize(
    ("place", "value", "code", "words"),
    [
        (("pet", "type"), "cow", "invalid_value", "'cow'. Supported values are: 'dog', 'cat', and 'fish'."),
        (("pets", 1, "eats", 0, "type"), "x" * 999, "invalid_value", "'dog', "),
        (("only", "type"), "cat", "invalid_value", "Supported values are: 'dog'."),
        (("size",), "huge", "invalid_value", "'huge'. Supported values are: 'large' and 'small'."),
        (("door",), "blue", "invalid_value", "Supported values are: 'red'."),
        (("door",), 5, "invalid_type", "expected one of 'red', but got an integer"),
        (("mode",), 5, "invalid_type", "expected one of an object or one of 'auto', but"),
        (("owner",), "", "empty_string", "a string with minimum length 1, but got an empty"),
        (("owner",), "abcdef", "string_above_max_length", "maximum length 5, but got a string with length 6"),
        (("owner",), "ABC", "invalid_value", "that matches the pattern '^[a-z]+$'."),
        (("rooms",), [1] * 4, "array_above_max_length", "an array with maximum length 3, but got an array with length 4"),
        (("pet", "age"), 31, "integer_above_max_value", "a value <= 30, but got 31"),
        (("pet", "age"), -1, "integer_below_min_value", "a value >= 0, but got -1"),
        (("pets", 0, "lives"), 0.0, "decimal_below_min_value", "a value > 0, but got 0"),
        (("pets", 0, "lives"), 9.5, "decimal_above_max_value", "a value <= 9, but got 9.5"),
    ],
)  # fmt: skip
def test_a_value_that_is_not_allowed_is_told_with_those_that_are(
    place: ParamPath, value: Any, code: str, words: str
) -> None:
    error = refusal_of(changed(place, value))
    assert (error.at, error.code) == (place, code)
    assert words in str(error)
    assert len(str(error)) < 400


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (("pet", "name"), "'pet.name'."),
        (("pet", "type"), "'pet.type'. It is one of: 'dog', 'cat', and 'fish'."),
        (("pets", 1, "eats", 0, "eats", 0, "name"), "'pets[1].eats[0].eats[0].name'."),
        (("by_name", "rex", "name"), "."),
    ],
)
def test_what_is_missing_is_told_with_what_it_may_be(place: ParamPath, words: str) -> None:
    raw = changed(place, None)
    inner: Any = raw
    for step in place[:-1]:
        inner = inner[step]
    del inner[place[-1]]
    error = refusal_of(raw)
    assert error.code == "missing_required_parameter"
    assert error.at == place
    assert str(error).endswith(words)


class Door(Struct):
    colour: Literal["red", "blue"]
    side: Literal["left"]


def test_a_missing_choice_is_told_with_its_values() -> None:
    assert str(refusal_of({"side": "left"}, Door)).endswith("It is one of: 'blue' and 'red'.")
    assert str(refusal_of({"colour": "red"}, Door)).endswith("It is 'left'.")


@pytest.mark.parametrize("field", ["likes", "sizes"])
@given(
    before=st.dictionaries(st.text(), st.just(""), max_size=3),
    name=st.text(),
    wrong=st.sampled_from([[], {}, True, None]),
)
def test_the_wrong_value_of_a_mapping_is_found(
    field: str, before: dict[str, str], name: str, wrong: Any
) -> None:
    """msgspec does not name it. The names are a client's: they may look like a path, and are cut."""
    right: Any = "a" if field == "likes" else 1.5
    mapping = {**dict.fromkeys([*before, "after"], right), name: wrong}
    place: ParamPath = ("pets", 0, "likes") if field == "likes" else ("sizes",)
    error = refusal_of(changed(place, mapping))
    shown = name if len(name) <= 100 else f"{name[:100]}…"
    assert error.at == (*place, shown)
    assert error.code == "invalid_type"


def test_a_long_name_in_a_mapping_is_cut() -> None:
    error = refusal_of(changed(("sizes",), {"n" * 5000: "big"}))
    assert error.at == ("sizes", "n" * 100 + "…")
    assert len(str(error)) < 400


@pytest.mark.parametrize("raw", [5, [], "a", None])
def test_a_whole_request_of_a_wrong_type_has_no_place(raw: Any) -> None:
    assert refusal_of(raw).at == ()
    assert refusal_of(raw, param="input").param == "input"


def test_what_has_no_words_of_its_own_is_told_as_msgspec_tells_it() -> None:
    error = explain("Something new - at `$.rooms[1]`", WHOLE, House, ())
    assert (error.at, error.code) == (("rooms", 1), "invalid_value")
    assert str(error) == "Invalid 'rooms[1]': Something new."
