"""Errors hold the place of the parameter at fault as a path, and show it as OpenAI does."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.base import errors
from gateway.base.errors import GatewayError, InvalidRequest, ParamPath, param_text, renamed_params

PAGE = Path(__file__).parents[3] / "docs" / "errors.md"
ERRORS = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, GatewayError) and each is not GatewayError
]


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


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_the_page_of_errors_has_each(kind: type[GatewayError]) -> None:
    rows = [line.split("|")[1:4] for line in PAGE.read_text().splitlines() if line.startswith("|")]
    named = [
        row for row in rows if row[0].strip() == str(kind.status) and f"`{kind.type}`" in row[1]
    ]
    assert any(kind.default_code is None or f"`{kind.default_code}`" in row[2] for row in named)


def test_what_is_away_is_said_to_be_worth_another_try() -> None:
    away = [each for each in ERRORS if each.status == 503]
    assert away
    for kind in away:
        assert kind("away").headers == {"retry-after": "1"}
        assert kind("away", headers={"retry-after": "7"}).headers == {"retry-after": "7"}
