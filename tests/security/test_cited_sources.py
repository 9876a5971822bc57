"""What a document, a tool's result or a model's output could do with citations."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.base.deltas import CitationEnded, CitedSource
from gateway.plugins.protocols import ParserContext, Turn
from gateway.wire import items
from gateway_parsers import BY_NAME, MarkupFormat
from gateway_parsers.kit.citations import NumberedSources
from gateway_testing.reading import feed


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


def test_many_spans_cannot_make_an_answer_huge() -> None:
    documents = [{"url": f"https://{at}.example/" + "x" * 2000} for at in range(16)]
    numbered = NumberedSources(Turn(items=[], documents=documents))
    tag = f"</co: 0:[{','.join(map(str, range(16)))}]>"
    spans = [numbered.of(tag) for _ in range(100)]
    assert len(spans[0]) == 16
    assert sum(len(source.url) for span in spans for source in span) < 300_000
    assert spans[-1] == ()


def test_a_result_of_many_lines_is_divided_once() -> None:
    class Text(str):
        divided = 0

        def split(self, *args: Any) -> list[str]:  # type: ignore[override]
            self.divided += 1
            return super().split(*args)

    text = Text("a\n" * 1000)
    call, _ = called("")
    result = items.FunctionCallOutput(call_id="c", output=text)
    numbered = NumberedSources(Turn(items=[call, result]))
    assert all(numbered.of(f"</co: 0:[{at}]>") for at in range(100))
    assert text.divided == 1
