"""Every format keeps the contract of output parsers."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_parsers import FORMATS, MarkupFormat
from gateway_parsers.spec import FormatSpec
from hypothesis import strategies as st

from gateway.protocols import OutputFormat
from gateway.testing import output_contract
from gateway.testing.output_contract import OutputParserContract


class FormatContract(OutputParserContract):
    """The contract for one of `FORMATS`."""

    spec: FormatSpec

    @pytest.fixture
    def output_format(self) -> OutputFormat:
        return MarkupFormat(self.spec)


class Nested(FormatContract):
    """MiniMax M3 writes what no schema describes as plain text, in which `12` may be a number or a string."""

    def arguments(self) -> st.SearchStrategy[dict[str, Any]]:
        more = st.dictionaries(
            st.text("abc", min_size=1, max_size=3), st.integers(0, 9), max_size=2
        )
        return st.builds(
            lambda known, extra: {**known, **({"more": extra} if extra is not None else {})},
            super().arguments().map(lambda all_: {k: v for k, v in all_.items() if k != "more"}),
            st.none() | more,
        )


BASES: dict[str, type[FormatContract]] = {"minimax_m3": Nested}

for each in FORMATS:
    attributes = {
        "spec": each,
        "reasons": each.reasoning is not None,
        "calls": each.calls is not None,
    }
    name = "Test" + "".join(map(str.title, each.name.replace("-", "_").split("_")))
    globals()[name] = type(name, (BASES.get(each.name, FormatContract),), attributes)
