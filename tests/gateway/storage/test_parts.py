"""Large parts are cut out of packed values, and put back to the same bytes."""

from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.storage.packing import pack, pack_json, unpack_items
from gateway.storage.parts import LARGE, cut, named_parts, restore, whole_size

_run = st.builds(
    lambda letter, size: letter * size,
    st.sampled_from([b"A", b"z", b"+", b"/", b"0", b"="]),
    st.sampled_from([1, 200, LARGE // 2 - 1, LARGE // 2, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE]),
)
_between = st.binary(max_size=3) | st.sampled_from([b" " * 9000, b'","', b"\x00", b"\xdb"])


@given(st.lists(_run | _between, max_size=8).map(b"".join))
def test_the_same_bytes_are_put_together(text: bytes) -> None:
    packed = b"\x01" + text
    data, parts = cut(packed)
    assert restore(data, parts) == packed
    assert set(named_parts(data)) == set(parts)
    assert whole_size(data, parts) == len(packed)
    assert all(len(part) >= LARGE for part in parts.values())
    if parts:
        assert restore(data, {}) is None
        assert len(data) < len(packed)


@given(st.binary(max_size=300), st.integers(LARGE, 3 * LARGE), st.binary(max_size=300))
def test_every_large_run_is_found(before: bytes, size: int, after: bytes) -> None:
    data, parts = cut(b"\x01" + before * 100 + b" " + b"A" * size + b'"' + after)
    assert len(parts) == 1
    assert len(data) < LARGE + 100 * len(before)


def test_one_image_has_one_hash_however_it_is_packed() -> None:
    url = f"data:image/png;base64,{base64.b64encode(bytes(range(256)) * 100).decode()}"
    cuts = [cut(pack([url, 1])), cut(pack({"a": {"b": url}})), cut(pack_json({"u": url}))]
    cuts.append(cut(pack({"body": json.dumps({"input": url}).encode()})))
    assert len({name for each in cuts for name in each.parts}) == 1


def test_small_values_and_text_stay_as_they_are() -> None:
    for value in ("x", "words and spaces " * 10_000, ["A" * (LARGE - 1)] * 5):
        packed = pack(value)
        assert cut(packed) == (packed, {})
        assert restore(packed, {}) == packed
        assert named_parts(packed) == ()


@given(st.binary(max_size=100))
def test_what_another_version_has_written_stays_as_it_is(data: bytes) -> None:
    """Nothing is restored of it, and whoever reads it finds that it cannot be read."""
    for each in (data, b"\x02" + data):
        assert named_parts(each) == ()
        assert restore(each, {}) == each
        assert whole_size(each, {}) == len(each)


def test_what_a_disk_has_damaged_is_a_miss() -> None:
    """Also where text is not UTF-8 any more."""
    whole = pack([{"a": "\u00e9" * 10}])
    data, parts = cut(pack(["A" * LARGE, "\u00e9"]))
    for packed in (whole, data):
        for at in range(1, len(packed)):
            damaged = packed[:at] + bytes([packed[at] ^ 0xFF]) + packed[at + 1 :]
            unpack_items(restore(damaged, parts) or b"", of="it")
