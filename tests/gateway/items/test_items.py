from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.base.deltas import Delta, TextDelta, joined
from gateway.items.assembler import ResponseAssembler
from gateway.items.items import ItemAssembler
from gateway.plugins.protocols import CallRecord, FinishReason, Source, ToolResult
from gateway.wire.response import Response
from tests.gateway.items.random_deltas import DELTAS, ROLES

RESULT = ToolResult(
    text="【1†a】",
    sources=[Source(cursor=1, url="https://example.com/", title="a")],
    details={"action": {"type": "search", "query": "q"}},
)
KNOWN = {
    "ws_0": CallRecord(
        name="search", arguments="{}", result="【2†b】",
        sources=[Source(cursor=2, url="https://example.com/b", title="b")],
    )
}  # fmt: skip
CITED = st.sampled_from(["【1†a】", "see 【2†b】 and", "【"]).map(TextDelta)
TURNS = st.lists(
    st.tuples(
        st.tuples(DELTAS, st.lists(CITED, max_size=3)).map(lambda parts: [*parts[0], *parts[1]]),
        st.sampled_from(["stop", "length", "content_filter"]),
    ),
    min_size=1,
    max_size=3,
)


def ids() -> Any:
    count = itertools.count()
    return lambda prefix: f"{prefix}{next(count)}"


@given(TURNS, st.booleans(), st.booleans())
def test_items_are_the_same_with_and_without_events(
    turns: list[tuple[list[Delta], FinishReason]], whole: bool, cites: bool
) -> None:
    known = KNOWN if cites else {}
    response = Response(id="resp_1", created_at=0, model="m", status="in_progress")
    announced = ResponseAssembler(
        response, roles=ROLES, new_id=ids(), clock=lambda: 7.0, known=known
    )
    announced.start()
    plain = ItemAssembler(roles=ROLES, new_id=ids(), known=known)
    for deltas, reason in turns:
        for delta in deltas:
            announced.feed((delta,))
        plain.write(joined(deltas) if whole else deltas)
        announced.end((), reason)
        plain.end_generation(reason)
        both = announced.items, plain
        assert [call.arguments for call in both[0].pending_calls] == [
            call.arguments for call in both[1].pending_calls
        ]
        for call, same in zip(both[0].pending_calls, both[1].pending_calls, strict=True):
            announced.running([call])
            announced.called(call, RESULT)
            plain.call_finished(same, RESULT)
        assert plain.finished_items == announced.items.finished_items
        assert plain.results == announced.items.results
        assert plain.calls_client == announced.items.calls_client
        assert plain.limit == announced.items.limit


@given(DELTAS)
def test_an_answer_that_ends_early_has_the_same_items(deltas: list[Delta]) -> None:
    response = Response(id="resp_1", created_at=0, model="m", status="in_progress")
    announced = ResponseAssembler(response, roles=ROLES, new_id=ids(), clock=lambda: 7.0)
    announced.start()
    announced.feed(deltas)
    announced.cancel(None)
    plain = ItemAssembler(roles=ROLES, new_id=ids())
    plain.write(joined(deltas))
    plain.end()
    assert plain.finished_items == response.output
