"""Requests to /v1/rerank and /v1/score from outside: whatever they hold, they are bounded, or refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.errors import InvalidRequest
from gateway.wire.scoring import ScoringLimits, decode_rerank_request, decode_score_request

LIMITS = ScoringLimits(max_pairs=4, max_bytes=100)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from(["text", "x"]), inner)
    ),
    max_leaves=8,
)
TEXTS = st.lists(st.text(max_size=60), max_size=6) | st.text(max_size=60) | ANYTHING
RERANK = st.fixed_dictionaries(
    {"query": TEXTS, "documents": TEXTS},
    optional=dict.fromkeys(("top_n", "return_documents", "priority", "unknown", "user"), ANYTHING),
)
SCORE = st.fixed_dictionaries(
    {"text_1": TEXTS, "text_2": TEXTS},
    optional=dict.fromkeys(("queries", "names", "several", "documents"), ANYTHING),
)


def size(texts: list[str]) -> int:
    return sum(len(text.encode()) for text in texts)


@settings(max_examples=150, deadline=None)
@given(RERANK)
def test_a_rerank_request_is_bounded_or_refused_by_name(body: dict[str, Any]) -> None:
    try:
        request = decode_rerank_request(json.dumps(body).encode(), LIMITS)
    except InvalidRequest as error:
        _named(error, body)
        return
    documents = request.documents
    assert 0 < len(documents) <= LIMITS.max_pairs
    assert size(documents) + size([request.query]) * len(documents) <= LIMITS.max_bytes
    assert all(text.strip() for text in (request.query, *documents))


@settings(max_examples=150, deadline=None)
@given(SCORE)
def test_a_score_request_is_bounded_or_refused_by_name(body: dict[str, Any]) -> None:
    try:
        request = decode_score_request(json.dumps(body).encode(), LIMITS)
    except InvalidRequest as error:
        _named(error, {**body, "queries": None, "documents": None})
        return
    queries, documents = request.queries, request.documents
    assert request.names == (("queries", "documents") if _has_both(body) else ("text_1", "text_2"))
    assert 0 < len(documents) <= LIMITS.max_pairs
    assert len(queries) in (1, len(documents))
    pairs = size(documents) + size(queries) * (len(documents) if len(queries) == 1 else 1)
    assert pairs <= LIMITS.max_bytes


def _named(error: InvalidRequest, body: dict[str, Any]) -> None:
    assert error.at[0] in body


def _has_both(body: dict[str, Any]) -> bool:
    return body.get("queries") is not None and body.get("documents") is not None


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"query": "\\ud800"}', b'{"query": NaN}'])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    for decode in (decode_rerank_request, decode_score_request):
        with pytest.raises(InvalidRequest):
            decode(body, LIMITS)
