"""Errors hold the place of the parameter at fault as a path, and show it as OpenAI does."""

from __future__ import annotations

import pytest

from gateway.errors import InvalidRequest, ParamPath, param_text, renamed_params


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("input",), "input"),
        (("input", 3, "content", 0, "text"), "input[3].content[0].text"),
        (("logit_bias", "5"), "logit_bias.5"),
        (("prompt", 1, 2), "prompt[1][2]"),
        ((), ""),
    ],
)
def test_a_path_is_shown_with_brackets_and_dots(path: ParamPath, text: str) -> None:
    assert param_text(path) == text
    assert InvalidRequest("no", param=path).param == (text or None)


def test_a_name_is_a_path_of_one_step() -> None:
    error = InvalidRequest("no", param="input")
    assert (error.at, error.param) == (("input",), "input")
    for error in (InvalidRequest("no"), InvalidRequest("no", param="")):
        assert (error.at, error.param) == ((), None)


def test_a_renamed_error_is_the_same_error() -> None:
    raised = InvalidRequest("no", param=("filters", "n"), code="bad")
    with pytest.raises(InvalidRequest) as caught, renamed_params(lambda path: ("tools", 0, *path)):
        raise raised
    assert caught.value is raised
    assert (raised.param, raised.code) == ("tools[0].filters.n", "bad")
