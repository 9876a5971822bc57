"""What a document, a tool's result or a model's output could do with citations."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.deltas import CitationEnded, CitedSource
from gateway.protocols import ParserContext, Turn
from gateway.testing.reading import feed
from gateway.wire import items
from gateway_parsers import BY_NAME, MarkupFormat


def sources(tag: str, **turn: Any) -> list[CitedSource]:
    context = ParserContext(tail="text", turn=Turn(**({"items": []} | turn)))
    deltas = feed(MarkupFormat(BY_NAME["cohere_command3"]).parser(context), [f"<co>x</co: {tag}>"])
    return [source for each in deltas if isinstance(each, CitationEnded) for source in each.sources]


def called(output: str, call_id: str = "c") -> list[items.Item]:
    return msgspec.convert(
        [
            {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": call_id, "output": output},
        ],
        list[items.Item],
    )


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)", "JAVASCRIPT:alert(1)", "data:text/html,x", "file:///etc/passwd", "//host.example", "https://",
        "https://a.example/\n", "https://a.example/ x", "http://[::1", "https://a.example/" + "x" * 2048, 7, None, ["https://a.example"],
    ],
)  # fmt: skip
def test_only_addresses_of_web_pages_are_links(url: Any) -> None:
    document = {"url": url, "title": {"not": "text"}}
    assert sources("0:[0]", documents=[document]) == [CitedSource("#documents/0")]
    result = msgspec.json.encode(document).decode()
    assert sources("0:[0]", items=called(result)) == [CitedSource("#calls/c", "f")]


def test_an_id_cannot_leave_its_fragment() -> None:
    [source] = sources("0:[0]", items=called("x", "a/../b#c?d\né"))
    assert source.url == "#calls/a%2F..%2Fb%23c%3Fd%0A%C3%A9"


def test_one_tag_gives_few_sources_and_short_titles() -> None:
    documents = [{"title": "t" * 100_000}] * 100
    found = sources(f"0:[{','.join(map(str, range(80)))}]", documents=documents)
    assert len(found) == 16
    assert all(len(source.title) == 256 for source in found)


@pytest.mark.parametrize("result", ["[" * 60_000, '{"a":' * 10_000, '{"url": "https://a.example", ', "{" + " " * 1_000_000])  # fmt: skip
def test_a_result_that_is_no_object_is_a_text(result: str) -> None:
    assert sources("0:[0],0:[1],0:[2]", items=called(result)) == [CitedSource("#calls/c", "f")]
