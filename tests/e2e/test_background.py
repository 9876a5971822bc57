"""Background responses over HTTP: followed, resumed, cancelled, deleted."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest
from openai import OpenAI

from gateway_testing.grammar import fold, parse_sse
from tests.waiting import wait_until

SLOW = {"model": "scripted", "input": "go slowly", "background": True, "max_output_tokens": 60}
ENDLESS = {"model": "scripted", "input": "never stop", "background": True}
"""Goes on for minutes: it is over when it was ended."""


def wait(http: httpx.Client, response_id: str) -> dict[str, Any]:
    def ended() -> dict[str, Any] | None:
        body: dict[str, Any] = http.get(f"/v1/responses/{response_id}").json()
        return None if body["status"] in ("queued", "in_progress") else body

    found = wait_until(ended, "the response has ended")
    assert found is not None
    return found


def wait_for_text(http: httpx.Client, response_id: str) -> None:
    query = {"stream": "true"}
    with http.stream("GET", f"/v1/responses/{response_id}", params=query) as answer:
        next(line for line in answer.iter_lines() if line == "event: response.output_text.delta")


def tokens_of(http: httpx.Client, response_id: str) -> int:
    """How many tokens a running response has, as administrators see it: without a stream its text is not shown."""
    runs = http.get("/v1/gateway/runs").json()["running"]
    return sum(run["output_tokens"] for run in runs if run["response_id"] == response_id)


def events(http: httpx.Client, response_id: str, after: int = -1) -> list[dict[str, Any]]:
    query = {"stream": "true", "starting_after": str(after)}
    answer = http.get(f"/v1/responses/{response_id}", params=query)
    assert answer.status_code == 200
    return parse_sse(answer.content)


def test_a_background_response_is_queued_runs_and_completes(http: httpx.Client) -> None:
    made = http.post("/v1/responses", json=SLOW).json()
    assert (made["status"], made["background"], made["output"]) == ("queued", True, [])
    done = wait(http, made["id"])
    assert done["status"] == "incomplete"
    assert done["usage"]["output_tokens"] == 60


def test_a_stream_is_the_same_live_replayed_and_resumed(http: httpx.Client) -> None:
    live = parse_sse(http.post("/v1/responses", json={**SLOW, "stream": True}).content)
    final = fold(live)
    assert [e["type"] for e in live[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    assert events(http, final["id"]) == live
    for after in (0, 1, 5, len(live) - 2, len(live) - 1, 10_000):
        assert events(http, final["id"], after) == live[after + 1 :]
    assert http.get(f"/v1/responses/{final['id']}").json() == final


def test_a_reader_that_leaves_ends_nothing(server: Any, http: httpx.Client) -> None:
    with (
        httpx.Client(base_url=server.url) as leaving,
        leaving.stream("POST", "/v1/responses", json={**SLOW, "stream": True}) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines) == "event: response.created"
        data = next(lines)
        response_id = json.loads(data[6:])["response"]["id"]
    assert fold(events(http, response_id))["status"] == "incomplete"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("pause", [0, 0.02, None], ids=["at once", "soon", "amid its text"])
def test_cancelling_keeps_what_was_written(
    http: httpx.Client, client: OpenAI, stream: bool, pause: float | None
) -> None:
    body = {**ENDLESS, "stream": stream}
    if stream:
        with http.stream("POST", "/v1/responses", json=body) as answer:
            lines = answer.iter_lines()
            data = next(line for line in lines if line.startswith("data: "))
            response_id = json.loads(data[6:])["response"]["id"]
    else:
        response_id = http.post("/v1/responses", json=body).json()["id"]
    if pause is None and stream:
        wait_for_text(http, response_id)
    elif pause is None:
        wait_until(lambda: tokens_of(http, response_id), "its first text")
    else:
        time.sleep(pause)
    cancelled = client.responses.cancel(response_id)
    assert cancelled.status == "cancelled"
    assert client.responses.cancel(response_id).to_dict() == cancelled.to_dict()
    if pause is None:
        assert cancelled.output_text.startswith("slow")
    if stream:
        assert fold(events(http, response_id))["status"] == "cancelled"


def test_cancelling_what_is_over_gives_it_as_it_is(http: httpx.Client) -> None:
    made = http.post("/v1/responses", json={**SLOW, "input": "hello"}).json()
    done = wait(http, made["id"])
    assert http.post(f"/v1/responses/{made['id']}/cancel").json() == done


def test_a_failing_background_response_says_so_to_every_reader(http: httpx.Client) -> None:
    body = {"model": "scripted", "input": "break down", "background": True, "stream": True}
    final = fold(parse_sse(http.post("/v1/responses", json=body).content))
    assert final["status"] == "failed"
    assert fold(events(http, final["id"])) == final


def test_deleting_a_running_response_ends_its_readers(server: Any, http: httpx.Client) -> None:
    body = {**ENDLESS, "stream": True}
    with (
        httpx.Client(base_url=server.url) as other,
        other.stream("POST", "/v1/responses", json=body) as answer,
    ):
        lines = answer.iter_lines()
        data = next(line for line in lines if line.startswith("data: "))
        response_id = json.loads(data[6:])["response"]["id"]
        assert http.delete(f"/v1/responses/{response_id}").status_code == 200
        assert "event: response.completed" not in list(lines)
    assert http.get(f"/v1/responses/{response_id}").status_code == 404


def test_an_unfinished_parent_is_refused(http: httpx.Client) -> None:
    made = http.post("/v1/responses", json=ENDLESS).json()["id"]
    body = {"model": "scripted", "input": "x", "previous_response_id": made}
    refused = http.post("/v1/responses", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "previous_response_not_finished"
    http.post(f"/v1/responses/{made}/cancel")


def test_a_full_queue_is_told_before_anything_is_stored(http: httpx.Client) -> None:
    body = {**ENDLESS, "model": "small", "input": "wait a while"}
    answers = [http.post("/v1/responses", json=body) for _ in range(4)]
    assert [a.status_code for a in answers] == [200, 200, 429, 429]
    assert int(answers[3].headers["retry-after"]) >= 1
    for answer in answers[:2]:  # the second one runs when the first one has ended
        response_id = answer.json()["id"]
        url = f"/v1/responses/{response_id}"
        wait_until(lambda url=url: http.get(url).json()["status"] == "in_progress")  # type: ignore[misc]
        assert http.post(f"{url}/cancel").json()["status"] == "cancelled"
    done = http.post("/v1/responses", json={**body, "input": "hello"}).json()
    assert wait(http, done["id"])["status"] == "completed"


@pytest.mark.parametrize("after", ["x", "1.5", ""])
def test_a_strange_starting_after_is_told(http: httpx.Client, after: str) -> None:
    body = {"model": "scripted", "input": "hello", "background": True, "stream": True}
    final = fold(parse_sse(http.post("/v1/responses", json=body).content))
    query = {"stream": "true", "starting_after": after}
    answer = http.get(f"/v1/responses/{final['id']}", params=query)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "starting_after")
