"""Every format keeps the contract of output parsers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from gateway.plugins.protocols import OutputFormat, Piece, TextPiece
from gateway_parsers import FORMATS, MarkupFormat
from gateway_parsers.spec import FormatSpec
from gateway_testing.output_contract import OutputParserContract

SHAPES = (
    "qwen3", "qwen3_coder", "glm45", "kimi_k2", "kimi_k3", "deepseek_v3", "deepseek_v32", "llama3_json", "mistral",
    "gemma4", "minimax_m2", "minimax_m3", "lfm2", "inkling", "plain",
)  # fmt: skip
"""One of each shape; the others differ by their markers, and are tried with fewer examples."""
READERS = ("qwen3", "qwen3_coder", "kimi_k2", "gemma4", "lfm2", "minimax_m3")
"""One for each way of reading."""


class FormatContract(OutputParserContract):
    """The contract for one of `FORMATS`."""

    spec: FormatSpec

    @pytest.fixture
    def output_format(self) -> OutputFormat:
        return MarkupFormat(self.spec)

    def test_the_cost_is_linear(self, output_format: OutputFormat) -> None:
        if self.spec.name not in READERS:
            pytest.skip("measured for one format of each reader")
        super().test_the_cost_is_linear(output_format)


class NestedContract(FormatContract):
    """MiniMax M3 writes what no schema describes as plain text, in which `12` may be a number or a string."""

    def arguments(self) -> st.SearchStrategy[dict[str, Any]]:
        numbers = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 9))
        return st.builds(
            lambda arguments, more: (
                {**arguments, "more": more} if "more" in arguments else arguments
            ),
            super().arguments(),
            numbers,
        )


class BareContract(FormatContract):
    """Calls without a marker: after text that ends in `[`, they are a list of calls that has no end."""

    def answers(self) -> st.SearchStrategy[list[Piece]]:
        def opens_a_list(pieces: list[Piece]) -> bool:
            texts = [each.text for each in pieces if isinstance(each, TextPiece)]
            return len(texts) < len(pieces) and any(text.endswith("[") for text in texts)

        return super().answers().filter(lambda pieces: not opens_a_list(pieces))


def contract_of(spec: FormatSpec) -> type[FormatContract]:
    special = {"minimax_m3": NestedContract, "llama3_json": BareContract, "json": BareContract}
    base = special.get(spec.name, FormatContract)
    name = "Test" + spec.name.title().replace("_", "").replace("-", "")
    halves: dict[str, Any] = {
        "reasons": spec.reasoning is not None,
        "calls": spec.calls is not None,
    }
    if spec.lead:
        halves["tails"] = ("text",)  # elsewhere it shows what the prompt contains
    examples = 15 if spec.name in SHAPES else 5  # so many that all formats together take seconds
    more = {"spec": spec, "max_examples": examples, "__doc__": spec.summary}
    return type(name, (base,), {**more, **halves})


for each in FORMATS:
    tests = contract_of(each)
    globals()[tests.__name__] = tests
del tests
