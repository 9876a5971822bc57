"""Cohere's citations become citations with sources, however the output is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gateway.base.deltas import CitationEnded, CitationStarted, Delta, TextDelta
from gateway.plugins.protocols import CallRecord, ParserContext, Source, Turn
from gateway.wire import items
from gateway_parsers import BY_NAME, MarkupFormat, compose
from gateway_testing.reading import check_grammar, feed

ITEMS = msgspec.convert(
    [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "How high?"}],
        },
        {"type": "function_call", "call_id": "c/0", "name": "look", "arguments": "{}"},
        {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": '{"url": "https://a.example", "title": "A"}\n{"link": "http://b.example/x"}',
        },
        {"type": "function_call_output", "call_id": "c/0", "output": "300 metres"},
    ],
    list[items.Item],
)
DOCUMENTS: list[dict[str, Any]] = [
    {"title": "Towers", "url": "https://towers.example/eiffel", "text": "330 metres"},
    {"id": "d1", "data": {"title": "Notes", "text": "…"}},
]
Cited = list[tuple[str, list[tuple[str, str]]]]


def read(
    output: str, parts: Sequence[str] | None = None, name: str = "cohere_command4", **turn: Any
) -> tuple[str, Cited]:
    """The text, and its cited spans with their sources."""
    spec = compose("cohere_command4", "hermes") if name == "composed" else BY_NAME[name]
    context = ParserContext(tail="text", turn=Turn(**({"items": ITEMS} | turn)))
    deltas = feed(MarkupFormat(spec).parser(context), parts if parts is not None else [output])
    check_grammar(deltas, output)
    return _text(deltas), _cited(deltas)


def _text(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def _cited(deltas: Sequence[Delta]) -> Cited:
    found: Cited = []
    begin = 0
    for index, delta in enumerate(deltas):
        if isinstance(delta, CitationStarted):
            begin = index
        elif isinstance(delta, CitationEnded):
            sources = [(source.url, source.title) for source in delta.sources]
            found.append((_text(deltas[begin:index]), sources))
    return found


@pytest.mark.parametrize("name", ["cohere_command3", "cohere_command4", "composed"])
def test_documents_are_the_results_of_the_first_call(name: str) -> None:
    said = "<|START_TEXT|>It is <co>330 metres</co: 0:[0,1]> high<co>, he said</co: 1:[0]>.<|END_TEXT|>"
    expected = (
        "It is 330 metres high, he said.",
        [
            ("330 metres", [("https://towers.example/eiffel", "Towers"), ("#documents/1", "Notes")]),
            (", he said", [("#calls/c%2F0", "look")]),
        ],
    )  # fmt: skip
    assert read(said, name=name, documents=DOCUMENTS) == expected
    assert read(said, list(said), name=name, documents=DOCUMENTS) == expected


def test_without_documents_the_calls_are_counted_from_zero() -> None:
    said = "<co>300</co: 0:[0], 1:[0, 1]>"
    sources = [("#calls/c%2F0", "look"), ("https://a.example", "A"), ("http://b.example/x", "search")]  # fmt: skip
    assert read(said) == ("300", [("300", sources)])


def test_the_page_that_a_call_of_the_gateway_has_found_is_its_source() -> None:
    call = {
        "id": "ws_1", "type": "web_search_call", "status": "completed",
        "action": {"type": "search", "query": "x"},
    }  # fmt: skip
    page = Source(cursor=0, url="https://page.example", title="Page")
    one = CallRecord(name="search", arguments="{}", result="found", sources=[page, page])
    other = msgspec.structs.replace(page, url="https://other.example")
    for record, source in (
        (one, ("https://page.example", "Page")),
        (msgspec.structs.replace(one, sources=[page, other]), ("#calls/ws_1", "web_search")),
    ):
        found = read(
            "<co>y</co: 0:[0]>",
            items=msgspec.convert([call], list[items.Item]),
            results={"ws_1": record},
        )
        assert found == ("y", [("y", [source])])


@pytest.mark.parametrize(
    "said",
    [
        "<co>a</co>", "<co>a</co: 7:[0]>", "<co>a</co: 0:[9]>", "<co>a</co: 0:[]>", "<co>a", "a</co: 0:[0]>",
        "<co></co: 0:[0]>a", "<co>a</co: 0>", "<co>a</co: 99999999999:[0],0:[9999999999]>",
        "<co><|START_THINKING|>x<|END_THINKING|>a</co: 0:[0]>",
        "<|START_THINKING|>it is <co>x</co: 0:[0]><|END_THINKING|>a",
    ],
)  # fmt: skip
def test_a_span_without_a_source_or_an_end_is_text(said: str) -> None:
    for parts in ([said], list(said)):
        text, cited = read(said, parts, documents=DOCUMENTS)
        assert (text, cited) == ("a", [])


def test_the_last_beginning_counts() -> None:
    said = "<co>a <co>b</co: 0:[0]> c</co: 0:[1]>"
    towers = [("https://towers.example/eiffel", "Towers")]
    assert read(said, list(said), documents=DOCUMENTS) == ("a b c", [("b", towers)])


def test_without_a_turn_the_tags_are_removed() -> None:
    said = "<co>a</co: 0:[0]>"
    deltas = feed(MarkupFormat(BY_NAME["cohere_command4"]).parser(ParserContext()), [said])
    assert deltas == [TextDelta("a", 4)]


def test_every_cutting_gives_the_same_citations() -> None:
    said = "A <co>b c</co: 0:[0]>\n\n<co> d</co: 0:[1],1:[0]> <code> <co>e </co: 0:[0]>f"
    whole = read(said, documents=DOCUMENTS)
    assert [text for text, _ in whole[1]] == ["b c", " d", "e "]
    for at in range(len(said)):
        assert read(said, [said[:at], said[at:]], documents=DOCUMENTS) == whole
