"""A gateway whose model is behind an upstream, as its clients see it: errors, limits, leaving, and what it cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gateway_testing.server import run_gateway
from tests.leaving_client import leaving_client
from tests.waiting import wait_until

MODELS = ["chat", "responses"]
TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}


def post(pair: Any, path: str, **body: Any) -> httpx.Response:
    root = pair.front.base_url
    url = f"{root.removesuffix('/v1')}{path}" if "okenize" in path else f"{root}{path}"
    return httpx.post(url, json=body, timeout=60)


@pytest.fixture
def limits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A front and an upstream of its own, which a limit makes unusable for a while."""
    scripted = {
        "engine": "scripted",
        "scripted": {"rules": [{"when": "busy", "error": {"status": 429, "message": "Busy."}}]},
    }
    with run_gateway({"models": {"m": scripted}}, tmp_path_factory.mktemp("up")) as upstream:
        models = {
            api: {
                "engine": "openai",
                "openai": {"base_url": upstream.base_url, "api": api, "model": "m"},
            }
            for api in MODELS
        }
        with run_gateway({"models": models}, tmp_path_factory.mktemp("front")) as front:
            yield front


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A front whose upstream is said to do nothing but talk; nobody asks it."""
    names = ("tools", "json_schema", "json_object", "logprobs", "images", "reasoning_effort")
    told = {
        "base_url": "http://127.0.0.1:9/v1",
        "takes": dict.fromkeys(names, False),
        "health_path": "",
    }
    config = {"models": {"poor": {"engine": "openai", "openai": told}}}
    with run_gateway(config, tmp_path_factory.mktemp("poor")) as front:
        yield front


def test_a_path_names_the_upstreams_model_after_its_address(pair: Any, tmp_path: Path) -> None:
    model = {"engine": "openai", "path": f"{pair.upstream.base_url}#said"}
    with run_gateway({"models": {"elsewhere": model}}, tmp_path) as front, front.client() as client:
        assert client.responses.create(model="elsewhere", input="hi").output_text


def test_the_official_client_streams_a_response(pair: Any) -> None:
    with pair.front.client() as client:
        for model in MODELS:
            with client.responses.stream(model=model, input="say a little") as stream:
                deltas = [e.delta for e in stream if e.type == "response.output_text.delta"]
                assert stream.get_final_response().output_text == "".join(deltas)
            assert len(deltas) > 3, "it streams: nothing is gathered on the way"


def test_tokens_arrive_while_the_upstream_writes(pair: Any) -> None:
    with pair.front.client() as client:
        for model in MODELS:
            with client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": "go slowly"}], stream=True
            ) as stream:
                texts = (c.choices[0].delta.content for c in stream if c.choices)
                for _ in range(5):
                    assert next(filter(None, texts))
                    assert pair.engine.running, "it writes for eight seconds"
            wait_until(lambda: not pair.engine.running)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("front", ["/responses", "/chat/completions"])
def test_a_client_that_leaves_ends_the_upstreams_work(
    pair: Any, model: str, front: str, *, stream: bool
) -> None:
    engine = pair.engine
    before = len(engine.aborted)
    said = {"input": "go slowly"}
    if front == "/chat/completions":
        said = {"messages": [{"role": "user", "content": "go slowly"}]}  # type: ignore[dict-item]
    asked = {"model": model, "stream": stream, **said}
    with leaving_client(pair.front.base_url, asked, front):
        wait_until(lambda: engine.running)
    wait_until(lambda: len(engine.aborted) > before and not engine.running)


@pytest.mark.parametrize("model", MODELS)
def test_refusals_of_the_upstream_are_statuses(pair: Any, model: str) -> None:
    answer = post(pair, "/responses", model=model, input="refuse at once")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "The engine does not like it."
    answer = post(
        pair,
        "/chat/completions",
        model=model,
        messages=[{"role": "user", "content": "refuse at once"}],
        stream=True,
    )
    assert answer.status_code == 400, "nothing was sent before it was known"


@pytest.mark.parametrize("model", MODELS)
def test_an_upstream_that_breaks_down_fails_the_response_and_keeps_what_was_written(
    pair: Any, model: str
) -> None:
    answer = post(pair, "/responses", model=model, input="break down", stream=True)
    assert '"type":"response.failed"' in answer.text
    assert "It begins well" in answer.text
    assert post(pair, "/responses", model=model, input="break down").status_code == 500


@pytest.mark.parametrize("model", MODELS)
def test_a_limit_of_the_upstream_is_a_429_with_its_time(limits: Any, model: str) -> None:
    with limits.client() as client:
        with pytest.raises(openai.RateLimitError) as raised:
            client.responses.create(model=model, input="busy")
        assert int(raised.value.response.headers["retry-after"]) >= 1


def test_counting_and_raw_prompts_are_refused(pair: Any) -> None:
    for path, body in (
        ("/responses/input_tokens", {"input": "Hi"}),
        ("/tokenize", {"prompt": "Hi"}),
        ("/tokenize", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/detokenize", {"tokens": [1]}),
        ("/completions", {"prompt": "Hi"}),
        (
            "/chat/completions",
            {"messages": [{"role": "user", "content": "Hi"}], "return_token_ids": True},
        ),
        (
            "/chat/completions",
            {"messages": [{"role": "user", "content": "Hi"}], "prompt_logprobs": 1},
        ),
    ):
        answer = post(pair, path, model="chat", **body)
        assert answer.status_code == 400, (path, answer.text)
        assert answer.json()["error"]["param"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": [TOOL]}, "tools"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
        ({"top_k": 5}, "top_k"),
        ({"chat_template": "{{ x }}"}, "chat_template"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0].type",
        ),
    ],
)
def test_what_the_upstream_cannot_do_is_a_400(poor: Any, body: Any, param: str) -> None:
    for stream in (True, False):
        asked = {"model": "poor", "input": "Hi", "stream": stream, **body}
        answer = httpx.post(f"{poor.base_url}/responses", json=asked)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert (error["type"], error["param"]) == ("invalid_request_error", param)
        assert error["code"] == "unsupported_parameter"


def test_the_gateways_own_tools_run_for_models_behind_an_upstream(pair: Any) -> None:
    for model in MODELS:
        answer = post(pair, "/responses", model=model, input="measure it").json()
        kinds = [item["type"] for item in answer["output"]]
        assert kinds == ["mcp_call", "message"]
        assert answer["output"][0]["output"] == "42 metres"
        assert answer["output"][1]["content"][0]["text"] == "It is 42 metres deep."


def test_conversations_and_background_runs_work_as_with_any_engine(pair: Any) -> None:
    with pair.front.client() as client:
        for model in MODELS:
            first = client.responses.create(model=model, input="think first")
            second = client.responses.create(
                model=model, input="unicode please", previous_response_id=first.id
            )
            assert "東京" in second.output_text
            prompt = pair.engine.tokenizer.decode(pair.engine.requests[-1].prompt.token_ids)
            assert "Done thinking." in prompt
            queued = client.responses.create(model=model, input="think first", background=True)
            wait_until(lambda q=queued: client.responses.retrieve(q.id).status == "completed")  # type: ignore[misc]


def test_what_clients_wish_goes_through_to_the_upstream(pair: Any) -> None:
    wishes = {
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "service_tier": "flex",
    }
    said = [{"role": "user", "content": "Hi"}]
    for model in MODELS:
        answer = post(
            pair, "/responses", model=model, input="Hi", text={"verbosity": "low"}, **wishes
        )
        assert answer.json()["service_tier"] == "flex"
        told = dict(pair.engine.requests[-1].hints)
        assert told == {**wishes, "verbosity": "low"}
        post(pair, "/chat/completions", model=model, messages=said, verbosity="high", **wishes)
        assert dict(pair.engine.requests[-1].hints) == {**wishes, "verbosity": "high"}


def test_usage_is_told_on_the_way_once_it_is_known(pair: Any) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    with pair.front.client() as client:
        *_, last, total = client.chat.completions.create(
            model="chat",
            messages=[{"role": "user", "content": "think first"}],
            stream=True,
            stream_options=options,
        )
    assert last.usage is not None
    assert last.usage.completion_tokens == total.usage.completion_tokens > 0


def test_models_are_described_with_their_replicas_and_found_by_their_profile(pair: Any) -> None:
    model = pair.front.services.models["chat"]
    assert "its upstream prompts and parses" in model.why
    assert model.engine.describe()[0]["replica"] in pair.upstream.base_url
    metrics = httpx.get(f"{pair.front.base_url.removesuffix('/v1')}/metrics").text
    assert 'gateway_remote_requests_total{model="chat"' in metrics


def test_keys_are_in_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = "sk-nobody-must-see-me"
    told = {"base_url": "http://127.0.0.1:9/v1", "api_key": secret, "wait_for_replica": 0.1}
    config = {"models": {"m": {"engine": "openai", "openai": told}}}
    with run_gateway(config, tmp_path) as running:
        answer = httpx.post(f"{running.base_url}/responses", json={"model": "m", "input": "Hi"})
    assert answer.status_code == 503
    assert secret not in caplog.text + answer.text
    assert "127.0.0.1" not in answer.text
