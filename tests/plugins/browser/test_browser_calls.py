"""Searching and reading through a running gateway, in both kinds of model families."""

from __future__ import annotations

import itertools
from typing import Any

import httpx
import pytest
from openai.types.responses import Response as SdkResponse
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from gateway_testing.grammar import fold, parse_sse
from tests.waiting import wait_until

SDK_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
FAMILIES = ("harmony", "qwen3")
SEARCH: Any = [{"type": "web_search"}]
SOURCES = ["web_search_call.action.sources"]


def streamed(gateway: Any, model: str, **body: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All events of a request, and the response that they fold to."""
    answer = httpx.post(
        f"{gateway.base_url}/responses",
        json={"model": model, "stream": True, "tools": SEARCH, **body},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    events = parse_sse(answer.content)
    for event in events:
        assert SDK_EVENT.validate_python(event).type == event["type"]
    final = fold(events)
    SdkResponse.model_validate(final)
    return events, final


def calls_of(response: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in response["output"] if item["type"] == "web_search_call"]


def last_prompt(gateway: Any, model: str) -> str:
    engine = gateway.services.models[model].engine
    text: str = engine.tokenizer.decode(engine.requests[-1].prompt.token_ids)
    return text


@pytest.mark.parametrize("model", FAMILIES)
def test_a_model_searches_opens_finds_and_cites(
    browsing: Any, shared_site: Any, model: str
) -> None:
    events, response = streamed(browsing, model, input="how high is the tower", include=SOURCES)
    url = shared_site.url
    search, opened, found = calls_of(response)
    assert search["action"] == {
        "type": "search",
        "query": "tower height",
        "queries": ["tower height"],
        "sources": [
            {"type": "url", "url": f"{url}/tower"},
            {"type": "url", "url": f"{url}/bridge"},
            {"type": "url", "url": "https://elsewhere.example/a"},
        ],
    }
    assert opened["action"] == {"type": "open_page", "url": f"{url}/tower"}
    assert found["action"] == {
        "type": "find_in_page", "url": f"{url}/tower", "pattern": "METRES high",
    }  # fmt: skip
    assert {each["status"] for each in (search, opened, found)} == {"completed"}

    [part] = response["output"][-1]["content"]
    link = f"([127.0.0.1]({url}/tower))"
    assert part["text"] == f"It is 312 metres high {link}, they say {link}【9†L1】."
    assert [each["title"] for each in part["annotations"]] == ["Tower facts", "Tower facts"]
    for each in part["annotations"]:
        assert part["text"][each["start_index"] : each["end_index"]] == link
        assert each["url"] == f"{url}/tower"

    kinds = [e["type"].removeprefix("response.") for e in events if "web_search_call" in e["type"]]
    assert (
        kinds == [f"web_search_call.{at}" for at in ("in_progress", "searching", "completed")] * 3
    )


@pytest.mark.parametrize("model", FAMILIES)
def test_the_model_reads_numbered_lines_and_links_under_a_cursor(
    browsing: Any, shared_site: Any, model: str
) -> None:
    streamed(browsing, model, input="how high is the tower")
    prompt = last_prompt(browsing, model)
    host = "127.0.0.1"
    assert (
        f"[0] Search results for: tower height\n**viewing lines [0 - 6] of 6**\n\nL0: 【0†Tower facts†{host}】\nL1: A 〖tower〗 of 312 m"
        in prompt
    )
    assert f"[1] Tower facts ({shared_site.url}/tower)" in prompt
    assert (
        "L3: It is 312 metres high.\nL4: See 【0†the bridge】 and 【1†elsewhere†other.example】."
        in prompt
    )
    assert "[1] Tower facts" in prompt.rpartition("**1 matches for 'METRES high'**")[0]
    if model == "harmony":
        assert (
            "<|start|>browser.search to=assistant<|channel|>commentary<|message|>"
            in prompt.replace(
                "<|channel|>commentary to=assistant", " to=assistant<|channel|>commentary"
            )
        )
        assert "namespace browser" in prompt
    else:
        assert '"name": "open_page"' in prompt


@pytest.mark.parametrize("model", FAMILIES)
def test_the_sdk_reads_it_streamed_plain_and_in_the_background(browsing: Any, model: str) -> None:
    body: Any = {"model": model, "input": "how high is the tower", "tools": SEARCH}
    with browsing.client() as client:
        with client.responses.stream(**body) as stream:
            kinds = [event.type for event in stream]
            first = stream.get_final_response()
        assert "response.output_text.annotation.added" in kinds
        plain = client.responses.create(**body)
        started = client.responses.create(**body, background=True)
        wait_until(
            lambda: client.responses.retrieve(started.id).status not in ("queued", "in_progress"),
            "the end of the run",
        )
        later = client.responses.retrieve(started.id)
        for response in (first, plain, later):
            assert response.status == "completed"
            assert [i.type for i in response.output] == [
                "reasoning", "web_search_call", "web_search_call", "web_search_call", "message",
            ]  # fmt: skip
            assert response.output[1].action.sources is None, "they were not asked for"
            assert len(response.output[-1].content[0].annotations) == 2
        assert client.responses.retrieve(plain.id).output == plain.output


@pytest.mark.parametrize("model", FAMILIES)
@pytest.mark.parametrize("via", ["chain", "conversation", "sent back"])
def test_a_later_response_knows_what_was_read_and_can_cite_it(
    browsing: Any, shared_site: Any, model: str, via: str
) -> None:
    """Also where a client sends the stored items back itself: they are known by their ids."""
    with browsing.client() as client:
        body: Any = {"model": model, "tools": SEARCH}
        if via == "conversation":
            body["conversation"] = client.conversations.create().id
        first = client.responses.create(**body, input="how high is the tower")
        again: list[Any] = [{"role": "user", "content": "cite it again"}]
        if via == "chain":
            body["previous_response_id"] = first.id
        elif via == "sent back":
            items = [item.model_dump(exclude_none=True) for item in first.output]
            again = [{"role": "user", "content": "how high is the tower"}, *items, *again]
        second = client.responses.create(**body, input=again)
        prompt = last_prompt(browsing, model)
        assert "L3: It is 312 metres high." in prompt
        assert "【0†Tower facts†127.0.0.1】" in prompt
        assert "not kept" not in prompt
        [annotation] = second.output[0].content[0].annotations
        assert annotation.url == f"{shared_site.url}/tower"
        link = second.output_text[annotation.start_index : annotation.end_index]
        assert link == f"([127.0.0.1]({shared_site.url}/tower))"
        if via == "sent back":
            return
        if via == "chain":
            body["previous_response_id"] = second.id
        third = client.responses.create(**body, input="go on from there")
        assert third.output[0].action.url == f"{shared_site.url}/bridge", (
            "a link of an earlier page"
        )
        assert third.output[-1].content[0].annotations[0].title == "Bridge facts", "a new cursor"


@pytest.mark.parametrize("model", FAMILIES)
def test_the_prompt_of_the_next_turn_begins_with_that_of_the_last(
    browsing: Any, model: str
) -> None:
    """So the engine's prefix cache holds: what the model wrote and read is told as it was."""
    engine = browsing.services.models[model].engine
    before = len(engine.requests)
    streamed(browsing, model, input="how high is the tower")
    prompts = [
        engine.tokenizer.decode(request.prompt.token_ids)
        for request in list(engine.requests)[before - len(engine.requests) :]
    ][-4:]
    tail = {"harmony": "<|start|>assistant", "qwen3": "<|im_start|>assistant\n"}[model]
    assert len(prompts) == 4
    for one, next_one in itertools.pairwise(prompts):
        assert next_one.startswith(one.removesuffix(tail).rstrip("\n"))


@pytest.mark.parametrize(
    "kind",
    ["web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"],
)
def test_every_variant_of_the_tool_is_the_same_tool(browsing: Any, kind: str) -> None:
    # The SDK's type of the answer knows a choice of the preview alone.
    choice = {"type": kind} if "preview" in kind else "required"
    _, response = streamed(
        browsing, "qwen3", input="only search", tools=[{"type": kind}], tool_choice=choice
    )
    [search] = calls_of(response)
    assert search["action"]["query"] == "towers"
    assert response["tools"][0]["type"] == kind
    assert response["output"][-1]["content"][0]["annotations"][0]["title"] == "Tower facts"


def test_what_the_entry_says_is_heeded(browse: Any, site: Any) -> None:
    gateway = browse()
    entry = {
        "type": "web_search",
        "filters": {"allowed_domains": ["elsewhere.example"]},
        "user_location": {"type": "approximate", "country": "NO"},
        "search_context_size": "low",
    }
    _, response = streamed(gateway, "qwen3", input="only search", tools=[entry], include=SOURCES)
    [search] = calls_of(response)
    assert [each["url"] for each in search["action"]["sources"]] == ["https://elsewhere.example/a"]
    assert site.queries[-1]["q"] == ["towers site:elsewhere.example"]
    _, other = streamed(gateway, "qwen3", input="open /slow!", tools=[entry])
    assert calls_of(other)[0]["status"] == "failed", "nor is a page of another domain opened"
    assert "/slow" not in site.asked


@pytest.mark.parametrize("family", ["qwen3", "harmony"])
@pytest.mark.slow
def test_blocked_domains_are_neither_found_nor_opened(browse: Any, site: Any, family: str) -> None:
    site.page("/redirected", "", status=302, location="https://www.elsewhere.example/a")
    gateway = browse()
    entry = {"type": "web_search", "filters": {"blocked_domains": ["Elsewhere.example"]}}
    _, response = streamed(gateway, family, input="no results", tools=[entry], include=SOURCES)
    search = calls_of(response)[0]
    shown = [each["url"] for each in search["action"]["sources"]]
    assert shown == [f"{site.url}/tower", f"{site.url}/bridge"]
    assert site.queries[-1]["q"] == ["nothing at all -site:elsewhere.example"]
    for text in ("open elsewhere!", "open /redirected!"):
        _, other = streamed(gateway, family, input=text, tools=[entry])
        assert calls_of(other)[0]["status"] == "failed"
        assert "the request blocks its domain" in last_prompt(gateway, family)
    assert other["tools"][0]["filters"]["blocked_domains"] == ["Elsewhere.example"]


@pytest.mark.parametrize(
    ("entry", "param"),
    [
        (
            {"filters": {"blocked_domains": ["ok.test", "a.test:80"]}},
            "tools[0].filters.blocked_domains[1]",
        ),
        ({"filters": {"blocked_domains": ["a.test"] * 101}}, "tools[0].filters.blocked_domains"),
        (
            {"filters": {"allowed_domains": ["https://a.test/x"]}},
            "tools[0].filters.allowed_domains[0]",
        ),
        ({"filters": {"allowed_domains": ["a.test"] * 101}}, "tools[0].filters.allowed_domains"),
        ({"search_content_types": ["image"]}, "tools[0].search_content_types"),
    ],
)
def test_an_entry_that_cannot_be_honoured_is_refused(
    browsing: Any, entry: dict[str, Any], param: str
) -> None:
    body = {"model": "qwen3", "input": "hi", "tools": [{"type": "web_search", **entry}]}
    answer = httpx.post(f"{browsing.base_url}/responses", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_a_search_that_may_not_go_out_is_no_tool(browsing: Any) -> None:
    """As Codex sends it by default."""
    tools = [{"type": "web_search", "external_web_access": False}]
    _, response = streamed(browsing, "qwen3", input="hello", tools=tools)
    assert [item["type"] for item in response["output"]] == ["message"]
    assert "web_search" not in last_prompt(browsing, "qwen3")


def test_calls_at_once_are_told_in_their_order(browsing: Any) -> None:
    """(gpt-oss calls one tool at a time: a call ends its output.)"""
    _, response = streamed(browsing, "qwen3", input="two at once")
    search, opened = calls_of(response)
    assert (search["action"]["type"], opened["action"]["type"]) == ("search", "open_page")


def test_all_calls_are_counted_by_the_limit(browsing: Any) -> None:
    _, response = streamed(browsing, "qwen3", input="how high is the tower", max_tool_calls=1)
    assert len(calls_of(response)) == 1
    assert response["status"] == "completed"
