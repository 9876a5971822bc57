"""What looks like the beginning of a marker where an output ends, and markers without what should precede them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.plugins.protocols import ParserContext, ToolDefinition
from gateway_parsers import BY_NAME, FORMATS, MarkupFormat
from gateway_parsers.spec import FormatSpec
from gateway_testing.reading import blocks, feed

TOOLS = {"f": ToolDefinition(name="f")}


class Vocabulary:
    """A tokenizer for which each of `tokens` is one token, and any other text one token per character."""

    def __init__(self, tokens: set[str]) -> None:
        self._longest_first = sorted(tokens, key=len, reverse=True)
        self._texts: list[str] = []

    def encode(self, text: str, **_: Any) -> list[int]:
        found: list[str] = []
        while text:
            token = next((each for each in self._longest_first if text.startswith(each)), text[0])
            found.append(token)
            text = text.removeprefix(token)
        self._texts += found
        return list(range(len(self._texts) - len(found), len(self._texts)))

    def decode(self, token_ids: Sequence[int], **_: Any) -> str:
        return "".join(self._texts[token_id] for token_id in token_ids)


def markers_of(spec: FormatSpec) -> set[str]:
    marks = set(spec.calls.starts) if spec.calls is not None else set()
    marks |= set(spec.reasoning.opens) if spec.reasoning is not None else set()
    return marks | (set(spec.frame.opens) if spec.frame is not None else set())


def said(format_: MarkupFormat, raw: str, finish: Any, tail: Any = "text") -> list[Any]:
    results = []
    for parts in ([raw], list(raw)):
        parser = format_.parser(ParserContext(tail=tail, tools=TOOLS))
        results.append([(each.kind, each.text) for each in blocks(feed(parser, parts, finish))])
    assert results[0] == results[1]
    return results[0]


@pytest.mark.parametrize("spec", FORMATS, ids=lambda spec: spec.name)
def test_half_a_token_is_text(spec: FormatSpec) -> None:
    """The model writes a marker that is one token whole, so that its beginning is something else."""
    marks = markers_of(spec)
    others = {*spec.turn_ends, *spec.hidden, *spec.hidden_tags}
    if spec.calls is not None:
        others |= {*spec.calls.ends, *spec.calls.markup}
    if spec.frame is not None:
        others |= set(spec.frame.closes)
    if spec.reasoning is not None:
        others |= set(spec.reasoning.closes)
    format_ = MarkupFormat(spec, Vocabulary(marks | others))
    for marker in marks:
        for length in (1, 3, len(marker) // 2, len(marker) - 1):
            ending = marker[:length]
            if any(each in ending for each in marks | others) or spec.plain_newlines:
                continue
            for finish in ("stop", "length"):
                assert said(format_, f"So x{ending}", finish) in (
                    [("text", f"So x{ending}".rstrip())],
                    [("text", f"So x{ending}")],
                )


def test_the_beginning_of_a_marker_of_several_tokens_is_hidden_at_a_limit() -> None:
    several = MarkupFormat(BY_NAME["kimi_k3"], Vocabulary({"<|open|>", "<|sep|>", "<|close|>"}))
    assert said(several, "So<|open|>respo", "length") == [("text", "So")]
    assert said(several, "So<|ope", "length") == [("text", "So<|ope")]
    assert said(MarkupFormat(BY_NAME["kimi_k3"]), "So<|ope", "length") == [("text", "So")]
    plain = MarkupFormat(BY_NAME["qwen3"], Vocabulary(set()))
    assert said(plain, "So\n<tool_ca", "length") == [("text", "So")]


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("cohere_command4", "hm<|START_TEXT|>Hi<|END_TEXT|>"),
        ("cohere_command3", "hm<|START_RESPONSE|>Hi<|END_RESPONSE|>"),
        ("kimi_k3", "hm<|open|>response<|sep|>Hi<|close|>response<|sep|>"),
        ("inkling", "hm<|content_text|>Hi<|end_message|>"),
        ("muse_glimmer", "hm<|start|>assistant to=user<|message|>Hi<|eot|>"),
    ],
)
def test_the_answers_own_marker_ends_reasoning_without_an_end(name: str, raw: str) -> None:
    expected = [("reasoning", "hm"), ("text", "Hi")]
    assert said(MarkupFormat(BY_NAME[name]), raw, "stop", tail="reasoning") == expected


@pytest.mark.parametrize("finish", ["stop", "length"])
@pytest.mark.parametrize("cut", ["<|start|>", "<|start|>assist", "<|start|>assistant to=us"])
def test_a_header_that_is_cut_off_is_no_text(finish: str, cut: str) -> None:
    raw = f" to=self<|message|>hm<|eom|>{cut}"
    assert said(MarkupFormat(BY_NAME["muse_glimmer"]), raw, finish) == [("reasoning", "hm")]


def test_a_list_that_has_begun_with_a_call_is_one_of_calls() -> None:
    parser = MarkupFormat(BY_NAME["pythonic"]).parser(ParserContext(tail="text", tools=TOOLS))
    found = blocks(feed(parser, ["[f(), other()]"], "stop"))
    assert [(each.name, each.text) for each in found] == [("f", "{}"), ("other", "{}")]
