"""Marks of files in a model's text are left out, and annotations say where they were, however the text comes."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.deltas import CallArgumentsDelta, CallEnded, CallStarted, RefusalDelta, TextDelta
from gateway.items.assembler import ResponseAssembler
from gateway.items.logprobs import LogprobAligner
from gateway.plugins.protocols import (
    CallRecord,
    EngineOutput,
    FileSearchDetails,
    FileSource,
    Source,
    TokenLogprob,
    ToolResult,
)
from gateway.tools.roles import CallRole
from gateway.wire.common import encode
from gateway.wire.items import FileSearchResult
from gateway_testing.grammar import fold
from tests.gateway.items.cited_responses import cut, response_assembler, told

FILES = (
    FileSource(mark="0:0", file_id="file-a", filename="a.md"),
    FileSource(mark="12:3", file_id="file-b", filename="b.pdf"),
)
PAGE = Source(cursor=0, url="https://example.com/", title="E")
LINK = "([example.com](https://example.com/))"
KNOWN = {
    "fs_0": CallRecord(name="file_search", arguments="{}", result="…", files=FILES),
    "ws_0": CallRecord(name="web_search", arguments="{}", result="…", sources=(PAGE,)),
}


def assembler(**options: Any) -> ResponseAssembler:
    roles = {"file_search": CallRole(item_type="file_search_call")}
    return response_assembler(**{"roles": roles, "known": KNOWN, **options})


def part_of(response: dict[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = response["output"][-1]["content"][0]
    return part


PIECES = st.sampled_from(
    ["【0:0†a.md】", "【12:3】", "【0:0】", "【9:9†x】", "【0†L1】", "So", " ", " ", ".", "\n", "【", "】", "【0", "【0:", "【0:0", "†", "(", "é🙂", "\t"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=14).map("".join)


@given(TEXTS, st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_places_are_right_however_the_text_is_cut(text: str, sizes: list[int]) -> None:
    if not text:
        return
    whole = told(assembler(), [TextDelta(text)])[1]
    events, response = told(assembler(), [TextDelta(piece) for piece in cut(text, sizes)])
    part = part_of(response)
    assert part == part_of(whole)
    cited = [each for each in part["annotations"] if each["type"] == "file_citation"]
    marks = {"file-a": r"【0:0(†[^【】]*)?】", "file-b": r"【12:3(†[^【】]*)?】"}
    left = re.sub("|".join(marks.values()), "", text)
    for file_id, mark in marks.items():
        written = len(list(re.finditer(mark, text)))
        assert [each["file_id"] for each in cited].count(file_id) == written
    assert [each["index"] for each in cited] == sorted(each["index"] for each in cited)
    so_far, added = "", []
    for event in events:
        if event["type"] == "response.output_text.delta":
            so_far += event["delta"]
        elif event["type"] == "response.output_text.annotation.added":
            annotation = event["annotation"]
            added.append(annotation)
            assert len(so_far) == annotation.get("index", annotation.get("end_index"))
    assert added == part["annotations"]
    assert so_far == part["text"]
    # All that is not a mark is still there, in its order; only spaces come and go.
    rest = left.replace("【0†L1】", LINK)
    assert part["text"].replace(" ", "") == rest.replace(" ", "")


@pytest.mark.parametrize(
    ("written", "shown", "places"),
    [
        ("So【0:0†a.md】.", "So.", [2]),
        ("So 【0:0†a.md】.", "So.", [2]),
        ("So 【0:0】【12:3】 is it", "So is it", [2, 2]),
        ("So 【0:0】 【12:3】.", "So.", [2, 2]),
        ("So 【0:0】it is", "So it is", [2]),
        ("So 【0:0】(it)", "So (it)", [2]),
        ("【0:0】So", "So", [0]),
        ("【0:0】", "", [0]),
        ("So 【0:0】【0†L1】", f"So {LINK}", [2]),
        ("So【0†L1】 【0:0】.", f"So {LINK}.", [3 + len(LINK)]),
        ("of nobody【7:7†x】", "of nobody【7:7†x】", []),
        ("a ratio【0:0:1】 ", "a ratio【0:0:1】 ", []),
        ("cut off 【0:0", "cut off 【0:0", []),
    ],
)
def test_what_is_left_of_a_text(written: str, shown: str, places: list[int]) -> None:
    part = part_of(told(assembler(), [TextDelta(written)])[1])
    assert part["text"] == shown
    found = [each["index"] for each in part["annotations"] if each["type"] == "file_citation"]
    assert found == places


def test_each_part_counts_for_itself() -> None:
    deltas = [TextDelta("one 【0:0】"), RefusalDelta("no"), TextDelta("【12:3】two")]
    [message] = told(assembler(), deltas)[1]["output"]
    first, _, second = message["content"]
    assert [each["index"] for each in first["annotations"]] == [3]
    assert [each["index"] for each in second["annotations"]] == [0]


def test_without_files_marks_are_text() -> None:
    part = part_of(told(assembler(known={}), [TextDelta("So【0:0†a.md】")])[1])
    assert (part["text"], part["annotations"]) == ("So【0:0†a.md】", [])


@pytest.mark.parametrize("include", [(), ("file_search_call.results",), None])
def test_a_search_is_shown_as_far_as_it_was_asked_for(include: Any) -> None:
    made = assembler(known={}, include=include)
    events = made.start()
    arguments = CallArgumentsDelta('{"queries": ["q"]}')
    events += made.feed([CallStarted("file_search", None), arguments, CallEnded()])
    events += made.end((), "stop")
    [call] = made.items.pending_calls
    assert call.arguments == '{"queries": ["q"]}'
    events += made.running([call])
    results = [{"file_id": "file-a", "filename": "a.md", "score": 0.5, "text": "t", "attributes": {}}]  # fmt: skip
    details = FileSearchDetails(
        queries=["q"], results=msgspec.convert(results, list[FileSearchResult])
    )
    given = ToolResult(text="read", details=details, files=FILES)
    events += made.called(call, given)
    events += made.feed([TextDelta("So【12:3】")])
    events += made.end((), "stop") + made.finish(None)
    events.append(made.terminal())
    response = fold([msgspec.json.decode(encode(event)) for event in events])
    item, message = response["output"]
    assert (item["status"], item["queries"]) == ("completed", ["q"])
    assert item["results"] == (None if include == () else results)
    assert message["content"][0]["annotations"][0]["file_id"] == "file-b"
    assert made.items.results[item["id"]].files == FILES
    assert made.items.results[item["id"]].result == "read"


@pytest.mark.parametrize("end", ["", " on"])
def test_log_probabilities_of_marks_are_kept(end: str) -> None:
    aligner = LogprobAligner()
    made = assembler(aligner=aligner)
    pieces = [each for each in ("So", " 【", "0:0", "】", end) if each]
    deltas: list[Any] = []
    at = 0
    for piece in pieces:
        token = TokenLogprob(token=piece, token_id=1, bytes=piece.encode(), logprob=-1.0)
        aligner.push(EngineOutput(text=piece, token_ids=[1], logprobs=[token]))
        deltas.append(TextDelta(piece, at))
        at += len(piece)
    events, response = told(made, deltas)
    part = part_of(response)
    assert part["text"] == f"So{end}"
    assert [entry["token"] for entry in part["logprobs"]] == pieces
    streamed = [
        entry["token"]
        for event in events
        if event["type"] == "response.output_text.delta"
        for entry in event["logprobs"]
    ]
    assert streamed == (pieces if end else pieces[:1]), "an empty delta would be none"


def test_a_long_text_is_read_once() -> None:
    """Marks that never end hold back a bounded piece: no quadratic time."""
    text = "【0:0†" * 50_000
    part = part_of(told(assembler(), [TextDelta(piece) for piece in cut(text, [7])])[1])
    assert part["text"] == text
