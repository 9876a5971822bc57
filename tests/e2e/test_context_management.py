"""Responses that compact what they go on from: `context_management`, and `compaction_trigger` items."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai.types.responses import Response as SdkResponse
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from gateway import hookimpl
from gateway.tools.functions import functions
from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import RunningGateway, run_gateway
from tests.e2e.engine_prompts import prompts
from tests.waiting import wait_until

SDK_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
SUMMARY = "The user is called Ada."
RULES = [
    {"when": "Write nothing but the summary", "pieces": [{"reasoning": "Hm."}, {"text": SUMMARY}], "chunk": 2},
    {"when": "look it up", "pieces": [{"call": {"name": "probe", "arguments": {}}}]},
    {"when": "probed", "pieces": [{"text": "Found."}]},
]  # fmt: skip
FAR = [
    RULES[0],
    {"when": "look far", "pieces": [{"call": {"name": "wide", "arguments": {}}}]},
    {"when": SUMMARY, "pieces": [{"text": "Seen."}]},
]
SILENT = [{"when": "Write nothing but the summary", "pieces": [{"reasoning": "Hm."}]}]
SLOW = [
    {"when": "Write nothing but the summary", "delay_ms": 30, "repeat": 4000, "pieces": [{"text": "so "}]},
]  # fmt: skip
FILLER = "tell me more " * 30
LONG: list[Any] = [
    {"role": "developer", "content": "Answer in French."},
    {"role": "user", "content": f"I am Ada. {FILLER}"},
    {"role": "assistant", "content": f"Hello, Ada. {FILLER}"},
    {"role": "user", "content": "last words"},
]
AT = 100
MANAGED: list[Any] = [{"type": "compaction", "compact_threshold": AT}]
TRIGGER: Any = {"type": "compaction_trigger"}


def probe() -> str:
    """Look."""
    return "probed"


def wide() -> str:
    """Look further."""
    return FILLER


class Probe:
    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("probe", functions("probe", probe, wide))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    def scripted(rules: Any, **more: Any) -> Any:
        return {"engine": "scripted", "scripted": {"rules": rules}, **more}

    config = {
        "models": {
            "m": scripted(RULES),
            "small": scripted(RULES, max_model_len=300),
            "far": scripted(FAR),
            "silent": scripted(SILENT),
            "slow": scripted(SLOW),
        },
        "tools": {"probe": {}},
    }
    folder = tmp_path_factory.mktemp("context")
    with run_gateway(config, folder, plugins=[Probe()]) as running:
        yield running


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[Any]:
    with gateway.client() as client:
        yield client


def streamed(gateway: RunningGateway, **body: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    answer = httpx.post(
        f"{gateway.base_url}/responses", json={"model": "m", "stream": True, **body}, timeout=30
    )
    assert answer.status_code == 200, answer.text
    events = parse_sse(answer.content)
    for event in events:
        assert SDK_EVENT.validate_python(event).type == event["type"]
    final = fold(events)
    SdkResponse.model_validate(final)
    return events, final


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


@pytest.mark.parametrize("background", [False, True])
def test_a_long_context_is_compacted_and_gone_on_from(
    gateway: RunningGateway, background: bool
) -> None:
    """The compaction is the first item; who gives instructions, and what was said last, is still read."""
    events, response = streamed(
        gateway, input=LONG, context_management=MANAGED, background=background
    )
    assert kinds(response) == ["compaction", "message"]
    told = [event["type"] for event in events if event.get("output_index") == 0]
    assert told == [
        "response.output_item.added",
        "response.compaction.compacting",
        "response.output_item.done",
    ]
    assert "Ada" not in response["output"][0]["encrypted_content"]
    assert response["output"][1]["content"][0]["text"] == "last words"
    asked, went_on = prompts(gateway, "m")[-2:]
    assert FILLER in asked
    assert "Answer in French." in went_on
    assert went_on.index(SUMMARY) < went_on.index("last words")
    assert FILLER not in went_on
    assert response["usage"]["input_tokens"] > AT
    assert response["usage"]["output_tokens"] > 5


def test_what_is_short_enough_is_left_as_it_is(gateway: RunningGateway, client: Any) -> None:
    short: Any = [{"type": "compaction", "compact_threshold": 10_000}]
    made = client.responses.create(model="m", input=LONG, context_management=short)
    assert [item.type for item in made.output] == ["message"]
    alone = client.responses.create(model="m", input=FILLER, context_management=MANAGED)
    assert [item.type for item in alone.output] == ["message"], "nothing is before it"
    lengths = [{"type": "compaction"}]
    made = client.responses.create(model="m", input=LONG, context_management=lengths)
    assert [item.type for item in made.output] == ["message"], "three quarters of the context"


@pytest.mark.parametrize("conversation", [False, True])
def test_chains_read_the_compaction_and_what_follows(
    gateway: RunningGateway, client: Any, conversation: bool
) -> None:
    thread: Any = {"conversation": client.conversations.create().id} if conversation else {}
    managed: Any = {"model": "m", "context_management": MANAGED, **thread}
    first = client.responses.create(input=LONG, **managed)
    follow: Any = thread or {"previous_response_id": first.id}
    second = client.responses.create(model="m", input="and then", **follow)
    assert second.output_text == "and then"
    read = prompts(gateway, "m")[-1]
    assert FILLER not in read
    assert [read.count(each) for each in ("Answer in French.", SUMMARY)] == [1, 1]
    assert read.count("last words") == 2, "asked, and answered"
    assert read.index(SUMMARY) < read.index("last words") < read.index("and then")
    follow = thread or {"previous_response_id": second.id}
    third = client.responses.create(input=f"more {FILLER}", **{**managed, **follow})
    assert [item.type for item in third.output] == ["compaction", "message"]
    read = prompts(gateway, "m")[-1]
    assert [read.count(each) for each in ("Answer in French.", SUMMARY, "last words")] == [1, 1, 0]


def test_without_a_store_the_client_carries_it(gateway: RunningGateway, client: Any) -> None:
    """With all that was before, or without: the same is read."""
    made = client.responses.create(model="m", input=LONG, context_management=MANAGED, store=False)
    output = [item.to_dict(warnings=False) for item in made.output]
    more = {"role": "user", "content": "and then"}
    for window in ([*LONG, *output, more], [*output, more]):
        answered = client.responses.create(
            model="m", input=window, store=False, context_management=MANAGED
        )
        assert answered.output_text == "and then"
        read = prompts(gateway, "m")[-1]
        assert FILLER not in read
        assert "Answer in French." in read
        assert read.count(SUMMARY) == 1


def test_a_context_that_is_too_long_for_the_model_is_compacted_too(
    gateway: RunningGateway,
) -> None:
    """Whatever the threshold: else the response could only be refused."""
    sent = {"model": "small", "input": [*LONG[:3] * 3, LONG[3]]}
    refused = httpx.post(f"{gateway.base_url}/responses", json=sent)
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    high = [{"type": "compaction", "compact_threshold": 100_000}]
    _, response = streamed(gateway, **sent, context_management=high)
    assert (response["status"], kinds(response)) == ("completed", ["compaction", "message"])


def test_what_the_model_does_after_a_call_is_told_once(gateway: RunningGateway) -> None:
    """The compaction is not part of what the model has done since."""
    sent = [*LONG[:3], {"role": "user", "content": "look it up"}]
    _, response = streamed(gateway, input=sent, context_management=MANAGED)
    assert kinds(response) == ["compaction", "mcp_call", "message"]
    assert prompts(gateway, "m")[-1].count(SUMMARY) == 1


@pytest.mark.parametrize("background", [False, True])
def test_what_tools_bring_is_compacted_on_the_way(
    gateway: RunningGateway, client: Any, background: bool
) -> None:
    """The response goes on in the same stream; who goes on from it reads nothing of what came before the compaction."""
    sent: Any = [{"role": "developer", "content": "look far"}, {"role": "user", "content": "hello"}]
    count = client.responses.input_tokens.count(model="far", input=sent).input_tokens
    managed = [{"type": "compaction", "compact_threshold": count + 5}]
    asked: Any = {"input": sent, "context_management": managed, "background": background}
    _, response = streamed(gateway, model="far", **asked)
    assert response["status"] == "completed"
    assert kinds(response) == ["mcp_call", "compaction", "message"]
    summarized, went_on = prompts(gateway, "far")[-2:]
    assert FILLER in summarized
    assert FILLER not in went_on
    assert went_on.index("look far") < went_on.index(SUMMARY) < went_on.index("hello")
    client.responses.create(model="far", input="who", previous_response_id=response["id"])
    read = prompts(gateway, "far")[-1]
    assert FILLER not in read
    assert "Seen." in read


def test_a_loop_of_calls_is_compacted_with_the_question_that_began_it(
    gateway: RunningGateway, client: Any
) -> None:
    """What the client's tools gave is in the summary; the model has its task before it."""
    sent: Any = [
        {"role": "user", "content": "my question"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": FILLER * 2},
    ]
    made = client.responses.create(model="m", input=sent, context_management=MANAGED)
    assert [item.type for item in made.output] == ["compaction", "message"]
    read = prompts(gateway, "m")[-1]
    assert FILLER not in read
    assert read.index(SUMMARY) < read.index("my question")


@pytest.mark.filterwarnings(
    "ignore:connect\\(\\) must be used as:DeprecationWarning"
)  # the SDK's own
def test_a_chain_that_is_not_stored_is_compacted_too(gateway: RunningGateway, client: Any) -> None:
    """Over a WebSocket, whose latest response need not be stored to be gone on from."""
    previous: dict[str, Any] = {}
    with client.responses.connect() as connection:
        for sent in (LONG, "and then"):
            connection.response.create(
                model="m", input=sent, store=False, context_management=MANAGED, **previous
            )
            for event in connection:
                if event.type == "response.completed":
                    previous = {"previous_response_id": event.response.id}
                    break
    read = prompts(gateway, "m")[-1]
    assert SUMMARY in read
    assert "and then" in read
    assert FILLER not in read


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("store", [False, True])
def test_a_trigger_makes_the_compaction_alone(
    gateway: RunningGateway, client: Any, store: bool, stream: bool
) -> None:
    """As Codex asks for it: one item, and what comes with it next time is read as well."""
    body = {"model": "m", "input": [*LONG, TRIGGER], "store": store}
    if stream:
        _, response = streamed(gateway, **body)
    else:
        response = httpx.post(f"{gateway.base_url}/responses", json=body).json()
    assert (response["status"], kinds(response)) == ("completed", ["compaction"])
    window = [LONG[0], {"role": "user", "content": "kept"}, *response["output"]]
    client.responses.create(model="m", input=[*window, {"role": "user", "content": "and then"}])
    read = prompts(gateway, "m")[-1]
    places = [read.index(each) for each in ("French", "kept", SUMMARY, "and then")]
    assert places == sorted(places)
    if store:
        items = client.responses.input_items.list(response["id"])
        assert [item.type for item in items] == ["message"] * 4, "the trigger is no item of it"
        client.responses.create(model="m", input="and then", previous_response_id=response["id"])
        read = prompts(gateway, "m")[-1]
        assert SUMMARY in read
        assert "last words" not in read


def test_a_trigger_compacts_what_is_stored(client: Any) -> None:
    first = client.responses.create(model="m", input=LONG)
    made = client.responses.create(
        model="m", input=[TRIGGER], previous_response_id=first.id, background=True
    )
    wait_until(lambda: client.responses.retrieve(made.id).status == "completed")
    made = client.responses.retrieve(made.id)
    assert [item.type for item in made.output] == ["compaction"]


@pytest.mark.parametrize("how", ["context_management", "trigger"])
def test_without_a_summary_the_response_fails_and_says_so(
    gateway: RunningGateway, client: Any, how: str
) -> None:
    asked: dict[str, Any] = {"input": [*LONG, TRIGGER]}
    if how == "context_management":
        asked = {"input": LONG, "context_management": MANAGED}
    _, response = streamed(gateway, **{"model": "silent", **asked})
    assert response["status"] == "failed"
    assert "summary of the conversation" in response["error"]["message"]
    assert response["output"][0]["encrypted_content"] == ""
    # It stands for nothing: who goes on from it has all that was before.
    client.responses.create(model="silent", input="x", previous_response_id=response["id"])
    assert FILLER in prompts(gateway, "silent")[-1]


def test_cancelling_amid_the_summary_ends_it(gateway: RunningGateway, client: Any) -> None:
    made = client.responses.create(
        model="slow", input=LONG, context_management=MANAGED, background=True
    )
    engine: Any = gateway.services.models["slow"].engine
    wait_until(lambda: engine.running)
    # The engine does not tell of its first output, for which it waits on the same event loop, and not as long.
    for _ in range(2):
        gateway.run(asyncio.sleep(0.2))
    cancelled = client.responses.cancel(made.id)
    assert cancelled.status == "cancelled"
    assert [item.type for item in cancelled.output] == ["compaction"]
    assert cancelled.usage.output_tokens > 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": [TRIGGER, *LONG]}, "input[0]"),
        ({"input": [TRIGGER]}, "input"),
        ({"input": "x", "context_management": [{"type": "summary"}]}, "context_management[0].type"),
        ({"input": "x", "context_management": MANAGED * 2}, "context_management"),
        ({"input": "x", "context_management": [{"type": "compaction", "compact_threshold": 0}]}, "context_management[0].compact_threshold"),
        ({"input": "x", "context_management": "auto"}, "context_management"),
    ],
)  # fmt: skip
def test_what_cannot_be_compacted_is_refused(
    gateway: RunningGateway, body: dict[str, Any], param: str
) -> None:
    answer = httpx.post(f"{gateway.base_url}/responses", json={"model": "m", **body})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
