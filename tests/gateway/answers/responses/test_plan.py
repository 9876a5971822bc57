"""A plan has all that is decided about a response before it runs, and errors name the parameter that is at fault."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gateway_chat_template
import gateway_memory
import gateway_parsers
import gateway_scripted
from gateway import hookimpl
from gateway.answers.responses.plan import Plan, make_plan
from gateway.base.errors import GatewayError, InvalidRequest, NotFound, Unsupported
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.config.prompts import decode_prompt
from gateway.plugins.loading import load_plugins
from gateway.plugins.protocols import ServerTool, ToolDefinition, ToolServer
from gateway.services import Services
from gateway.startup.service_opening import open_services
from gateway.wire.common import encode
from gateway.wire.items import Item, McpListTools
from gateway.wire.request import convert_response_request
from gateway.wire.response import Conversation
from gateway_testing.store_records import message, record

_NUMBERS = itertools.count()


class Docs(ToolServer):
    """Has one tool, for each request with an entry of the type `mcp`."""

    label = request_type = "mcp"

    async def tools(self) -> Sequence[ServerTool]:
        return [ServerTool(definition=ToolDefinition(name="look_up", parameters={}))]


class Plugin:
    @asynccontextmanager
    async def docs(self, config: Any) -> AsyncIterator[Docs]:
        yield Docs()

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("mcp", self.docs)


PLUGINS = [gateway_chat_template, gateway_memory, gateway_parsers, gateway_scripted, Plugin()]
MODEL = ModelConfig(engine="scripted", renderer="chat_template", parser="plain")
PROMPT = {"text": "You are {{who}}.", "messages": [{"role": "user", "content": "Be {{how}}."}] * 2}


class Planner:
    """Plans requests with one set of services, all on one event loop."""

    def __init__(self, runner: asyncio.Runner, services: Services) -> None:
        self.run = runner.run
        self.services = services

    def plan(self, options: Mapping[str, Any] = MappingProxyType({}), **request: Any) -> Plan:
        """Plan a request. `options` are further arguments of `make_plan`."""
        decoded = convert_response_request({"model": "m", "input": "x", **request})
        return self.run(make_plan(decoded, self.services, **{"size": 1, **options}))

    def answered(self, input_: list[Item], output: Sequence[Item] = ()) -> str:
        """Store a completed response; its id."""
        stored = record(input_=input_, output=output)
        assert self.services.store is not None
        self.run(self.services.store.put(stored))
        return stored.id

    def conversation(self, items: list[Item]) -> str:
        """Store a conversation with `items`; its id."""
        found = Conversation(id=f"conv_{next(_NUMBERS)}", created_at=1)
        assert self.services.store is not None
        self.run(self.services.store.put_conversation(found))
        if items:
            self.run(self.services.store.append_items(found.id, items))
        return found.id


def planner_of(store: str | None) -> Iterator[Planner]:
    config = Config(
        server=ServerConfig() if store is None else ServerConfig(store=store),
        models={
            "m": MODEL,
            "other": msgspec.structs.replace(
                MODEL, reasoning_summary="none", chat_template_kwargs={"a": 1, "b": 1}
            ),
        },
        prompts={"p": decode_prompt("p", PROMPT, None)},
        tools={"mcp": {}},
    )
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        plugins = load_plugins(extra=PLUGINS, installed=False)
        try:
            yield Planner(runner, runner.run(open_services(config, plugins, stack)))
        finally:
            runner.run(stack.aclose())


@pytest.fixture(scope="module")
def planner() -> Iterator[Planner]:
    yield from planner_of(None)


@pytest.fixture(scope="module")
def without_store() -> Iterator[Planner]:
    """A gateway that stores nothing."""
    yield from planner_of("none")


def sent(items: Sequence[Item]) -> list[Any]:
    """Items as a client sends them again."""
    return list(json.loads(encode(items)))


def made(count: int) -> list[Item]:
    return [message(("user", "assistant")[at % 2], f"text {at}") for at in range(count)]


@given(before=st.integers(0, 5), again=st.integers(0, 5), new=st.integers(1, 3), data=st.data())
@settings(max_examples=40)
def test_each_item_is_in_the_history_or_in_the_input(
    planner: Planner, before: int, again: int, new: int, data: st.DataObject
) -> None:
    """Also if the client has sent the end of the history again. The model reads all of them once."""
    items = made(before)
    repeated = items[before - min(again, before) :]
    following = [{"role": "user", "content": f"new {at}"} for at in range(new)]
    in_conversation = data.draw(st.booleans())
    source: dict[str, Any] = (
        {"conversation": planner.conversation(items)}
        if in_conversation
        else {"previous_response_id": planner.answered(items[:1], items[1:])}
    )
    plan = planner.plan(**source, input=[*sent(repeated), *following])
    read = [each.id for each in plan.turn.items]
    assert [each.id for each in (*plan.history, *plan.input)] == read
    assert read[:before] == [each.id for each in items]
    assert len(set(read)) == len(read) == before + new
    # A conversation recognizes what was sent again; a response must not store it a second time.
    assert len(plan.input) == new + (len(repeated) if in_conversation else 0)


@given(
    prompted=st.booleans(),
    before=st.integers(0, 4),
    own=st.integers(1, 4),
    in_conversation=st.booleans(),
    index=st.integers(0, 12),
)
@settings(max_examples=60)
def test_an_error_about_an_item_names_where_it_came_from(
    planner: Planner, prompted: bool, before: int, own: int, in_conversation: bool, index: int
) -> None:
    items = made(before)
    request: dict[str, Any] = {"input": [{"role": "user", "content": "x"}] * own}
    preamble = 2 if prompted else 0
    if prompted:
        request["prompt"] = {"id": "p", "variables": {"who": "a poet", "how": "brief"}}
    source = "conversation" if in_conversation else "previous_response_id"
    if in_conversation:
        request["conversation"] = planner.conversation(items)
    elif before:
        request["previous_response_id"] = planner.answered(items[:1], items[1:])
    plan = planner.plan(**request)
    assert len(plan.turn.items) == preamble + before + own
    with pytest.raises(InvalidRequest) as raised, plan.params:
        raise InvalidRequest("wrong", param=("input", index, "content"))
    expected: tuple[str | int, ...] = ()  # an item of the response itself
    if index < preamble:
        expected = ("prompt",)
    elif index < preamble + before:
        expected = (source,)
    elif index < preamble + before + own:
        expected = ("input", index - preamble - before, "content")
    assert raised.value.at == expected


@pytest.mark.parametrize(
    ("request_", "path", "named"),
    [
        ({}, ("max_tokens",), ("max_output_tokens",)),
        ({"top_logprobs": 2}, ("logprobs",), ("top_logprobs",)),
        ({"include": ["message.output_text.logprobs"]}, ("logprobs",), ("include",)),
        ({}, ("text", "format", "schema"), ("text", "format", "schema")),
        ({"guided_json": {"type": "object"}}, ("text", "format", "schema"), ("guided_json",)),
        ({}, ("temperature",), ("temperature",)),
    ],
)
def test_an_error_about_a_parameter_names_that_of_the_request(
    planner: Planner,
    request_: dict[str, Any],
    path: tuple[str, ...],
    named: tuple[str, ...],
) -> None:
    plan = planner.plan(**request_)
    with pytest.raises(InvalidRequest) as raised, plan.params:
        raise InvalidRequest("wrong", param=path)
    assert raised.value.at == named


def test_the_messages_of_a_prompt_precede_the_conversation_and_are_not_part_of_it(
    planner: Planner,
) -> None:
    items = made(2)
    plan = planner.plan(
        prompt={"id": "p", "variables": {"who": "a poet", "how": "brief"}},
        previous_response_id=planner.answered(items[:1], items[1:]),
    )
    assert plan.preamble == 2
    items_: list[Any] = [*plan.turn.items]
    assert [each.content[0].text for each in items_] == [
        "Be brief.",
        "Be brief.",
        "text 0",
        "text 1",
        "x",
    ]
    assert (len(plan.history), len(plan.input)) == (2, 1)
    assert plan.turn.instructions == plan.response.instructions == "You are a poet."
    assert plan.response.prompt["version"] == "1"  # type: ignore[index]


WITHOUT: dict[str, Any] = {
    "stream": False,
    "shows_times": False,
    "background": False,
    "wants_logprobs": False,
    "shows_ids": False,
    "seals_reasoning": False,
    "summarizes_reasoning": False,
    "truncate": False,
    "store": True,
    "generates": True,
    "conversation_id": None,
    "previous_response_id": None,
    "max_tool_calls": None,
    "compaction": None,
    "has_credentials": False,
    "preamble": 0,
    "body": None,
    "kept_body": None,
}
"""What a request decides that has a model and an input only."""


@pytest.mark.parametrize(
    ("sent_", "decided"),
    [
        ({}, {}),
        ({"stream": True}, {"stream": True}),
        ({"timings_per_token": True}, {"shows_times": True}),
        ({"background": True}, {"background": True}),
        ({"background": True, "stream": True}, {"background": True, "stream": True}),
        ({"top_logprobs": 0}, {}),
        ({"top_logprobs": 3}, {"wants_logprobs": True}),
        ({"include": ["message.output_text.logprobs"]}, {"wants_logprobs": True}),
        ({"return_tokens_as_token_ids": True}, {"shows_ids": True}),
        ({"include": ["reasoning.encrypted_content"]}, {"seals_reasoning": True}),
        ({"reasoning": {"effort": "low"}}, {}),
        ({"reasoning": {"summary": "auto"}}, {"summarizes_reasoning": True}),
        ({"reasoning": {"generate_summary": "concise"}}, {"summarizes_reasoning": True}),
        ({"model": "other", "reasoning": {"summary": "auto"}}, {}),
        ({"truncation": "auto"}, {"truncate": True}),
        ({"truncation": "disabled"}, {}),
        ({"store": False}, {"store": False}),
        ({"store": True}, {}),
        ({"generate": False}, {"generates": False}),
        ({"prompt_cache_options": {"prewarm": True}}, {"generates": False}),
        ({"max_tool_calls": 3}, {"max_tool_calls": 3}),
    ],
)
def test_each_parameter_decides_its_own_and_nothing_else(
    planner: Planner, sent_: dict[str, Any], decided: dict[str, Any]
) -> None:
    plan = planner.plan(**sent_)
    assert {name: getattr(plan, name) for name in WITHOUT} == {**WITHOUT, **decided}
    assert plan.include == sent_.get("include", ())
    assert plan.response.store is plan.store
    assert plan.response.background is plan.background
    assert plan.response.status == "in_progress"
    assert all(each.id for each in plan.input)


def test_the_turn_has_what_the_request_says_to_the_model(planner: Planner) -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    plan = planner.plan(
        instructions="Be brief.",
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
        reasoning={"effort": "low"},
        text={"format": {"type": "json_object"}},
        chat_template_kwargs={"loud": True},
        documents=[{"text": "a page"}],
        add_generation_prompt=False,
    )
    turn = plan.turn
    assert turn.instructions == "Be brief."
    assert [each.name for each in turn.tools] == ["f"]
    assert turn.tool_choice == "required"
    assert not turn.parallel_tool_calls
    assert turn.reasoning_effort == "low"
    assert turn.text_format.kind == "json_object"
    assert turn.chat_template_kwargs == {"loud": True}
    assert turn.documents == [{"text": "a page"}]
    assert not turn.add_generation_prompt
    assert plan.settings.tool_params == {"f": ("tools", 0, "parameters")}


def test_template_variables_of_the_request_precede_those_of_the_model(planner: Planner) -> None:
    plan = planner.plan(model="other", chat_template_kwargs={"b": 2, "c": 2})
    assert plan.turn.chat_template_kwargs == {"a": 1, "b": 2, "c": 2}
    assert planner.plan(model="other").turn.chat_template_kwargs == {"a": 1, "b": 1}


def test_the_engine_is_told_what_the_gateway_knows_of_the_request(planner: Planner) -> None:
    options = {"owner": "somebody", "size": 17, "trace_headers": {"traceparent": "00-1"}}
    plan = planner.plan(options, prompt_cache_key="key", cache_salt="salt")
    assert plan.owner == "somebody"
    assert plan.settings.size == 17
    assert plan.settings.trace_headers == {"traceparent": "00-1"}
    assert plan.settings.hints == {"prompt_cache_key": "key"}
    assert plan.settings.cache_salt == "salt"


def test_tools_are_bound_to_the_owner_and_the_conversation(planner: Planner) -> None:
    items = made(2)
    entry = {**ENTRY, "server_url": "https://docs.example/mcp"}
    previous = planner.answered(items[:1], items[1:])
    plan = planner.plan(tools=[entry], previous_response_id=previous)
    context = plan.toolset.bound_tools["look_up"].context
    assert context.owner is None
    assert [each.id for each in context.items] == [each.id for each in plan.turn.items]
    plan = planner.plan({"owner": "somebody"}, tools=[entry])
    assert plan.toolset.bound_tools["look_up"].context.owner == "somebody"


def test_updates_in_the_conversation_take_precedence_over_the_request(planner: Planner) -> None:
    plan = planner.plan(
        reasoning={"effort": "low", "summary": "auto"},
        input=[
            {"role": "user", "content": "x"},
            {"type": "configuration_update", "reasoning": {"effort": "high"}},
        ],
    )
    assert plan.turn.reasoning_effort == "high"
    assert plan.response.reasoning is not None
    assert plan.response.reasoning.effort == "high"
    assert plan.summarizes_reasoning


def test_the_model_may_be_another_than_the_request_names(planner: Planner) -> None:
    assert planner.plan().model.name == "m"
    plan = planner.plan({"model_name": "other"}, model="unknown")
    assert plan.model.name == plan.response.model == "other"


def test_what_is_not_stored_can_be_continued_if_its_history_is_known(
    planner: Planner, without_store: Planner
) -> None:
    items = made(2)
    for each in (planner, without_store):
        known = {"unstored": {"resp_1": items, "resp_2": []}}
        plan = each.plan(known, previous_response_id="resp_1")
        assert [*plan.history] == items
        assert plan.previous_response_id == "resp_1"
        with pytest.raises(GatewayError) as raised:
            each.plan(known, previous_response_id="resp_3")
        assert raised.value.param == "previous_response_id"


def test_nothing_is_stored_without_a_store(without_store: Planner) -> None:
    for store in (None, False):
        plan = without_store.plan(store=store)
        assert plan.store is plan.response.store is False


SECRETS = {"authorization": "secret-1", "headers": {"x-key": "secret-2"}}
ADDRESS = "https://user:secret-3@docs.example/mcp?key=secret-4"
ENTRY = {"type": "mcp", "server_label": "mcp", "require_approval": "never"}


def test_credentials_of_tools_are_used_and_not_shown(planner: Planner) -> None:
    plan = planner.plan(tools=[{**ENTRY, "server_url": ADDRESS, **SECRETS}])
    assert plan.has_credentials
    assert b"secret" not in encode(plan.response)
    assert plan.addresses == {"mcp": "https://docs.example/mcp"}
    entry = plan.toolset.bound_tools["look_up"].context.entry
    assert all(b"secret-%d" % number in encode(entry) for number in (1, 2, 3, 4))


def test_an_address_alone_is_no_credential(planner: Planner) -> None:
    plan = planner.plan(tools=[{**ENTRY, "server_url": "https://docs.example/mcp"}])
    assert not plan.has_credentials
    assert plan.addresses == {"mcp": "https://docs.example/mcp"}


def test_the_list_of_tools_is_shown_unless_the_conversation_has_it(planner: Planner) -> None:
    entry = {**ENTRY, "server_url": "https://docs.example/mcp"}
    [listing] = planner.plan(tools=[entry]).listings
    assert (listing.id, [tool.name for tool in listing.tools]) == ("", ["look_up"])
    shown = McpListTools(id="mcpl_1", server_label="mcp", tools=listing.tools)
    previous = planner.answered(made(1), [shown])
    assert planner.plan(tools=[entry], previous_response_id=previous).listings == []
    assert planner.plan().listings == ()


def test_a_response_compacts_its_history_when_it_is_asked_to(planner: Planner) -> None:
    limited = planner.plan(context_management=[{"type": "compaction", "compact_threshold": 1000}])
    assert limited.compaction is not None
    assert limited.compaction.threshold == 1000
    question = {"role": "user", "content": "x"}
    triggered = planner.plan(input=[question, {"type": "compaction_trigger"}])
    assert triggered.compaction is not None
    assert triggered.compaction.threshold is None
    assert len(triggered.input) == 1


@pytest.mark.parametrize(
    ("request_", "kind", "param"),
    [
        ({"model": "unknown"}, NotFound, "model"),
        ({"previous_response_id": "resp_none"}, InvalidRequest, "previous_response_id"),
        ({"conversation": "conv_none"}, NotFound, "conversation"),
        ({"prompt": {"id": "none"}}, NotFound, "prompt.id"),
        ({"continue_final_message": True}, InvalidRequest, "continue_final_message"),
        ({"tools": [{"type": "web_search"}]}, Unsupported, "tools[0].type"),
        ({"data_parallel_rank": 1}, Unsupported, "data_parallel_rank"),
        (
            {"text": {"format": {"type": "json_object"}}, "guided_regex": "a+"},
            InvalidRequest,
            "guided_regex",
        ),
        (
            {"input": [{"type": "compaction_trigger"}]},
            InvalidRequest,
            "input",
        ),
        (
            {"input": [{"role": "user", "content": "x", "id": "msg_1"}] * 2},
            InvalidRequest,
            "input[1].id",
        ),
    ],
)
def test_what_cannot_be_planned_is_refused_by_its_parameter(
    planner: Planner, request_: dict[str, Any], kind: type[GatewayError], param: str
) -> None:
    with pytest.raises(kind) as raised:
        planner.plan(**request_)
    assert raised.value.param == param


def test_the_final_message_of_the_assistant_is_continued(planner: Planner) -> None:
    begun = {"role": "assistant", "content": "Once upon"}
    plan = planner.plan(
        input=[{"role": "user", "content": "x"}, begun], continue_final_message=True
    )
    assert plan.turn.continue_final_message
    items = made(2)
    previous = planner.answered(items[:1], items[1:])
    plan = planner.plan(input=[], previous_response_id=previous, continue_final_message=True)
    assert plan.turn.continue_final_message
