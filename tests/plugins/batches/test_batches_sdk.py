"""/v1/batches by the official SDK."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types import Batch

from gateway_testing.server import RunningGateway, run_gateway
from tests.plugins.batches.batch_client import Batches, configuration, line


def test_each_line_has_its_result(ada: Batches) -> None:
    lines = [line(f"r{n}", f"say {n}") for n in range(30)]
    made = ada.create(lines, metadata={"job": "nightly"})
    assert isinstance(made, Batch)
    assert (made.status, made.endpoint, made.metadata) == ("validating", "/v1/responses", {"job": "nightly"})  # fmt: skip
    assert made.expires_at == made.created_at + 86_400
    ended = ada.ended(made)
    assert ended.status == "completed"
    assert ended.request_counts.model_dump() == {"total": 30, "completed": 30, "failed": 0}
    assert (ended.error_file_id, ended.errors, ended.model) == (None, None, "m")
    assert made.created_at <= ended.in_progress_at <= ended.finalizing_at <= ended.completed_at
    output = ada.output(ended)
    assert [each["custom_id"] for each in output] == [f"r{n}" for n in range(30)]
    assert len({each["id"] for each in output}) == 30
    for number, each in enumerate(output):
        assert each["error"] is None
        assert each["response"]["status_code"] == 200
        assert each["response"]["request_id"].startswith("req_")
        [item] = each["response"]["body"]["output"]
        assert item["content"][0]["text"] == f"say {number}"
    usages = [each["response"]["body"]["usage"] for each in output]
    assert ended.usage.input_tokens == sum(each["input_tokens"] for each in usages) > 0
    assert ended.usage.total_tokens == sum(each["total_tokens"] for each in usages)
    file = ada.client.files.retrieve(ended.output_file_id)
    assert (file.purpose, file.expires_at) == ("batch_output", None)


def test_a_file_of_another_system_is_read(ada: Batches) -> None:
    """It has a byte order mark, lines that end with CR LF, empty lines, and no end of the last line."""
    lines = [json.dumps(line(f"é{n}", f"say {n}"), ensure_ascii=False) for n in range(3)]
    content = b"\xef\xbb\xbf" + "\r\n\r\n".join(lines).encode()
    ended = ada.ended(ada.create(content))
    assert (ended.status, ended.error_file_id) == ("completed", None)
    assert [each["custom_id"] for each in ada.output(ended)] == ["é0", "é1", "é2"]


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("/v1/chat/completions", "chat.completion"),
        ("/v1/completions", "text_completion"),
        ("/v1/embeddings", "list"),
    ],
)
def test_other_apis_are_run_as_well(ada: Batches, url: str, kind: str) -> None:
    ended = ada.ended(ada.create([line(f"r{n}", url=url) for n in range(3)], endpoint=url))
    assert ended.status == "completed"
    output = ada.output(ended)
    assert [each["response"]["body"]["object"] for each in output] == [kind] * 3
    assert ended.usage.input_tokens > 0
    assert (ended.usage.output_tokens > 0) == (kind != "list")


def test_a_bad_line_is_its_own_error(ada: Batches) -> None:
    good = line("good")
    lines: list[tuple[Any, str | None]] = [
        (line("good"), "duplicate_custom_id"),
        ({**good, "custom_id": "a", "method": "GET"}, "invalid_method"),
        ({**good, "custom_id": "b", "url": "/v1/chat/completions"}, "invalid_url"),
        ({**good, "custom_id": "c", "body": [1]}, "invalid_body"),
        ({name: value for name, value in good.items() if name != "custom_id"}, "missing_required_parameter"),
        ({**good, "custom_id": 7}, "invalid_custom_id"),
        ([1, 2], "invalid_json_line"),
        (line("d", stream=True), "unsupported_parameter"),
        (line("e", background=True), "unsupported_parameter"),
    ]  # fmt: skip
    ended = ada.ended(ada.create([good, *(each for each, _ in lines)]))
    assert ended.status == "completed"
    assert ended.request_counts.model_dump() == {"total": 10, "completed": 1, "failed": 9}
    assert [each["custom_id"] for each in ada.output(ended)] == ["good"]
    errors = ada.errors(ended)
    assert [each["error"]["code"] for each in errors] == [code for _, code in lines]
    assert [each["error"]["line"] for each in errors] == list(range(2, 11))
    assert {each["response"] for each in errors} == {None}
    assert errors[1]["custom_id"] == "a"
    assert [(each.code, each.line) for each in ended.errors.data] == [
        (each["error"]["code"], each["error"]["line"]) for each in errors
    ]


def test_a_request_that_the_api_refuses_is_in_the_errors_file(ada: Batches) -> None:
    ended = ada.ended(ada.create([line("a", model="other"), line("b"), line("c", top_p=5), line("d", "it fails")]))  # fmt: skip
    assert ended.status == "completed"
    assert (ended.request_counts.completed, ended.request_counts.failed) == (1, 3)
    found = {each["custom_id"]: each["response"] for each in ada.errors(ended)}
    assert {name: each["status_code"] for name, each in found.items()} == {"a": 404, "c": 400, "d": 500}  # fmt: skip
    assert found["a"]["body"]["error"]["code"] == "model_not_found"
    assert ended.model is None, "the lines name several"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty_file"),
        (b"\n\n \n", "empty_file"),
        (b"nothing\nhere\n", "no_valid_lines"),
        (b"{}\n" * 2001, "too_many_lines"),
    ],
)
def test_a_file_without_a_usable_line_fails_the_batch(ada: Batches, content: bytes, code: str) -> None:  # fmt: skip
    ended = ada.ended(ada.create(content))
    assert ended.status == "failed"
    assert ended.failed_at is not None
    assert ended.errors.data[0].code == code
    assert ended.output_file_id is None


@pytest.mark.parametrize(
    ("given", "status", "param"),
    [
        ({"input_file_id": "file-none"}, 404, "input_file_id"),
        ({"endpoint": "/v1/models"}, 400, "endpoint"),
        ({"endpoint": "/v1/batches"}, 400, "endpoint"),
        ({"completion_window": "soon"}, 400, "completion_window"),
        ({"completion_window": "15d"}, 400, "completion_window"),
        ({"completion_window": "9" * 400 + "h"}, 400, "completion_window"),
        ({"metadata": {"a": 1}}, 400, "metadata.a"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 5}}, 400, "output_expires_after.seconds"),
        ({"output_expires_after": {"anchor": "now", "seconds": 3600}}, 400, "output_expires_after.anchor"),
    ],
)  # fmt: skip
def test_a_bad_request_is_refused(ada: Batches, given: Any, status: int, param: str) -> None:
    body = {"endpoint": "/v1/responses", "completion_window": "24h", "input_file_id": ada.upload([line("a")]).id}  # fmt: skip
    with pytest.raises(openai.APIStatusError) as raised:
        ada.client.post("/batches", body={**body, **given}, cast_to=object)
    assert (raised.value.status_code, raised.value.param) == (status, param)


def test_a_file_of_another_purpose_is_refused(ada: Batches) -> None:
    file = ada.upload([line("a")], purpose="user_data")
    with pytest.raises(openai.BadRequestError, match="purpose 'batch'") as raised:
        ada.client.batches.create(
            input_file_id=file.id, endpoint="/v1/responses", completion_window="24h"
        )
    assert raised.value.param == "input_file_id"


def test_results_live_as_long_as_was_asked(ada: Batches) -> None:
    ended = ada.ended(
        ada.create([line("a")], output_expires_after={"anchor": "created_at", "seconds": 3600})
    )
    file = ada.client.files.retrieve(ended.output_file_id)
    assert file.expires_at == file.created_at + 3600


def test_lists_are_paged(bob: Batches) -> None:
    made = [bob.create([line("a")]).id for _ in range(3)]
    page = bob.client.batches.list(limit=2)
    assert ([each.id for each in page.data], page.has_more) == (made[:0:-1], True)
    assert [each.id for each in page] == made[::-1]
    assert bob.client.batches.list(after=made[0]).data == []


def test_what_runs_is_cancelled_and_what_is_done_is_kept(ada: Batches) -> None:
    lines = [line("quick"), *(line(f"slow{n}", "slowly") for n in range(12))]
    made = ada.until(ada.create(lines), lambda now: now.request_counts.completed == 1)
    cancelling = ada.client.batches.cancel(made.id)
    assert (cancelling.status, cancelling.cancelling_at is not None) == ("cancelling", True)
    ended = ada.ended(cancelling)
    assert ended.status == "cancelled"
    assert ended.request_counts.model_dump() == {"total": 13, "completed": 1, "failed": 12}
    assert [each["custom_id"] for each in ada.output(ended)] == ["quick"]
    assert {each["error"]["code"] for each in ada.errors(ended)} == {"batch_cancelled"}
    with pytest.raises(openai.ConflictError, match="with status 'cancelled'"):
        ada.client.batches.cancel(made.id)


@pytest.mark.slow
def test_a_window_that_is_over_ends_the_batch_with_what_is_done(ada: Batches) -> None:
    lines = [line("quick"), *(line(f"slow{n}", "slowly") for n in range(3))]
    ended = ada.ended(ada.create(lines, completion_window="10s"))
    assert ended.status == "expired"
    assert ended.expired_at >= ended.expires_at
    assert [each["custom_id"] for each in ada.output(ended)] == ["quick"]
    assert {each["error"]["code"] for each in ada.errors(ended)} == {"batch_expired"}


def test_a_line_that_meets_a_limit_waits_and_does_not_fail(ada: Batches) -> None:
    made = ada.create([line("later", "too much"), line("now")])
    made = ada.until(made, lambda now: now.request_counts.completed == 1)
    assert made.request_counts.failed == 0
    ended = ada.ended(ada.client.batches.cancel(made.id))
    assert [each["error"]["code"] for each in ada.errors(ended)] == ["batch_cancelled"]


def test_too_many_results_fail_the_batch_and_are_kept(ada: Batches) -> None:
    text = "word " * 600  # about 3 kB, in an answer that repeats it
    lines = [line(f"r{n}", text) for n in range(300)]
    ended = ada.ended(ada.create(lines))
    assert ended.status == "failed"
    assert ended.errors.data[0].code == "output_too_large"
    counts = ended.request_counts
    assert 0 < counts.completed < counts.total == counts.completed + counts.failed
    assert len(ada.output(ended)) == counts.completed


def test_the_routes_are_described(serving: RunningGateway) -> None:
    described = httpx.get(
        serving.base_url.removesuffix("/v1") + "/openapi.json",
        headers={"authorization": "Bearer key-ada"},
    ).json()
    assert set(described["paths"]["/v1/batches"]) == {"get", "post"}
    assert "/v1/batches/{batch}/cancel" in described["paths"]
    assert described["paths"]["/v1/batches"]["post"]["requestBody"]


def test_without_keys_batches_belong_to_all(tmp_path: Path) -> None:
    config = configuration(tmp_path / "files")
    del config["server"]
    with run_gateway(config, tmp_path) as gateway, gateway.client() as client:
        batches = Batches(client)
        ended = batches.ended(batches.create([line("a")]))
        assert [each["custom_id"] for each in batches.output(ended)] == ["a"]


def test_a_gateway_without_a_table_for_batches_has_none(tmp_path: Path) -> None:
    config = configuration(tmp_path / "files")
    del config["apis"]
    with (
        run_gateway(config, tmp_path) as gateway,
        gateway.client(api_key="key-ada") as client,
        pytest.raises(openai.NotFoundError),
    ):
        client.batches.list()
