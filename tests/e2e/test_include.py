"""`include` where items are listed and retrieved: what a response did not show is shown where it is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest
from msgspec import Struct
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from gateway import hookimpl
from gateway.plugins.protocols import (
    CodeDetails,
    FileSearchDetails,
    SearchDetails,
    ServerTool,
    ToolCall,
    ToolDefinition,
    ToolDetails,
    ToolResult,
    ToolServer,
)
from gateway.wire import items
from gateway_testing.server import RunningGateway, run_gateway

SOURCES = [{"type": "url", "url": "https://a.test/"}]
RESULTS = [
    {"file_id": "file-1", "filename": "a.md", "score": 0.5, "text": "found", "attributes": None}
]
OUTPUTS = [{"type": "logs", "logs": "printed"}]
DETAILS: dict[str, ToolDetails] = {
    "web_search": SearchDetails(
        action=items.SearchAction(query="q", sources=[items.UrlSource(url="https://a.test/")])
    ),
    "file_search": FileSearchDetails(
        queries=["q"], results=msgspec.convert(RESULTS, list[items.FileSearchResult])
    ),
    "code_interpreter": CodeDetails(container_id="cntr_1", logs="printed"),
}
KINDS: Any = ("web_search", "file_search", "code_interpreter")
ITEM_TYPES: Any = {kind: f"{kind}_call" for kind in KINDS}
RULES = [
    {"when": "go", "pieces": [{"reasoning": "Hm."}, *({"call": {"name": kind, "arguments": {}}} for kind in KINDS)]},
    {"when": "what was found", "pieces": [{"text": "Done."}]},
]  # fmt: skip
TOOLS: Any = [
    {"type": "web_search"},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "code_interpreter", "container": {"type": "auto"}},
]
ALL = [
    "web_search_call.action.sources",
    "file_search_call.results",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
]
IMAGE = "data:image/png;base64,AAAA"
ITEM: TypeAdapter[Any] = TypeAdapter(ResponseItem)


class Config(Struct):
    """Nothing is to be said."""


class Everything(ToolServer):
    """A tool server with one tool of each kind whose item hides what was found."""

    label = "everything"

    async def tools(self) -> list[ServerTool]:
        return [
            ServerTool(
                definition=ToolDefinition(name=kind),
                request_type=kind,
                item_type=ITEM_TYPES[kind],
            )
            for kind in KINDS
        ]

    async def call(self, call: ToolCall) -> ToolResult:
        return ToolResult(text="what was found", details=DETAILS[call.name])


class Plugin:
    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        @asynccontextmanager
        async def opened(config: Config) -> AsyncIterator[Everything]:
            yield Everything()

        register("everything", opened, config=Config)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {
        "models": {"m": {"engine": "scripted", "scripted": {"rules": RULES}}},
        "tools": {"everything": {}},
    }
    folder = tmp_path_factory.mktemp("include")
    with run_gateway(config, folder, plugins=[Plugin()]) as running:
        yield running


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[Any]:
    with gateway.client() as client:
        yield client


def found(items: Any) -> dict[str, dict[str, Any]]:
    """Items by type, as plain JSON that the SDK's types accept."""
    plain = [item.to_dict(warnings=False) for item in items]
    for item in plain:
        ITEM.validate_python(item)
    return {item["type"]: item for item in plain}


def shows(items: dict[str, dict[str, Any]]) -> set[str]:
    """Which values of `include` the items show."""
    by_value = {
        ALL[0]: items["web_search_call"]["action"].get("sources") == SOURCES,
        ALL[1]: items["file_search_call"]["results"] == RESULTS,
        ALL[2]: items["code_interpreter_call"]["outputs"] == OUTPUTS,
        ALL[3]: bool(items["reasoning"].get("encrypted_content")),
    }
    assert items["web_search_call"]["action"].get("sources") in (None, SOURCES)
    assert items["file_search_call"]["results"] in (None, RESULTS)
    assert items["code_interpreter_call"]["outputs"] in (None, OUTPUTS)
    return {value for value, shown in by_value.items() if shown}


def test_a_response_that_showed_nothing_shows_what_is_asked_for_later(client: Any) -> None:
    made = client.responses.create(model="m", input="go", tools=TOOLS)
    assert shows(found(made.output)) == set()
    for value in ALL[:4]:
        got = client.responses.retrieve(made.id, include=[value])
        assert shows(found(got.output)) == {value}
    assert shows(found(client.responses.retrieve(made.id, include=ALL).output)) == set(ALL[:4])
    assert client.responses.retrieve(made.id).to_dict() == made.to_dict()


def test_what_its_own_request_included_stays(client: Any) -> None:
    made = client.responses.create(model="m", input="go", tools=TOOLS, include=ALL[:4])
    assert shows(found(made.output)) == set(ALL[:4])
    assert client.responses.retrieve(made.id).to_dict() == made.to_dict()


@pytest.mark.parametrize("include", [[], ALL[:4]])
def test_a_conversation_lists_what_is_asked_for_and_no_more(
    client: Any, include: list[Any]
) -> None:
    """Whatever the response itself had included."""
    made = client.conversations.create()
    client.responses.create(
        model="m", input="go", tools=TOOLS, conversation=made.id, include=include
    )
    items = client.conversations.items
    assert shows(found(items.list(made.id, order="asc"))) == set()
    for value in ALL[:4]:
        listed = found(items.list(made.id, order="asc", include=[value]))
        assert shows(listed) == {value}
        one = listed["file_search_call"]["id"]
        got = items.retrieve(one, conversation_id=made.id, include=[value])
        assert got.to_dict() == listed["file_search_call"]
    last = items.retrieve(listed["message"]["id"], conversation_id=made.id)
    assert last.content[0].text == "Done."


def test_input_items_show_what_is_asked_for(client: Any) -> None:
    """They are what the request has sent, in a stored response as in a conversation."""
    message = {"role": "user", "content": [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": IMAGE, "detail": "auto"}]}  # fmt: skip
    call = {"type": "code_interpreter_call", "id": "ci_1", "container_id": "cntr_1", "code": "1", "status": "completed", "outputs": OUTPUTS}  # fmt: skip
    logprobs = [{"token": "y", "bytes": [121], "logprob": -0.5, "top_logprobs": []}]
    said = {"role": "assistant", "id": "msg_1", "type": "message", "status": "completed", "content": [{"type": "output_text", "text": "y", "annotations": [], "logprobs": logprobs}]}  # fmt: skip
    conversation = client.conversations.create()
    add = client.conversations.items.create

    def told(data: Any) -> list[Any]:
        image, ran, wrote = (item.to_dict(warnings=False) for item in data)
        return [
            image["content"][1]["image_url"],
            ran["outputs"],
            wrote["content"][0]["logprobs"],
        ]

    sent: Any = [message, call, said]
    assert told(add(conversation.id, items=sent).data) == [None, None, []]
    other = client.conversations.create()
    assert told(add(other.id, items=sent, include=ALL).data) == [IMAGE, OUTPUTS, logprobs]
    lists = client.conversations.items.list
    assert told(lists(other.id, order="asc")) == [None, None, []]
    assert told(lists(other.id, order="asc", include=ALL[4:6])) == [IMAGE, None, logprobs]
    kept = client.responses.create(model="m", input=[*sent[1:], {"role": "user", "content": "go"}])
    shown = client.responses.input_items.list
    ran = shown(kept.id, order="asc", include=ALL).data[0]
    assert ran.outputs[0].logs == "printed"
    assert shown(kept.id, order="asc").data[0].outputs is None


@pytest.mark.parametrize("spelling", ["include", "include[]", "include[0]"])
def test_all_spellings_of_a_list_are_read(
    gateway: RunningGateway, client: Any, spelling: str
) -> None:
    made = client.responses.create(model="m", input="go", tools=TOOLS)
    url = f"{gateway.base_url}/responses/{made.id}"
    got = httpx.get(url, params={spelling: ALL[1]}).json()
    assert got["output"][2]["results"] == RESULTS
    bad = httpx.get(url, params={spelling: "everything"})
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "include[0]")


@pytest.mark.parametrize("path", ["items", "items/msg_1"])
@pytest.mark.parametrize(
    ("query", "param"),
    [("include=x", "include[0]"), ("include[]=reasoning.encrypted_content&include[]=", "include[1]")],
)  # fmt: skip
def test_what_cannot_be_included_is_told_by_its_place(
    gateway: RunningGateway, client: Any, path: str, query: str, param: str
) -> None:
    made = client.conversations.create(
        items=[{"type": "message", "role": "user", "id": "msg_1", "content": "x"}]
    )
    url = f"{gateway.base_url}/conversations/{made.id}/{path}?{query}"
    told = httpx.get(url)
    assert (told.status_code, told.json()["error"]["param"]) == (400, param)
    added = {"items": [{"role": "user", "content": "y"}]}
    told = httpx.post(url.replace("items/msg_1", "items"), json=added)
    assert (told.status_code, told.json()["error"]["param"]) == (400, param)
    assert len(client.conversations.items.list(made.id).data) == 1


def test_input_items_are_paged_in_both_directions(gateway: RunningGateway, client: Any) -> None:
    items: Any = [{"role": "user", "id": f"msg_{each}", "content": "go"} for each in range(6)]
    made = client.responses.create(model="m", input=items)
    url = f"{gateway.base_url}/responses/{made.id}/input_items"

    ids = [item["id"] for item in httpx.get(url, params={"order": "asc"}).json()["data"]]
    names = {each: str(place) for place, each in enumerate(ids)}

    def places(**query: Any) -> tuple[str, bool]:
        listed = httpx.get(url, params=query).raise_for_status().json()
        return "".join(names[item["id"]] for item in listed["data"]), listed["has_more"]

    assert places() == ("543210", False)
    assert places(before=ids[2]) == ("543", False)
    assert places(before=ids[2], limit=2) == ("43", True)
    assert places(before=ids[4], limit=2, order="asc") == ("23", True)
    assert places(before=ids[4], after=ids[0], limit=2, order="asc") == ("12", True)
    assert places(before=ids[0], after=ids[4], order="asc") == ("", False)
    refused = httpx.get(url, params={"before": "msg_none"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (404, "before")
    conversation = client.conversations.create(items=items[:1])
    listed = f"{gateway.base_url}/conversations/{conversation.id}/items"
    refused = httpx.get(listed, params={"before": "msg_0"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "before")


def test_unknown_parameters_are_counted(gateway: RunningGateway, client: Any) -> None:
    made = client.responses.create(model="m", input="go", tools=TOOLS)
    url = f"{gateway.base_url}/responses/{made.id}/input_items"
    assert httpx.get(url, params={"trace": "1"}).status_code == 200
    metrics = httpx.get(gateway.base_url.removesuffix("/v1") + "/metrics").text
    assert (
        'gateway_unknown_parameters_total{parameter="other",route="/v1/responses"} 1.0' in metrics
    )
