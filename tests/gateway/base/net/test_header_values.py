"""Keys and headers as files, editors and web pages leave them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigurationError
from gateway.base.net.header_values import checked_headers, header_value

AROUND = st.text(alphabet=" \t\r\n\f\v\u00a0\u2028\u3000\ufeff\u200b\u2060", max_size=6)
KEYS = st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=20)


@given(AROUND, KEYS, AROUND)
def test_what_surrounds_a_value_is_taken_off(before: str, key: str, after: str) -> None:
    assert header_value(before + key + after, "api_key") == key


@given(
    KEYS.filter(bool),
    st.characters(exclude_categories=["Cs"]).filter(lambda each: not " " <= each <= "~"),
    KEYS.filter(bool),
)
def test_what_cannot_be_sent_is_named_and_the_key_is_not(
    before: str, character: str, after: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        header_value(before + character + after, "The variable KEY")
    message = str(caught.value)
    assert message.startswith("The variable KEY has the character U+")
    assert f"position {len(before) + 1} of {len(before) + 1 + len(after)}" in message
    assert character not in message


def test_a_table_of_headers_is_checked_by_name() -> None:
    assert checked_headers({"X-Key": " hunter2\n", "x-name": "é"}) == {
        "X-Key": "hunter2",
        "x-name": "é",
    }
    with pytest.raises(ConfigurationError, match=r"headers\.x-a has the character U\+000A"):
        checked_headers({"x-a": "a\nb: c"})
    with pytest.raises(ConfigurationError, match="no name of an HTTP header"):
        checked_headers({"x a": "b"})
