"""Parameters of other servers: refused if they would change the answer, reported otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import Unsupported
from gateway.wire.foreign_parameters import FOREIGN, unknown_names


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("regex", None),
        ("regex", ""),
        ("separate_reasoning", True),
        ("return_hidden_states", False),
        ("bootstrap_room", None),
        ("n_predict", -1),
        ("colour", "red"),
    ],
)
def test_what_changes_nothing_is_reported(name: str, value: Any) -> None:
    assert unknown_names({"model": "m", name: value}, {"model"}) == [name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("regex", "a+"),
        ("separate_reasoning", False),
        ("return_hidden_states", True),
        ("n_predict", 5),
        ("custom_params", {"a": [{}]}),
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(Unsupported) as refused:
        unknown_names({"colour": "red", name: value}, {"model"})
    assert refused.value.at == (name,)
    assert refused.value.message == FOREIGN[name]


def test_what_an_api_has_itself_is_not_foreign_to_it() -> None:
    assert unknown_names({"regex": "a+"}, {"regex"}) == []


def test_a_limit_that_is_sent_under_both_names_is_accepted() -> None:
    """As SillyTavern does."""
    body = {"max_tokens": 153, "n_predict": 153}
    assert unknown_names(body, {"max_tokens"}) == ["n_predict"]
    for other in ({**body, "n_predict": 5}, {**body, "max_tokens": None}):
        with pytest.raises(Unsupported):
            unknown_names(other, {"max_tokens"})
    with pytest.raises(Unsupported):  # what the API does not have limits nothing
        unknown_names(body, {"max_output_tokens"})
