"""Citation marks in a model's text become links with annotations, however the text comes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.deltas import (
    BlockEnded,
    CallEnded,
    CallStarted,
    MessageStarted,
    RefusalDelta,
    TextDelta,
)
from gateway.items.assembler import ResponseAssembler
from gateway.items.logprobs import LogprobAligner
from gateway.plugins.protocols import (
    CallRecord,
    EngineOutput,
    SearchDetails,
    Source,
    TokenLogprob,
    ToolResult,
)
from gateway.tools.roles import CallRole
from gateway.wire import items
from tests.gateway.items.cited_responses import cut, response_assembler, told

SOURCES = (
    Source(cursor=0, url="https://www.example.com/a(1)", title="A"),
    Source(cursor=7, url="http://b.test/x?q=é 1", title="B [b]"),
)
FOUND = (  # a page of results: each line is of another source, or of none
    Source(cursor=8, url=SOURCES[1].url, title="B", lines=(0, 2)),
    Source(cursor=8, url=SOURCES[0].url, title="A", lines=(4, 4)),
)
KNOWN = {
    "ws_0": CallRecord(name="web_search", arguments="{}", result="…", sources=FOUND),
    "ws_1": CallRecord(name="web_search", arguments="{}", result="…", sources=SOURCES),
}
LINKS = {
    0: "([example.com](https://www.example.com/a%281%29))",
    7: "([b.test](http://b.test/x?q=%C3%A9%201))",
}


def assembler(**options: Any) -> ResponseAssembler:
    roles = {"web_search": CallRole(item_type="web_search_call")}
    return response_assembler(**{"roles": roles, "known": KNOWN, **options})


def part_of(response: dict[str, Any]) -> dict[str, Any]:
    [message] = response["output"]
    part: dict[str, Any] = message["content"][0]
    return part


MARKS = st.sampled_from(["【0†L3】", "【7†L3-L5】", "【7†L3-5, L9】"])
WORDS = st.sampled_from(
    [
        "It is so",
        " ",
        ".",
        "\n",
        "【",
        "】",
        "【0",
        "【0†",
        "†L3】",
        "【9†L1】",
        "【x†L1】",
        "【0†L\n3】",
        "é🙂",
        "【【",
        "【0†" + "x" * 65 + "】",
        "(",
        '"',
        "【1234567890†L1】",
    ]
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    return "".join(draw(st.lists(st.one_of(MARKS, WORDS), max_size=12)))


@given(texts(), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_indices_point_at_the_links_however_the_text_is_cut(text: str, sizes: list[int]) -> None:
    whole = told(assembler(), [TextDelta(text)] if text else [])[1]
    events, response = told(assembler(), [TextDelta(piece) for piece in cut(text, sizes)])
    if not text:
        assert response["output"] == whole["output"] == []
        return
    part = part_of(response)
    assert part == part_of(whole)
    shown = part["text"]
    sources = {source.url: source for source in SOURCES}
    end = 0
    for annotation in part["annotations"]:
        source = sources[annotation["url"]]
        assert annotation["title"] == source.title
        assert annotation["start_index"] >= end
        end = annotation["end_index"]
        assert shown[annotation["start_index"] : end] == LINKS[source.cursor]
    links = sum(shown.count(link) for link in LINKS.values())
    assert links == len(part["annotations"]), "each link has its annotation"
    so_far = ""
    added = []
    for event in events:
        if event["type"] == "response.output_text.delta":
            so_far += event["delta"]
        elif event["type"] == "response.output_text.annotation.added":
            assert event["annotation_index"] == len(added)
            added.append(event["annotation"])
            assert len(so_far) == event["annotation"]["end_index"], "right after its text"
    assert added == part["annotations"]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("So【0†L3】.", f"So {LINKS[0]}."),
        ("So 【0†L3】【7†L1-L2】", f"So {LINKS[0]} {LINKS[7]}"),
        ("【0†L3】", LINKS[0]),
        ("(【0†L3】)", f"({LINKS[0]})"),
        ("of nobody【3†L1】", "of nobody【3†L1】"),
        ("a link, not a mark【0†Example】", "a link, not a mark【0†Example】"),
        ("So【8†L1】【8†L5】【8†L4-L6】", f"So {LINKS[7]}【8†L5】 {LINKS[0]}"),
        ("cut off【0†L", "cut off【0†L"),
        ("【0†L1【0†L2】", f"【0†L1 {LINKS[0]}"),
    ],
)
def test_what_is_shown_in_place_of_marks(written: str, shown: str) -> None:
    assert part_of(told(assembler(), [TextDelta(written)])[1])["text"] == shown


def test_nothing_is_lost_where_a_message_ends_in_half_a_mark() -> None:
    deltas = [
        MessageStarted("commentary"), TextDelta("【"), BlockEnded(), TextDelta("a【0"), RefusalDelta("no"), TextDelta("【7†L"),
    ]  # fmt: skip
    response = told(assembler(), deltas)[1]
    first, second = response["output"]
    assert [part["text"] for part in first["content"]] == ["【"]
    said = [part.get("text", part.get("refusal")) for part in second["content"]]
    assert said == ["a【0", "no", "【7†L"]


def test_each_part_counts_for_itself() -> None:
    deltas = [TextDelta("one 【0†L1】"), RefusalDelta("no"), TextDelta("two 【0†L1】")]
    [message] = told(assembler(), deltas)[1]["output"]
    first, _, second = message["content"]
    for part in (first, second):
        [annotation] = part["annotations"]
        assert (annotation["start_index"], annotation["end_index"]) == (4, 4 + len(LINKS[0]))


def test_without_sources_marks_are_text() -> None:
    part = part_of(told(assembler(known={}), [TextDelta("So【0†L3】")])[1])
    assert (part["text"], part["annotations"]) == ("So【0†L3】", [])


def test_what_a_call_of_this_response_found_can_be_cited() -> None:
    made = assembler(known={})
    made.start()
    made.feed([CallStarted("web_search", None), CallEnded()])
    made.end((), "stop")
    [call] = made.items.pending_calls
    made.running([call])
    action = items.SearchAction(query="q", sources=[items.UrlSource(url="https://a.test")])
    made.called(
        call, ToolResult(text="found", details=SearchDetails(action=action), sources=SOURCES)
    )
    made.feed([TextDelta("So【7†L1】")])
    made.end((), "stop")
    made.finish(None)
    _, message = made.response.output
    assert message.content[0].annotations[0].url == SOURCES[1].url  # type: ignore[union-attr]
    assert made.items.results[made.response.output[0].id].result == "found"


@pytest.mark.parametrize("include", [(), ("web_search_call.action.sources",), None])
def test_sources_are_shown_to_those_who_ask(include: Any) -> None:
    made = assembler(include=include)
    made.feed([CallStarted("web_search", None), CallEnded()])
    [call] = made.items.pending_calls
    action = items.SearchAction(query="q", sources=[items.UrlSource(url="https://a.test")])
    made.called(call, ToolResult(text="found", details=SearchDetails(action=action)))
    item = msgspec.to_builtins(made.items.finished_items[0])
    assert ("sources" in item["action"]) == (include != ())


def test_log_probabilities_of_a_mark_come_with_its_link() -> None:
    aligner = LogprobAligner()
    made = assembler(aligner=aligner)
    pieces = ["So", "【", "0", "†L3", "】", "."]
    deltas: list[Any] = []
    at = 0
    for piece in pieces:
        token = TokenLogprob(token=piece, token_id=1, bytes=piece.encode(), logprob=-1.0)
        aligner.push(EngineOutput(text=piece, token_ids=[1], logprobs=[token]))
        deltas.append(TextDelta(piece, at))
        at += len(piece)
    events, response = told(made, deltas)
    part = part_of(response)
    assert [entry["token"] for entry in part["logprobs"]] == pieces
    streamed = [
        entry["token"]
        for event in events
        if event["type"] == "response.output_text.delta"
        for entry in event["logprobs"]
    ]
    assert streamed == pieces


def test_a_long_text_is_read_once() -> None:
    """Marks that never end hold back a bounded piece: no quadratic time."""
    text = "【0†" * 50_000
    part = part_of(told(assembler(), [TextDelta(piece) for piece in cut(text, [7])])[1])
    assert part["text"] == text
