"""What is written is read back the same, whatever it holds."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect

from gateway.wire import items, tools
from gateway.wire.common import encode
from gateway.wire.event_frames import decode_event, sse_frame
from gateway.wire.events import AnyEvent
from gateway.wire.item_decoding import decode_items
from gateway.wire.items import Item
from gateway.wire.parameter_table import RESPONSES
from gateway.wire.request import ResponseRequest, decode_response_request
from gateway.wire.response import Response, snapshot
from gateway.wire.tools import Tool, ToolChoice, decode_tool_choice, decode_tools

TEXT = st.text(max_size=8)
INTS = st.integers(-(2**63), 2**63)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | INTS | FLOATS | TEXT,
    lambda below: st.lists(below, max_size=2) | st.dictionaries(TEXT, below, max_size=2),
    max_leaves=3,
)

_structs: dict[type, st.SearchStrategy[Any]] = {}


def strategy_of(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Any value of one of msgspec's types."""
    match kind:
        case inspect.Metadata(type=inner):
            return strategy_of(inner)
        case inspect.StructType():
            if kind.cls not in _structs:
                given_always = {f.name: strategy_of(f.type) for f in kind.fields if f.required}
                at_times = {f.name: strategy_of(f.type) for f in kind.fields if not f.required}
                cls = kind.cls
                _structs[cls] = st.fixed_dictionaries(given_always, optional=at_times).map(
                    lambda values: cls(**values)
                )
            return _structs[kind.cls]
        case inspect.UnionType(types=types):
            return st.one_of([strategy_of(each) for each in types])
        case inspect.ListType(item_type=item):
            return st.lists(strategy_of(item), max_size=2)
        case inspect.DictType(value_type=value):
            return st.dictionaries(TEXT, strategy_of(value), max_size=2)
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.StrType(pattern=pattern, min_length=least):
            if pattern is not None:
                return st.from_regex(r"\A[a-zA-Z0-9_-]{1,9}\Z")
            return st.text(min_size=least or 0, max_size=8)
        case inspect.IntType(ge=low, le=high):
            return INTS if low is None else st.integers(low, high)
        case inspect.FloatType(ge=low, le=high, gt=above):
            if low is None and above is None:
                return FLOATS
            return st.floats(low if low is not None else above, high, exclude_min=low is None)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.AnyType():
            return JSON
        case _:
            raise AssertionError(kind)


def anything(of: Any) -> st.SearchStrategy[Any]:
    return strategy_of(inspect.type_info(of))


relaxed = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@relaxed
@given(anything(AnyEvent))
def test_events(event: Any) -> None:
    assert decode_event(encode(event)) == event
    frame = sse_frame(event)
    assert frame.count(b"\n") == 3
    assert b"\r" not in frame


@relaxed
@given(anything(Response))
def test_responses(response: Response) -> None:
    assert msgspec.json.decode(encode(response), type=Response) == response


@relaxed
@given(anything(Item))
def test_items(item: Item) -> None:
    assert msgspec.json.decode(encode(item), type=Item) == item


def _may_be_sent(item: Item) -> bool:
    """Each role has its own parts: what a request may not mix is left out here. An output names its call or its tool."""
    if isinstance(item, items.FunctionCallOutput):
        return item.call_id is not None or bool(item.name)
    return not isinstance(item, items.Message)


@relaxed
@given(st.lists(anything(Item).filter(_may_be_sent)))
def test_items_through_the_api_door(sent: list[Item]) -> None:
    assert decode_items(msgspec.json.decode(encode(sent))) == sent


@relaxed
@given(st.lists(anything(Tool), max_size=3))
def test_tools(sent: list[Tool]) -> None:
    assert decode_tools(msgspec.json.decode(encode(sent))) == sent


@relaxed
@given(anything(ToolChoice))
def test_tool_choices(choice: tools.ToolChoice) -> None:
    assert decode_tool_choice(msgspec.json.decode(encode(choice))) == choice


MEMBERS_WITHOUT_EFFECT = {
    "prompt_cache_options.comparison_response_id",
    "prompt_cache_options.prewarm",
    "tools.async",
}
"""Members of parameters that are accepted and reported, like unknown parameters."""


@relaxed
@given(anything(ResponseRequest))
def test_requests(request: ResponseRequest) -> None:
    request.input = []
    request.metadata = None
    again = decode_response_request(encode(request))
    assert again == request
    assert set(again.unknown) <= RESPONSES.ignored | MEMBERS_WITHOUT_EFFECT


def test_a_snapshot_does_not_change_with_its_original() -> None:
    response = Response(id="resp_1", created_at=1, status="in_progress", model="m")
    before = snapshot(response)
    response.status = "completed"
    response.output.append(items.Reasoning(id="rs_1"))
    assert before.status == "in_progress"
    assert before.output == []
