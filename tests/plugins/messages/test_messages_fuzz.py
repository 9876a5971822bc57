"""Whatever is sent, it is answered, or refused in this API's form."""

from __future__ import annotations

import copy
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

BODY: dict[str, Any] = {
    "model": "scripted",
    "max_tokens": 2000,
    "system": [{"type": "text", "text": "s"}],
    "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "a"},
            {"type": "document", "title": "t", "source": {"type": "content", "content": [{"type": "text", "text": "d"}]}},
            {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "r"}]}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
            {"type": "tool_use", "id": "1", "name": "f", "input": {"a": [1]}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "1", "is_error": True,
             "content": [{"type": "text", "text": "b"}, {"type": "tool_reference", "tool_name": "f"}]}]},
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {"a": {}}}}],
    "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
    "stop_sequences": ["x"],
    "temperature": 0.5,
    "metadata": {"user_id": "u"},
    "output_config": {"effort": "low"},
}  # fmt: skip
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=5),
    st.sampled_from(["text", "tool_use", "image", "assistant", "system", "auto", "object"]),
    st.just([]),
    st.just({}),
    st.just([[]]),
    st.just({"type": "text"}),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values inside `value`."""
    found = [path] if path else []
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()  # fmt: skip
    for key, inner in pairs:
        found += places(inner, (*path, key))
    return found


PLACES = places(BODY)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3),
    st.sampled_from(["/v1/messages", "/v1/messages/count_tokens"]),
)
def test_a_mutated_request_is_answered_or_refused(
    raw: httpx.Client, changes: list[tuple[tuple[Any, ...], Any]], path: str
) -> None:
    body = copy.deepcopy(BODY)
    for place, value in changes:
        *above, key = place
        level: Any = body
        try:
            for step in above:
                level = level[step]
            level[key] = copy.deepcopy(value)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    answer = raw.post(path, json=body)
    told = answer.json()
    if answer.status_code != 200:
        assert answer.status_code in (400, 404), told
        assert told["type"] == "error"
        assert told["error"]["type"] in ("invalid_request_error", "not_found_error")
        assert told["error"]["message"]
        return
    assert "input_tokens" in told or told["type"] == "message"


def test_the_request_that_is_mutated_is_a_good_one(raw: httpx.Client) -> None:
    assert raw.post("/v1/messages", json=BODY).status_code == 200
