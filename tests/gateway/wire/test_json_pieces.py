"""Decoding in pieces: the same values and the same errors as decoding at once."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import InvalidRequest
from gateway.wire import decoding, json_pieces
from gateway.wire.decoding import decode_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text("a\"\\\n é🙂", max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text("ab\u00e9\"", max_size=3), inner, max_size=5),
    max_leaves=30,
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_pieces, "_LARGE", 12)
        patch.setattr(json_pieces, "_FEW", 1)
        yield


@given(VALUES, st.sampled_from([None, 1]), st.integers(0, 3))
def test_values_are_those_of_the_whole_text(value: Any, indent: int | None, levels: int) -> None:
    text = b" " + json.dumps(value, indent=indent).encode()
    assert json_pieces.decode_pieces(text, levels=levels) == msgspec.json.decode(text)


@given(VALUES, VALUES, st.integers(0, 200), st.sampled_from([b",", b"[,", b",]", b"]", b"}", b"\xff", b"\\ud800", b'"', b"}}"]) | st.binary(max_size=3))  # fmt: skip
def test_errors_are_those_of_the_whole_text(value: Any, other: Any, at: int, put: bytes) -> None:
    members = [json.dumps(each, ensure_ascii=False) for each in (value, [value, other], other)]
    text = f'{{"a": {members[0]}, "b": {members[1]}, "a": {members[2]}}}'.encode()
    text = text[:at] + put + text[at + 1 :]

    def outcome() -> Any:
        try:
            return decode_json(text)
        except InvalidRequest as error:
            return error.message, error.code

    in_pieces = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "_decoded", msgspec.json.decode)
        assert in_pieces == outcome()


@pytest.mark.parametrize("levels", range(4))
def test_a_value_whose_key_is_repeated_is_decoded_too(levels: int) -> None:
    text = b'{"a": {"b": [%s, "\xff"]}, "c": 1, "a": {}}' % b", ".join([b"1"] * 50)
    with pytest.raises((UnicodeDecodeError, msgspec.DecodeError)):
        json_pieces.decode_pieces(text, levels=levels)
    assert [*json_pieces.decode_pieces(text.replace(b"\xff", b"x"), levels=levels)] == ["a", "c"]


@pytest.mark.parametrize(
    "nested", [b"[" * 300_000, b'{"a":' * 60_000, b"[" * 900 + b"1" + b"]" * 900]
)
def test_deep_nesting_is_refused_without_a_copy_for_each_level(nested: bytes) -> None:
    with pytest.raises(InvalidRequest, match="nested more than"):
        decode_json(b'{"input": ' + nested + b"}")
