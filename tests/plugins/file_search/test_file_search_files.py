"""What is read of files, however they are, and how it is cut and filtered."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_file_search.chunks import chunked, joined
from gateway_file_search.filters import filter_of
from gateway_file_search.objects import StaticSizes
from gateway_file_search.words import phrases
from tests.pdf_files import text_pdf

DEEP = b"<p>The tower.</p>" + b"<div>" * 100_000 + b"deep"


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.pdf", text_pdf("A tower of iron", "is 312 metres high"), "A tower of iron\n\nis 312 metres high"),
        ("named.txt", text_pdf("A tower"), "A tower"),
        ("a.html", b"<title>T</title><h1>Tower</h1><p>It is <b>high</b>.<ul><li>one<li>two</ul><pre>a\n  b</pre><table><tr><td>x<td>y</table><style>no</style>", "T\n\n# Tower\nIt is high.\n\n* one\n* two\n\na\n  b\nx | y"),
        ("a.htm", "<p>Größe: 5 µm</p>".encode(), "Größe: 5 µm"),
        ("deep.html", DEEP, "The tower."),
        ("a.json", b'{"tower": 312}', '{"tower": 312}'),
        ("a.csv", "name;höhe\r\ntower;312\r\n".encode("utf-8-sig"), "name;höhe\ntower;312"),
        ("a.txt", "ein Turm 🗼".encode("utf-16"), "ein Turm 🗼"),
        ("a.py", b"def tower():\n    return 312\n", "def tower():\n    return 312"),
        ("broken.txt", b"a tower \xff\xfe of iron and stone", "a tower \ufffd\ufffd of iron and stone"),
        ("lone.txt", b"\xff\xfe" + "a tower".encode("utf-16-le") + b"\x00\xd8", "a tower\ufffd"),
    ],
)  # fmt: skip
def test_the_text_of_a_file_is_read(ada: Any, name: str, content: bytes, text: str) -> None:
    store = ada.vector_stores.create()
    added = ada.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=(name, content))
    assert (added.status, added.last_error) == ("completed", None)
    [part] = ada.vector_stores.files.content(added.id, vector_store_id=store.id).data
    assert part.text == text
    assert added.usage_bytes == len(text.encode())


@pytest.mark.parametrize(
    ("name", "content", "code", "message"),
    [
        ("empty.txt", b"", "invalid_file", "empty"),
        ("blank.md", b" \n\t\n", "invalid_file", "no text"),
        ("blank.html", b"<script>x()</script>", "invalid_file", "no text"),
        ("a.docx", b"PK\x03\x04\x14\x00\x06\x00", "invalid_file", "is broken"),
        ("a.png", b"\x89PNG\r\n\x1a\n\x00\x00", "unsupported_file", "kind"),
        ("latin.txt", b"\xe4\xf6\xfc\xdf" * 9, "unsupported_file", "not text"),
        ("broken.pdf", b"%PDF-1.7\n1 0 obj <<", "invalid_file", "PDF is broken"),
        ("cut.pdf", text_pdf("A tower")[:300], "invalid_file", "PDF is broken|no text"),
        ("noise.pdf", b"%PDF-1.4\n" + bytes(range(1, 256)) * 50, "invalid_file", "PDF is broken"),
        ("loop.pdf", text_pdf("x").replace(b"/Kids [4 0 R]", b"/Kids [2 0 R]"), "invalid_file", "PDF is broken|no text"),
        ("long.txt", b"word " * 500_000, "invalid_file", "more than 2000000 characters"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_fails_and_says_why(
    ada: Any, name: str, content: bytes, code: str, message: str
) -> None:
    store = ada.vector_stores.create()
    added = ada.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=(name, content))
    assert added.status == "failed"
    assert added.last_error.code == code
    assert re.search(message, added.last_error.message), added.last_error.message
    assert ada.vector_stores.files.content(added.id, vector_store_id=store.id).data == []
    after = ada.vector_stores.retrieve(store.id)
    assert (after.status, after.file_counts.failed) == ("completed", 1)


def test_a_file_that_takes_too_long_or_too_much_is_given_up(gateway_server: Any) -> None:
    """A page of ten million elements, in a second."""
    gateway = gateway_server(
        {
            "tools": {"file_search": {"reading_time": 1.0}},
            "models": {"m": {"engine": "scripted", "parser": "qwen3"}},
        }
    )
    with gateway.client() as client:
        store = client.vector_stores.create()
        added = client.vector_stores.files.upload_and_poll(
            vector_store_id=store.id, file=("a.html", b"<p>a</p>" * 3_000_000), poll_interval_ms=100
        )
        assert added.status == "failed"
        assert "within 1 seconds" in added.last_error.message
        fine = client.vector_stores.files.upload_and_poll(
            vector_store_id=store.id, file=("a.txt", b"fine"), poll_interval_ms=50
        )
        assert fine.status == "completed", "the others go on"


def test_a_long_text_is_found_in_the_chunk_that_has_it(ada: Any) -> None:
    store = ada.vector_stores.create()
    words = [f"filler{n}" for n in range(20_000)]
    words[13_000] = "needle"
    added = ada.vector_stores.files.upload_and_poll(
        vector_store_id=store.id, file=("long.txt", " ".join(words).encode())
    )
    assert added.status == "completed"
    found = ada.vector_stores.search(store.id, query="where is the needle?", max_num_results=3).data
    assert found
    assert all("needle" in hit.content[0].text for hit in found)
    assert len(found[0].content[0].text) <= 3200
    [whole] = ada.vector_stores.files.content(added.id, vector_store_id=store.id).data
    assert whole.text == " ".join(words)


def test_words_are_found_by_stems_without_accents_and_in_wide_scripts(ada: Any) -> None:
    store = ada.vector_stores.create()
    texts = {"a": "The cafés were opening.", "b": "東京タワーは高い。", "c": "나는 서울에 산다"}
    files = [(f"{name}.txt", text.encode()) for name, text in texts.items()]
    ada.vector_stores.file_batches.upload_and_poll(store.id, files=files)

    def best(query: str) -> str:
        found = ada.vector_stores.search(store.id, query=query).data
        return found[0].filename if found else ""

    assert best("opened cafe") == "a.txt"
    assert best("タワー") == "b.txt"
    assert best("東京") == "b.txt"
    assert best("서울") == "c.txt"
    assert best('") OR * NEAR( -- ^x: "') == ""
    assert best("京東") == "", "the pair is another"


TEXTS = st.text(st.sampled_from("ab é\n.日🙂"), max_size=2000)


@given(TEXTS, st.integers(1, 40), st.integers(0, 20))
def test_chunks_leave_nothing_out(text: str, size: int, overlap: int) -> None:
    sizes = StaticSizes(max_chunk_size_tokens=size, chunk_overlap_tokens=min(overlap, size // 2))
    chunks = chunked(text, sizes)
    assert joined(chunks) == text.strip()
    for chunk in chunks:
        assert text.startswith(chunk.text, chunk.start)
        assert len(chunk.text) <= max(size * 4, 8)
    starts = [chunk.start for chunk in chunks]
    assert starts == sorted(set(starts))


@given(st.text(max_size=300))
def test_any_query_is_an_expression(query: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(text)")
    for phrase in phrases(query):
        connection.execute("SELECT 1 FROM t WHERE t MATCH ?", (phrase,)).fetchall()
    connection.close()


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ({"type": "eq", "key": "n", "value": 2}, True),
        ({"type": "eq", "key": "n", "value": "2"}, False),
        ({"type": "eq", "key": "flag", "value": 1}, False),
        ({"type": "eq", "key": "flag", "value": True}, True),
        ({"type": "ne", "key": "none", "value": 1}, True),
        ({"type": "eq", "key": "none", "value": 1}, False),
        ({"type": "gt", "key": "n", "value": 1.5}, True),
        ({"type": "gte", "key": "n", "value": 2}, True),
        ({"type": "lt", "key": "n", "value": 2}, False),
        ({"type": "lte", "key": "n", "value": 2}, True),
        ({"type": "lt", "key": "s", "value": "b"}, True),
        ({"type": "gt", "key": "s", "value": 1}, False),
        ({"type": "gte", "key": "flag", "value": 0}, False),
        ({"type": "lt", "key": "none", "value": 9}, False),
        ({"type": "in", "key": "s", "value": ["x", "a"]}, True),
        ({"type": "nin", "key": "s", "value": ["x", "a"]}, False),
        ({"type": "nin", "key": "none", "value": ["x"]}, True),
        ({"type": "and", "filters": []}, True),
        ({"type": "or", "filters": []}, False),
    ],
)
def test_what_filters_want(condition: Any, wanted: bool) -> None:
    assert filter_of(condition)({"n": 2, "s": "a", "flag": True}) is wanted
