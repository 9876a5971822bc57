"""Places in a conversation are told as places in the request that continues it."""

from __future__ import annotations

import pytest

from gateway.errors import ParamPath, param_text
from gateway.responses.params import request_path


@pytest.mark.parametrize(
    ("place", "param"),
    [
        (("input", 0, "content", 1, "type"), "conversation"),
        (("input", 2, "content", 1, "type"), "conversation"),
        (("input", 3), "input[0]"),
        (("input", 4, "content", 1, "type"), "input[1].content[1].type"),
        (("input", 5), ""),  # written since
        (("input",), "input"),
        (("max_tokens",), "max_output_tokens"),
        (("logprobs",), "include"),
        (("text", "format", "schema"), "text.format.schema"),
        (("tools", 0, "tools", 1, "parameters"), "tools[0].tools[1].parameters"),
    ],
)
def test_an_item_is_named_by_where_the_client_sent_it(place: ParamPath, param: str) -> None:
    path = request_path(place, before=3, own=2, source_param="conversation", logprobs="include")
    assert param_text(path) == param
