"""Searching files through a running gateway, in both kinds of model families."""

from __future__ import annotations

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
RESULTS = ["file_search_call.results"]


def entry(store: str, **more: Any) -> Any:
    return [{"type": "file_search", "vector_store_ids": [store], **more}]


def streamed(gateway: Any, model: str, **body: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All events of a request of Ada's, and the response that they fold to."""
    answer = httpx.post(
        f"{gateway.base_url}/responses",
        json={"model": model, "stream": True, **body},
        headers={"authorization": "Bearer key-ada"},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    events = parse_sse(answer.content)
    for event in events:
        assert SDK_EVENT.validate_python(event).type == event["type"]
    final = fold(events)
    SdkResponse.model_validate(final)
    return events, final


@pytest.mark.parametrize("model", FAMILIES)
def test_a_model_searches_and_cites(searching: Any, ada: Any, towers: str, model: str) -> None:
    events, response = streamed(
        searching, model, input="how high is the tower", tools=entry(towers), include=RESULTS
    )
    reasoning, call, message = response["output"]
    assert reasoning["type"] == "reasoning"
    assert (call["type"], call["status"]) == ("file_search_call", "completed")
    assert call["queries"] == ["tower height", "metres"]
    best = call["results"][0]
    assert (best["filename"], best["attributes"]) == ("tower.md", {"kind": "tower", "year": 1931})
    assert (
        best["text"]
        == "# The tower\n\nThe tower has a height of 312 metres. It was opened in 1931."
    )
    assert 0 < call["results"][1]["score"] < best["score"] <= 1

    [part] = message["content"]
    assert part["text"] == "It is 312 metres high, as told and 【9:9†x】."
    assert [each["type"] for each in part["annotations"]] == ["file_citation"] * 2
    told = [part["text"][: each["index"]] for each in part["annotations"]]
    assert told == ["It is 312 metres high", "It is 312 metres high, as told"]
    for each in part["annotations"]:
        assert (each["file_id"], each["filename"]) == (best["file_id"], "tower.md")
    kinds = [e["type"] for e in events if "file_search_call" in e["type"]]
    assert kinds == [
        f"response.file_search_call.{at}" for at in ("in_progress", "searching", "completed")
    ]
    added = [e["annotation"] for e in events if e["type"].endswith("annotation.added")]
    assert added == part["annotations"]


@pytest.mark.parametrize("model", FAMILIES)
def test_the_model_reads_passages_under_marks(searching: Any, towers: str, model: str) -> None:
    streamed(searching, model, input="how high is the tower", tools=entry(towers))
    engine = searching.services.models[model].engine
    prompt = engine.tokenizer.decode(engine.requests[-1].prompt.token_ids)
    assert "【0:0†tower.md】\n# The tower\n\nThe tower has a height of 312 metres." in prompt
    assert "【0:1†bridge.html】\nBridge\nThe bridge is 99 metres long." in prompt
    assert (
        "functions.file_search" in prompt
        if model == "harmony"
        else '"name": "file_search"' in prompt
    )


@pytest.mark.parametrize("model", FAMILIES)
def test_the_sdk_reads_it_streamed_plain_and_in_the_background(
    ada: Any, towers: str, model: str
) -> None:
    body: Any = {"model": model, "input": "how high is the tower", "tools": entry(towers)}
    with ada.responses.stream(**body) as stream:
        kinds = [event.type for event in stream]
        first = stream.get_final_response()
    assert "response.output_text.annotation.added" in kinds
    plain = ada.responses.create(**body)
    started = ada.responses.create(**body, background=True)
    wait_until(
        lambda: ada.responses.retrieve(started.id).status not in ("queued", "in_progress"),
        "the end of the run",
    )
    later = ada.responses.retrieve(started.id)
    for response in (first, plain, later):
        assert response.status == "completed"
        assert [i.type for i in response.output] == ["reasoning", "file_search_call", "message"]
        assert response.output[1].results is None, "they were not asked for"
        assert [a.index for a in response.output[-1].content[0].annotations] == [21, 30]
    assert ada.responses.retrieve(plain.id).output == plain.output


@pytest.mark.parametrize("model", FAMILIES)
def test_a_later_response_cites_what_an_earlier_one_found(
    ada: Any, towers: str, model: str
) -> None:
    tools = entry(towers)
    first = ada.responses.create(model=model, input="how high is the tower", tools=tools)
    again = ada.responses.create(
        model=model, input="cite it again", previous_response_id=first.id, tools=tools
    )
    assert again.output_text == "As said."
    [cited] = again.output[-1].content[0].annotations
    assert (cited.filename, cited.index) == ("tower.md", 7)
    more = ada.responses.create(
        model=model, input="look once more", previous_response_id=again.id, tools=tools
    )
    assert more.output_text == "The bridge has 99.", "its call is the second of the conversation"
    assert more.output[-1].content[0].annotations[0].filename == "bridge.html"


def test_two_searches_at_once_have_marks_of_their_own(searching: Any, towers: str) -> None:
    _, response = streamed(
        searching, "qwen3", input="two at once", tools=entry(towers), include=RESULTS
    )
    calls = [item for item in response["output"] if item["type"] == "file_search_call"]
    assert [call["queries"] for call in calls] == [["tower"], ["bridge long"]]
    assert {call["status"] for call in calls} == {"completed"}
    engine = searching.services.models["qwen3"].engine
    prompt = engine.tokenizer.decode(engine.requests[-1].prompt.token_ids)
    assert "【0:0†" in prompt
    assert "【1:0†" in prompt


@pytest.mark.parametrize("model", FAMILIES)
def test_what_is_not_found_and_wrong_arguments_are_told_to_the_model(
    searching: Any, towers: str, model: str
) -> None:
    tools = entry(towers)
    _, nothing = streamed(searching, model, input="nothing there", tools=tools, include=RESULTS)
    call, message = nothing["output"]
    assert (call["status"], call["results"]) == ("completed", [])
    assert message["content"][0]["text"] == "Nothing."
    _, wrong = streamed(searching, model, input="wrong arguments", tools=tools, include=RESULTS)
    call, message = wrong["output"]
    assert (call["status"], call["queries"]) == ("failed", [])
    assert message["content"][0]["text"] == "My mistake."


def test_filters_numbers_and_thresholds_of_the_entry_are_heeded(ada: Any, towers: str) -> None:
    def found(**more: Any) -> list[str]:
        response = ada.responses.create(
            model="qwen3", input="both words", tools=entry(towers, **more), include=RESULTS
        )
        [call] = [item for item in response.output if item.type == "file_search_call"]
        return [result.filename for result in call.results]

    assert found() == ["tower.md", "bridge.html"]
    newer = {"type": "gt", "key": "year", "value": 1950}
    assert found(filters=newer) == ["bridge.html"]
    of_tower = {"type": "in", "key": "kind", "value": ["tower"]}
    assert found(filters=of_tower) == ["tower.md"]
    assert found(filters={"type": "and", "filters": [newer, of_tower]}) == []
    assert len(found(filters={"type": "or", "filters": [newer, of_tower]})) == 2
    assert found(ranking_options={"score_threshold": 0.99, "ranker": "auto"}) == []
    assert found(max_num_results=1) == ["tower.md"]


@pytest.mark.parametrize(
    ("more", "param", "status"),
    [
        ({"vector_store_ids": []}, "tools[0].vector_store_ids", 400),
        ({"vector_store_ids": ["vs_unknown"]}, "tools[0].vector_store_ids[0]", 404),
        ({"max_num_results": 51}, "tools[0].max_num_results", 400),
        ({"filters": {"type": "like", "key": "a", "value": 1}}, "tools[0].filters.type", 400),
        ({"filters": {"type": "eq", "value": 1}}, "tools[0].filters.key", 400),
        (
            {"filters": {"type": "or", "filters": [{"type": "in", "key": "a", "value": 1}]}},
            "tools[0].filters.filters[0].value",
            400,
        ),
    ],
)
def test_a_bad_entry_is_refused_with_its_parameter(
    searching: Any, towers: str, more: Any, param: str, status: int
) -> None:
    answer = httpx.post(
        f"{searching.base_url}/responses",
        json={"model": "qwen3", "input": "hi", "tools": [{**entry(towers)[0], **more}]},
        headers={"authorization": "Bearer key-ada"},
    )
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


def test_two_entries_that_differ_are_refused(searching: Any, towers: str) -> None:
    """Rather than one of them being passed over."""
    [one] = entry(towers)
    for other, status in ((one, 200), ({**one, "max_num_results": 1}, 400)):
        answer = httpx.post(
            f"{searching.base_url}/responses",
            json={"model": "qwen3", "input": "how high is the tower", "tools": [one, other]},
            headers={"authorization": "Bearer key-ada"},
        )
        assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == "tools[1]"


def test_anothers_vector_store_is_an_unknown_one(bob: Any, towers: str) -> None:
    with pytest.raises(Exception, match=f"Vector store with id '{towers}' not found") as raised:
        bob.responses.create(model="qwen3", input="how high is the tower", tools=entry(towers))
    assert raised.value.status_code == 404  # type: ignore[attr-defined]


def test_a_tool_choice_makes_the_model_search(ada: Any, searching: Any, towers: str) -> None:
    response = ada.responses.create(
        model="qwen3", input="how high is the tower", tools=entry(towers), tool_choice={"type": "file_search"}
    )  # fmt: skip
    assert response.tool_choice.type == "file_search"
    assert response.output[1].type == "file_search_call"


@pytest.mark.parametrize("model", FAMILIES)
def test_a_search_that_takes_too_long_fails_and_ends_nothing(
    gateway_server: Any, model: str
) -> None:
    call = {"call": {"name": "file_search", "arguments": {"queries": ["x"]}}}
    rules = [
        {"when": "search", "pieces": [call]},
        {"when": "did not answer within", "pieces": [{"text": "It takes too long."}]},
    ]
    renderer = "harmony" if model == "harmony" else "chat_template"
    models = {model: {"engine": "scripted", "parser": model, "renderer": renderer, "scripted": {"rules": rules}}}  # fmt: skip
    gateway = gateway_server({"models": models, "tools": {"file_search": {"time_limit": 1e-6}}})
    with gateway.client() as client:
        store = client.vector_stores.create()
        response = client.responses.create(model=model, input="search", tools=entry(store.id))
        failed = response.output[0]
        assert (failed.type, failed.status) == ("file_search_call", "failed")
        assert response.output_text == "It takes too long."
