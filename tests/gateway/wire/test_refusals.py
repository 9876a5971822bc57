"""Parameters are refused where they would change the answer; which requests have those of self-hosted engines."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from gateway.base.errors import Unsupported
from gateway.wire.api_parameters import ApiParameters
from gateway.wire.chat import ChatRequest
from gateway.wire.completions import CompletionRequest
from gateway.wire.parameter_table import CHAT, COMPLETIONS, OTHER_SERVERS, PLUGINS, RESPONSES
from gateway.wire.parameters import SharedParameters
from gateway.wire.refusals import refuse, unknown_names
from gateway.wire.request import ResponseRequest
from gateway.wire.sampling import SamplingParameters

MESSAGES = {row.name: row.refused[0].message for row in OTHER_SERVERS}


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
    assert refused.value.message == MESSAGES[name]


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


APIS: dict[ApiParameters, SharedParameters] = {
    RESPONSES: ResponseRequest(model="m", temperature=1.0, stop="x", seed=3),
    CHAT: ChatRequest(model="m", messages=[], temperature=1.0),
    COMPLETIONS: CompletionRequest(model="m", top_k=3),
    PLUGINS: SharedParameters(cache_salt="s"),
}


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_request_with_any_parameter_of_engines_is_extended(api: ApiParameters) -> None:
    request = APIS[api]
    assert not refuse(request, api)
    for name in {*SharedParameters.__struct_fields__} - {*SamplingParameters.__struct_fields__}:
        setattr(request, name, 2)
        with suppress(Unsupported):
            assert refuse(request, api), name
        setattr(request, name, None)
