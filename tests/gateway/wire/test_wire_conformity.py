"""What we write is what the official SDK and Open Responses say it is, and every type that they know is known here."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, get_args

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import msgspec
import pytest
from openai.types import responses as sdk
from openai.types.beta import BetaResponseInputItem
from openai.types.conversations import ConversationItem
from openai.types.responses import response_create_params
from openai.types.responses.response import ToolChoice as SdkToolChoice
from openai.types.responses.response_item import ResponseItem
from openai.types.responses.responses_server_event import ResponsesServerEvent, ResponseWsError
from pydantic import BaseModel, TypeAdapter

from gateway.base.errors import InvalidRequest
from gateway.wire import content, events, items, listing, response, text, tools
from gateway.wire.common import Tagged, encode, type_of
from gateway.wire.event_frames import WebSocketError, decode_event, sse_frame, websocket_frame
from gateway.wire.events import EVENTS
from gateway.wire.item_decoding import decode_items
from gateway.wire.items import ITEMS
from gateway.wire.request import ResponseRequest
from gateway.wire.tools import CHOICES, TOOLS, decode_tool_choice, decode_tools

SPEC = json.loads((Path(__file__).parents[2] / "data" / "openresponses.json").read_text())
SCHEMAS = SPEC["components"]["schemas"]

LEFT_OUT = {
    "response.steer.accepted": "steering a running response over WebSocket is not offered",
    "response.steer.pending": "as above",
    "response.steer.failed": "as above",
}

LOGPROB = content.Logprob(
    token="Hi",
    bytes=[72, 105],
    logprob=-0.25,
    top_logprobs=[content.TopLogprob(token="Hi", bytes=[72, 105], logprob=-0.25)],
)
CITATIONS: list[content.Annotation] = [
    content.UrlCitation(url="u", title="t", start_index=0, end_index=2),
    content.FileCitation(file_id="f", filename="n", index=1),
    content.FilePath(file_id="f", index=1),
    content.ContainerFileCitation(
        container_id="c", file_id="f", filename="n", start_index=0, end_index=2
    ),
]
TEXT = content.OutputText(text="Hi", annotations=CITATIONS[:1], logprobs=[LOGPROB])
INPUT_PARTS: list[content.ToolOutputContent] = [
    content.InputText(text="Look"),
    content.InputImage(image_url="data:image/png;base64,AA=="),
    content.InputFile(filename="a.txt", file_data="AA=="),
]
FUNCTION = tools.FunctionTool(
    name="look",
    description="Looks.",
    parameters={"type": "object", "properties": {"at": {"type": ["string", "null"]}}},
    strict=True,
)
CUSTOM = tools.CustomTool(
    name="patch", format=tools.CustomGrammarFormat(syntax="lark", definition="start: /x/")
)

TOOL_SAMPLES: list[tools.Tool] = [
    FUNCTION,
    tools.FunctionTool(name="bare", parameters={}, strict=False),
    CUSTOM,
    tools.CustomTool(name="free", description="d", format=tools.CustomTextFormat()),
    tools.NamespaceTool(name="ns", description="d", tools=[FUNCTION, CUSTOM]),
    tools.McpTool(
        server_label="s",
        server_url="u",
        headers={"a": "b"},
        allowed_tools=["x"],
        require_approval="never",
    ),
    tools.McpTool(
        server_label="s",
        connector_id="connector_gmail",
        allowed_tools=tools.McpToolFilter(tool_names=["x"], read_only=True),
        require_approval=tools.McpApprovalFilter(always=tools.McpToolFilter(tool_names=["x"])),
    ),
    tools.WebSearchTool(
        external_web_access=False,
        filters=tools.WebSearchFilters(allowed_domains=["d"]),
        user_location=tools.UserLocation(city="c"),
        search_context_size="low",
    ),
    tools.WebSearchTool20250826(),
    tools.WebSearchPreviewTool(search_content_types=["text"]),
    tools.WebSearchPreviewTool20250311(),
    tools.FileSearchTool(
        vector_store_ids=["v"],
        filters={"type": "eq", "key": "k", "value": "v"},
        max_num_results=3,
        ranking_options=tools.RankingOptions(ranker="auto", score_threshold=0.5),
    ),
    tools.CodeInterpreterTool(),
    tools.CodeInterpreterTool(container="cntr_1"),
    tools.CodeInterpreterTool(container=tools.AutoContainer(file_ids=["f"], memory_limit="1g")),
    tools.ShellTool(environment={"type": "local"}),
    tools.LocalShellTool(),
    tools.ApplyPatchTool(),
    tools.ToolSearchTool(execution="client", parameters={"type": "object"}),
    tools.ComputerTool(),
    tools.ComputerUsePreviewTool(display_width=1, display_height=2, environment="linux"),
    tools.ProgrammaticToolCallingTool(),
    tools.ImageGenerationTool(output_format="png", size="auto", partial_images=1),
]

CHOICE_SAMPLES: list[tools.ToolChoice] = [
    "none",
    "auto",
    "required",
    tools.FunctionChoice(name="f"),
    tools.CustomChoice(name="c"),
    tools.McpChoice(server_label="s", name="n"),
    tools.AllowedToolsChoice(mode="auto", tools=[{"type": "function", "name": "f"}]),
    *(cls() for cls in CHOICES.values() if issubclass(cls, tools.HostedChoice)),
]

ITEM_SAMPLES: list[items.Item] = [
    items.Message(id="msg_1", role="user", content=list(INPUT_PARTS)),
    items.Message(id="msg_1", role="system", content=[content.InputText(text="s")]),
    items.Message(id="msg_1", role="developer", content=[]),
    items.Message(
        id="msg_2", status="completed", role="assistant", content=[TEXT], phase="final_answer"
    ),
    items.Message(
        id="msg_3", status="incomplete", role="assistant", content=[content.Refusal(refusal="No.")]
    ),
    items.Message(id="msg_4", status="in_progress", role="assistant", content=[]),
    items.Reasoning(id="rs_1"),
    items.Reasoning(
        id="rs_2",
        summary=[content.SummaryText(text="s")],
        content=[content.ReasoningText(text="r")],
        encrypted_content="e",
        status="completed",
    ),
    items.FunctionCall(id="fc_1", status="completed", call_id="call_1", name="f", arguments="{}"),
    items.FunctionCall(
        id="fc_2", status="in_progress", call_id="call_2", name="f", arguments="", namespace="ns"
    ),
    items.FunctionCallOutput(id="fco_1", call_id="call_1", output="o"),
    items.FunctionCallOutput(id="fco_2", call_id="call_1", output=list(INPUT_PARTS)),
    items.CustomToolCall(
        id="ctc_1", status="completed", call_id="call_1", name="c", input="text", namespace="ns"
    ),
    items.CustomToolCallOutput(id="ctco_1", call_id="call_1", output="o"),
    items.McpCall(id="mcp_1", server_label="s", name="n", arguments="{}", output="o"),
    items.McpCall(
        id="mcp_2", server_label="s", name="n", arguments="{}", error="broken", status="failed"
    ),
    items.McpCall(
        id="mcp_3",
        server_label="s",
        name="n",
        arguments="{}",
        error=items.HttpError(code=502, message="m"),
        status="failed",
    ),
    items.McpCall(
        id="mcp_4",
        server_label="s",
        name="n",
        arguments="{}",
        error=items.McpProtocolError(code=-1, message="m"),
        status="calling",
    ),
    items.McpListTools(
        id="mcpl_1",
        server_label="s",
        tools=[items.McpListedTool(name="n", input_schema={"default": None})],
    ),
    items.McpApprovalRequest(id="mcpr_1", server_label="s", name="n", arguments="{}"),
    items.McpApprovalResponse(id="mcpa_1", approval_request_id="mcpr_1", approve=True),
    items.WebSearchCall(
        id="ws_1", action=items.SearchAction(query="q", sources=[items.UrlSource(url="u")])
    ),
    items.WebSearchCall(id="ws_2", status="searching", action=items.OpenPageAction(url="u")),
    items.WebSearchCall(
        id="ws_3", status="failed", action=items.FindInPageAction(url="u", pattern="p")
    ),
    items.FileSearchCall(
        id="fs_1",
        queries=["q"],
        results=[items.FileSearchResult(file_id="f", score=0.5, attributes={"a": 1})],
    ),
    items.CodeInterpreterCall(
        id="ci_1",
        code="print(1)",
        container_id="cntr_1",
        outputs=[items.InterpreterLogs(logs="1"), items.InterpreterImage(url="u")],
    ),
    items.CodeInterpreterCall(id="ci_2", status="interpreting", container_id="cntr_1"),
    items.LocalShellCall(
        id="lsh_1", call_id="c", action=items.LocalShellAction(command=["ls"], env={"A": "b"})
    ),
    items.LocalShellCallOutput(id="lsho_1", output="o", status="completed"),
    items.ShellCall(
        id="sh_1",
        call_id="c",
        action=items.ShellAction(commands=["ls"]),
        environment=items.LocalEnvironment(),
    ),
    items.ShellCall(
        id="sh_2",
        call_id="c",
        action=items.ShellAction(commands=["ls"], timeout_ms=1),
        environment=items.ContainerReference(container_id="c"),
        caller=items.ProgramCaller(caller_id="p"),
    ),
    items.ShellCallOutput(
        id="sho_1",
        call_id="c",
        output=[
            items.ShellOutput(stdout="o", stderr="", outcome=items.ShellExit(exit_code=0)),
            items.ShellOutput(stdout="o", stderr="", outcome=items.ShellTimeout()),
        ],
        max_output_length=9,
    ),
    items.ApplyPatchCall(id="apc_1", call_id="c", operation=items.CreateFile(path="p", diff="d")),
    items.ApplyPatchCall(id="apc_2", call_id="c", operation=items.UpdateFile(path="p", diff="d")),
    items.ApplyPatchCall(id="apc_3", call_id="c", operation=items.DeleteFile(path="p")),
    items.ApplyPatchCallOutput(id="apco_1", call_id="c", status="failed", output="o"),
    items.ToolSearchCall(id="tsc_1", call_id="c", arguments={"q": None}),
    items.ToolSearchOutput(id="tso_1", call_id="c", tools=[FUNCTION]),
    items.ComputerCall(
        id="cu_1",
        call_id="c",
        action={"type": "click", "button": "left", "x": 1, "y": 2},
        pending_safety_checks=[items.SafetyCheck(id="s")],
    ),
    items.ComputerCallOutput(
        id="cuo_1", call_id="c", output=content.ComputerScreenshot(image_url="u")
    ),
    items.ImageGenerationCall(id="ig_1", result="AA==", output_format="png"),
    items.Compaction(id="cmp_1", encrypted_content="e"),
    items.CompactionTrigger(id="cmpt_1"),
    items.AdditionalTools(id="at_1", tools=[FUNCTION, CUSTOM]),
    items.ConfigurationUpdate(
        id="cfg_1",
        reasoning=items.UpdatedReasoning(effort="low"),
        text=items.UpdatedText(format=text.PlainText()),
    ),
    items.Program(id="prg_1", call_id="c", code="x", fingerprint="f"),
    items.ProgramOutput(id="prgo_1", call_id="c", result="r"),
    items.ItemReference(id="msg_1"),
    items.AgentMessage(
        id="amsg_1",
        author="/root",
        recipient="/root/kid",
        content=[content.InputText(text="a"), content.EncryptedContent(encrypted_content="b")],
        agent=items.AgentName(agent_name="/root"),
    ),
    items.MultiAgentCall(id="mac_1", action="spawn_agent", arguments="{}", call_id="c"),
    items.MultiAgentCallOutput(
        id="maco_1",
        action="spawn_agent",
        call_id="c",
        output=[content.OutputText(text="t")],
    ),
]

OF_AGENTS = ("agent_message", "multi_agent_call", "multi_agent_call_output")
"""Items of the SDK's beta types alone. They are read, never written by a model."""

OUTPUT_SAMPLES = [
    item
    for item in ITEM_SAMPLES
    if type_of(item)
    not in ("compaction_trigger", "configuration_update", "item_reference", *OF_AGENTS)
    and not (isinstance(item, items.Message) and item.role != "assistant")
]


def a_response(**changes: Any) -> response.Response:
    return response.Response(
        **{
            "id": "resp_1",
            "created_at": 1,
            "status": "in_progress",
            "model": "m",
            **changes,
        }
    )


RESPONSE_SAMPLES = [
    a_response(),
    a_response(
        status="completed",
        completed_at=2,
        output=OUTPUT_SAMPLES,
        tools=TOOL_SAMPLES,
        tool_choice=tools.FunctionChoice(name="look"),
        reasoning=text.ReasoningOptions(effort="minimal", summary="auto", context="auto"),
        text=text.TextConfig(
            format=text.JsonSchemaFormat(name="n", schema={"type": "object"}), verbosity="low"
        ),
        usage=response.Usage(input_tokens=1, output_tokens=2, total_tokens=3),
        metadata={"k": "v"},
        instructions="i",
        user="u",
        conversation=response.ConversationReference(id="conv_1"),
        prompt_cache_retention="24h",
    ),
    a_response(status="failed", error=response.ResponseError(code="server_error", message="m")),
    a_response(
        status="incomplete",
        incomplete_details=response.IncompleteDetails(reason="max_output_tokens"),
    ),
    a_response(status="cancelled", background=True),
]

# The values of every field that events have, by name; `part` and `item` also by event.
EVENT_VALUES: dict[str, Any] = {
    "response": RESPONSE_SAMPLES[1],
    "item": ITEM_SAMPLES[3],
    "part": TEXT,
    "logprobs": [LOGPROB],
    "annotation": CITATIONS[0],
    "output": [items.ShellOutput(stdout="", stderr="", outcome=items.ShellExit(exit_code=0))],
    "status": "incomplete",
    "code": "server_error",
}


def a_full_event(cls: type[events.Event]) -> events.Event:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(cls):
        if field.name in EVENT_VALUES:
            values[field.name] = EVENT_VALUES[field.name]
        elif field.type is int:
            values[field.name] = 7
        else:
            values[field.name] = "some text"
    if issubclass(cls, events.SummaryEvent) and "part" in values:
        values["part"] = content.SummaryText(text="s")
    if cls is events.ShellCallOutputContentDelta:
        values["delta"] = events.ShellOutputDelta(stdout="o")
    return cls(**values)


def a_bare_event(cls: type[events.Event]) -> events.Event:
    full = a_full_event(cls)
    return cls(**{f.name: getattr(full, f.name) for f in msgspec.structs.fields(cls) if f.required})


adapter = cache(TypeAdapter)


@cache
def open_responses(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": SPEC["components"]}
    )


def plain(value: Any) -> Any:
    return json.loads(encode(value))


def sdk_members(union: Any) -> dict[str, list[type[BaseModel]]]:
    """The pydantic classes of one of the SDK's unions, by every `type` that each may have."""
    found: dict[str, list[type[BaseModel]]] = {}
    inner = get_args(union)[0] if hasattr(union, "__metadata__") else union
    for cls in get_args(inner):
        if isinstance(cls, type) and issubclass(cls, BaseModel) and "type" in cls.model_fields:
            annotation = cls.model_fields["type"].annotation
            literals = [get_args(each) or (each,) for each in (get_args(annotation) or ())]
            for literal in literals:
                for name in literal:
                    if isinstance(name, str):
                        found.setdefault(name, []).append(cls)
    return found


def is_valid_to_the_sdk(value: Any, union: Any) -> Any:
    raw = plain(value)
    parsed = adapter(union).validate_python(raw)
    if isinstance(value, Tagged):
        assert type(parsed) in sdk_members(union)[raw["type"]], type(parsed)
    # Nothing that the SDK's model knows went missing on the way, and nothing changed.
    known = parsed.model_dump(mode="json", by_alias=True) if isinstance(raw, dict) else parsed
    assert _holds(known, raw)
    return parsed


def _holds(theirs: Any, ours: Any) -> bool:
    if isinstance(ours, dict):
        return all(key in theirs and _holds(theirs[key], ours[key]) for key in ours)
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(_holds, theirs, ours))
    return bool(ours == theirs)


def is_valid_to_open_responses(value: Any, name: str) -> None:
    open_responses(name).validate(plain(value))


def sample_id(value: Any) -> str:
    return type_of(value) if isinstance(value, Tagged) else str(value)


# Every type that the SDK knows is known here.


@pytest.mark.parametrize(
    ("union", "known"),
    [
        (sdk.ResponseStreamEvent, EVENTS),
        (ResponsesServerEvent, EVENTS),
        (sdk.ResponseOutputItem, ITEMS),
        (sdk.ResponseInputItem, ITEMS),
        (ResponseItem, ITEMS),
        (ConversationItem, ITEMS),
        (sdk.Tool, TOOLS),
        (SdkToolChoice, CHOICES),
    ],
    ids=["stream", "websocket", "output", "input", "item", "conversation", "tool", "tool_choice"],
)
def test_the_sdk_knows_no_type_that_we_do_not(union: Any, known: dict[str, Any]) -> None:
    theirs = set(sdk_members(union))
    assert theirs, "the SDK's union could not be read"
    assert theirs - set(known) - set(LEFT_OUT) == set()


def test_a_reason_for_leaving_out_is_not_kept_when_it_no_longer_holds() -> None:
    assert set(LEFT_OUT) <= set(sdk_members(ResponsesServerEvent))
    assert not set(LEFT_OUT) & set(EVENTS)


def test_every_parameter_of_the_sdk_is_known() -> None:
    theirs = set(response_create_params.ResponseCreateParamsBase.__annotations__) | {"stream"}
    assert theirs - {field.name for field in msgspec.structs.fields(ResponseRequest)} == set()


def test_every_type_has_a_sample() -> None:
    assert {type_of(item) for item in ITEM_SAMPLES} == set(ITEMS)
    assert {type_of(tool) for tool in TOOL_SAMPLES} == set(TOOLS)
    assert {type_of(c) for c in CHOICE_SAMPLES if not isinstance(c, str)} == set(CHOICES)


# What we write is valid.


@pytest.mark.parametrize("make", [a_full_event, a_bare_event])
@pytest.mark.parametrize("name", sorted(EVENTS))
def test_an_event_is_the_sdks(name: str, make: Any) -> None:
    event = make(EVENTS[name])
    parsed = is_valid_to_the_sdk(event, sdk.ResponseStreamEvent)
    assert parsed.type == name


@pytest.mark.parametrize("item", OUTPUT_SAMPLES, ids=sample_id)
def test_an_output_item_is_the_sdks(item: items.Item) -> None:
    is_valid_to_the_sdk(item, sdk.ResponseOutputItem)
    event = events.OutputItemDone(sequence_number=0, output_index=0, item=item)
    is_valid_to_the_sdk(event, sdk.ResponseStreamEvent)


@pytest.mark.parametrize("item", ITEM_SAMPLES, ids=sample_id)
def test_an_item_of_a_list_is_the_sdks(item: items.Item) -> None:
    if type_of(item) in OF_AGENTS:
        is_valid_to_the_sdk(item, BetaResponseInputItem)
        return
    in_lists = sdk_members(ResponseItem) | {"compaction_trigger": [], "item_reference": []}
    assert type_of(item) in in_lists
    if not in_lists[type_of(item)]:
        is_valid_to_the_sdk(item, sdk.ResponseInputItem)
        return
    is_valid_to_the_sdk(item, ResponseItem)
    page = listing.listing([item], has_more=False)
    sdk.ResponseItemList.model_validate(plain(page))


@pytest.mark.parametrize("tool", TOOL_SAMPLES, ids=sample_id)
def test_a_tool_is_the_sdks(tool: tools.Tool) -> None:
    is_valid_to_the_sdk(tool, sdk.Tool)


@pytest.mark.parametrize("choice", CHOICE_SAMPLES, ids=sample_id)
def test_a_tool_choice_is_the_sdks(choice: tools.ToolChoice) -> None:
    if isinstance(choice, tools.HostedChoice) and type_of(choice) not in sdk_members(SdkToolChoice):
        assert type_of(choice) in TOOLS, "a choice beyond the SDK's names a tool"
        return
    is_valid_to_the_sdk(choice, SdkToolChoice)


@pytest.mark.parametrize("sample", RESPONSE_SAMPLES, ids=lambda r: str(r.status))
def test_a_response_is_the_sdks(sample: response.Response) -> None:
    parsed = sdk.Response.model_validate(plain(sample))
    assert parsed.status == sample.status
    assert len(parsed.output) == len(sample.output)


def test_the_small_resources_are_the_sdks() -> None:
    from openai.types import Model, conversations
    from openai.types.responses.input_token_count_response import InputTokenCountResponse

    usage = response.Usage(input_tokens=1, output_tokens=2, total_tokens=3)
    conversation = response.Conversation(id="conv_1", created_at=1)
    for model, value in (
        (Model, response.ModelObject(id="m", created=1, max_model_len=9)),
        (conversations.Conversation, conversation),
        (
            conversations.ConversationDeletedResource,
            listing.Deleted(id="conv_1", object="conversation.deleted"),
        ),
        (InputTokenCountResponse, response.InputTokens(input_tokens=3)),
        (
            sdk.CompactedResponse,
            response.CompactedResponse(
                id="resp_1",
                created_at=1,
                output=[items.Compaction(id="cmp_1", encrypted_content="e")],
                usage=usage,
            ),
        ),
    ):
        model.model_validate(plain(value))


def test_an_error_on_a_websocket_is_the_sdks() -> None:
    error = WebSocketError(
        status=429,
        error=response.ErrorBody(message="m", type="requests"),
        headers={"retry-after": "2"},
    )
    assert isinstance(
        TypeAdapter(ResponsesServerEvent).validate_python(plain(error)), ResponseWsError
    )


# Open Responses.

_BY_TYPE = {
    schema["properties"]["type"]["enum"][0]: name
    for name, schema in SCHEMAS.items()
    if name.endswith("StreamingEvent")
}
_OPEN_EVENTS = sorted(
    name
    for name in _BY_TYPE
    # The SDK's name is another (`response.reasoning_text.delta`), or its shape is (flat, not nested).
    if name not in ("response.reasoning.delta", "response.reasoning.done", "error")
)
_OPEN_TOOLS: list[tools.Tool] = [FUNCTION]


@pytest.mark.parametrize("name", _OPEN_EVENTS)
def test_an_event_is_that_of_open_responses(name: str) -> None:
    event = a_full_event(EVENTS[name])
    if isinstance(event, events.ResponseEvent):
        event = msgspec.structs.replace(event, response=an_open_response())
    is_valid_to_open_responses(event, _BY_TYPE[name])


def an_open_response() -> response.Response:
    """A response of those types that Open Responses knows."""
    full = RESPONSE_SAMPLES[1]
    known = (items.Message, items.FunctionCall, items.FunctionCallOutput, items.Reasoning)
    return msgspec.structs.replace(
        full,
        output=[item for item in full.output if isinstance(item, (*known, items.Compaction))],
        tools=_OPEN_TOOLS,
        reasoning=text.ReasoningOptions(effort="low", summary="auto"),
    )


@pytest.mark.parametrize(
    "sample", [*RESPONSE_SAMPLES[:1], *RESPONSE_SAMPLES[2:]], ids=lambda r: r.status
)
def test_a_response_is_that_of_open_responses(sample: response.Response) -> None:
    is_valid_to_open_responses(sample, "ResponseResource")


def test_a_full_response_is_that_of_open_responses() -> None:
    is_valid_to_open_responses(an_open_response(), "ResponseResource")


@pytest.mark.parametrize(
    "item",
    [
        item
        for item in ITEM_SAMPLES
        if isinstance(
            item,
            items.Message
            | items.FunctionCall
            | items.FunctionCallOutput
            | items.Reasoning
            | items.Compaction,
        )
    ],
    ids=sample_id,
)
def test_an_item_is_that_of_open_responses(item: items.Item) -> None:
    is_valid_to_open_responses(item, "ItemField")


def test_the_fields_that_are_always_there_are_those_of_open_responses() -> None:
    required = SCHEMAS["ResponseResource"]["required"]
    assert len(required) == 31
    assert set(plain(a_response())) == set(required)


# Clients send back what they got.


@pytest.mark.parametrize("item", OUTPUT_SAMPLES, ids=sample_id)
@pytest.mark.parametrize("by_alias", [True, False])
def test_what_the_sdk_dumps_is_read_back(item: items.Item, by_alias: bool) -> None:
    parsed = adapter(sdk.ResponseOutputItem).validate_python(plain(item))
    with_nulls = parsed.model_dump(mode="json", by_alias=by_alias)
    assert decode_items([with_nulls]) == [item]


@pytest.mark.parametrize("item", OUTPUT_SAMPLES, ids=sample_id)
def test_what_the_sdk_dumps_without_ids_is_read_back(item: items.Item) -> None:
    dumped = plain(item)
    for name in ("id", "status"):
        dumped[name] = None
    (decoded,) = decode_items([dumped])
    assert type(decoded) is type(item)
    assert decoded.id == ""


@pytest.mark.parametrize("tool", TOOL_SAMPLES, ids=sample_id)
def test_a_tool_that_the_sdk_dumps_is_read_back(tool: tools.Tool) -> None:
    dumped = adapter(sdk.Tool).validate_python(plain(tool)).model_dump(mode="json", by_alias=True)
    assert decode_tools([dumped]) == [tool]


@pytest.mark.parametrize("choice", CHOICE_SAMPLES, ids=sample_id)
def test_a_tool_choice_is_read_back(choice: tools.ToolChoice) -> None:
    assert decode_tool_choice(plain(choice)) == choice


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_an_event_is_read_back(name: str) -> None:
    for event in (a_full_event(EVENTS[name]), a_bare_event(EVENTS[name])):
        assert decode_event(encode(event)) == event


def test_only_an_unknown_type_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_items([{"type": "response.created"}])
    assert caught.value.param == "input[0].type"


def test_a_frame_is_one_sse_message() -> None:
    event = events.OutputTextDelta(
        sequence_number=3, item_id="msg_1", output_index=0, content_index=0, delta="a\nb\r\u2028"
    )
    frame = sse_frame(event)
    head, data, *rest = frame.decode().split("\n")
    assert head == "event: response.output_text.delta"
    assert data.startswith("data: {")
    assert rest == ["", ""]
    assert b"\r" not in frame
    assert decode_event(data.removeprefix("data: ")) == event


def test_a_websocket_frame_names_its_lane() -> None:
    event = a_full_event(events.OutputTextDelta)
    assert json.loads(websocket_frame(event)) == plain(event)
    marked = json.loads(websocket_frame(event, 'a"b'))
    assert marked.pop("stream_id") == 'a"b'
    assert marked == plain(event)


def test_no_sse_event_has_an_error_at_its_top() -> None:
    """The SDK raises on any that has."""
    for cls in EVENTS.values():
        assert "error" not in cls.__struct_encode_fields__
