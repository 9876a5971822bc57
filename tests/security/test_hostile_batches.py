"""Files of batches that were made to harm, and batches of others."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_batches.reading import BadLine, LineReader, RequestLine
from gateway_testing.server import RunningGateway, run_gateway
from tests.plugins.batches.batch_client import Batches, configuration, line

MAX = 20_000


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("batches")
    config = configuration(
        folder / "files", apis={"batches": {"max_lines": 1000, "max_line_bytes": MAX, "max_active": 3}}
    )  # fmt: skip
    with run_gateway(config, folder) as gateway:
        yield gateway


@pytest.fixture
def ada(serving: RunningGateway) -> Iterator[Batches]:
    with serving.client(api_key="key-ada") as client:
        yield Batches(client)


@pytest.fixture
def bob(serving: RunningGateway) -> Iterator[Batches]:
    with serving.client(api_key="key-bob") as client:
        yield Batches(client)


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


HOSTILE = {
    "huge": (b'{"custom_id": "' + b"x" * 3_000_000 + b'"}', "line_too_long"),
    "huge body": (encoded(line("a", "x" * 3_000_000)), "line_too_long"),
    "deep": (b"[" * 19_000, "invalid_json_line"),
    "deep in an unknown field": (b'{"x":' + b"[" * 18_000, "invalid_json_line"),
    "not UTF-8": (b'{"custom_id": "\xff\xfe"}', "invalid_json_line"),
    "not UTF-8 in the body": (
        encoded(line("a", "MARK")).replace(b"MARK", b"\xc3\x28"),
        "invalid_json_line",
    ),
    "UTF-16": (json.dumps(line("a")).encode("utf-16"), "invalid_json_line"),
    "NUL": (b"\x00" * 500, "invalid_json_line"),
    "two values": (encoded(line("a")) * 2, "invalid_json_line"),
    "lone surrogate": (b'{"custom_id": "\\ud800"}', "invalid_json_line"),
    "long id": (encoded(line("x" * 600)), "invalid_custom_id"),
    "another route": (encoded({**line("a"), "url": "/v1/files"}), "invalid_url"),
    "a path trick": (encoded({**line("a"), "url": "/v1/responses/../models"}), "invalid_url"),
    "a query": (encoded({**line("a"), "url": "/v1/responses?x=1"}), "invalid_url"),
    "another host": (encoded({**line("a"), "url": "http://evil.example/v1/responses"}), "invalid_url"),
    "an escaped path": (encoded({**line("a"), "url": "/v1/%72esponses"}), "invalid_url"),
    "hidden stream": (
        encoded(line("a")).replace(b'"model"', b'"stream": false, "stream": true, "model"'),
        "unsupported_parameter",
    ),
}  # fmt: skip


def test_hostile_lines_fail_alone(ada: Batches) -> None:
    content = b"\n".join((*(data for data, _ in HOSTILE.values()), encoded(line("good"))))
    ended = ada.ended(ada.create(content))
    assert ended.status == "completed"
    assert [each["custom_id"] for each in ada.output(ended)] == ["good"]
    found = {each["error"]["line"]: each["error"]["code"] for each in ada.errors(ended)}
    named = dict(zip(HOSTILE, found.values(), strict=True))
    assert named == {name: code for name, (_, code) in HOSTILE.items()}


def test_a_deep_body_is_refused_by_the_api(ada: Batches) -> None:
    deep = encoded(line("deep", "MARK")).replace(b'"MARK"', b"[" * 700 + b"]" * 700)
    ended = ada.ended(ada.create(deep + b"\n" + encoded(line("good"))))
    assert ended.status == "completed"
    [error] = ada.errors(ended)
    status = error["response"]["status_code"] if error["response"] else 400
    assert status == 400


def test_a_million_tiny_lines_fail_the_batch(ada: Batches) -> None:
    ended = ada.ended(ada.create(b"{}\n" * 1_000_000))
    assert (ended.status, ended.errors.data[0].code) == ("failed", "too_many_lines")
    assert ended.request_counts.total == 0


def test_what_a_line_says_cannot_break_the_files_of_results(ada: Batches) -> None:
    text = 'x\n{"id": "batch_req_forged"}\r\n\u2028\u0000'
    lines = [line(f"id\n{text}", text), line("b", model=text)]
    ended = ada.ended(ada.create(lines))
    raw = [
        ada.client.files.content(file).read()
        for file in (ended.output_file_id, ended.error_file_id)
    ]
    assert [each.count(b"\n") for each in raw] == [1, 1]
    [result] = [json.loads(raw[0])]
    assert result["custom_id"] == f"id\n{text}"
    assert result["id"] != "batch_req_forged"


def test_batches_and_files_of_others_do_not_exist(ada: Batches, bob: Batches) -> None:
    made = ada.ended(ada.create([line("a")]))
    for use in (bob.client.batches.retrieve, bob.client.batches.cancel):
        with pytest.raises(openai.NotFoundError) as raised:
            use(made.id)
        assert raised.value.code == "batch_not_found"
    assert made.id not in [each.id for each in bob.client.batches.list()]
    with pytest.raises(openai.NotFoundError):
        bob.client.batches.list(after=made.id)
    for file in (made.input_file_id, made.output_file_id):
        with pytest.raises(openai.NotFoundError):
            bob.client.batches.create(
                input_file_id=file, endpoint="/v1/responses", completion_window="24h"
            )
    with pytest.raises(openai.NotFoundError):
        bob.client.files.content(made.output_file_id)


def test_a_line_cannot_read_what_belongs_to_others(ada: Batches, bob: Batches) -> None:
    """Nor can it name a principal or a key: it has no headers."""
    secret = bob.client.responses.create(model="m", input="secret")
    hostile = {
        **line("a", previous_response_id=secret.id),
        "headers": {"authorization": "Bearer key-bob"},
        "owner": "bob",
    }
    ended = ada.ended(ada.create([hostile, line("b")]))
    [error] = ada.errors(ended)
    assert error["response"]["status_code"] in (400, 404)
    assert "not found" in error["response"]["body"]["error"]["message"]


def test_unfinished_batches_are_bounded_for_each_key(ada: Batches) -> None:
    made = [ada.create([line("a", "too much")]) for _ in range(3)]
    with pytest.raises(openai.BadRequestError) as raised:
        ada.create([line("a")])
    assert raised.value.code == "too_many_batches"
    for each in made:
        ada.ended(ada.client.batches.cancel(each.id))
    ada.ended(ada.create([line("a")]))


@pytest.mark.parametrize("name", ["..%2F..%2Fetc%2Fpasswd", "%00", "batch_'; DROP TABLE batches; --", "x" * 5000])  # fmt: skip
def test_no_id_is_more_than_an_unknown_one(serving: RunningGateway, name: str) -> None:
    for method, path in (("GET", name), ("POST", f"{name}/cancel")):
        answer = httpx.request(
            method,
            f"{serving.base_url}/batches/{path}",
            headers={"authorization": "Bearer key-ada"},
        )
        assert answer.status_code == 404, answer.text


def test_the_scope_of_internal_requests_cannot_be_sent(serving: RunningGateway) -> None:
    """What makes a request an internal one is not a header."""
    answer = httpx.get(
        f"{serving.base_url}/batches",
        headers={"gateway.internal_caller": "ada", "gateway-internal-caller": "ada"},
    )
    assert answer.status_code == 401


def test_many_fields_of_a_line_are_not_kept() -> None:
    data = b"{" + b",".join(b'"%d":1' % n for n in range(500_000)) + b"}\n"
    reader = LineReader(BytesIO(data), endpoint="/v1/responses", max_line_bytes=8_000_000)
    tracemalloc.start()
    try:
        [bad] = reader.read()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(bad, BadLine)
    assert peak < 5 * len(data)


@given(st.binary(max_size=400), st.integers(min_value=16, max_value=300))
def test_any_bytes_are_lines_of_which_none_is_lost(data: bytes, most: int) -> None:
    reader = LineReader(BytesIO(data), endpoint="/v1/responses", max_line_bytes=most)
    read: list[RequestLine | BadLine] = []
    while found := reader.read():
        read += found
    written = {
        number
        for number, each in enumerate(data.split(b"\n"), start=1)
        if each.strip() and (number > 1 or each.strip() != b"\xef\xbb\xbf")
    }
    numbers = [each.number for each in read]
    assert numbers == sorted(numbers)
    # A line of nothing but spaces may be longer than the limit.
    assert written <= set(numbers)


@given(st.lists(st.text(min_size=1, max_size=20), max_size=20), st.sampled_from(["\n", "\r\n"]))
def test_what_was_written_is_read(ids: list[str], end: str) -> None:
    lines = [line(each, each) for each in ids]
    content = end.join(json.dumps(each, ensure_ascii=False) for each in lines).encode()
    reader = LineReader(BytesIO(content), endpoint="/v1/responses", max_line_bytes=10_000)
    read: list[Any] = []
    while found := reader.read():
        read += found
    assert [each.custom_id for each in read] == ids
    assert [json.loads(each.body) for each in read] == [each["body"] for each in lines]


def test_keys_of_the_files_are_hashes(tmp_path: Path) -> None:
    """What is stored of who made a batch has no key."""
    config = configuration(tmp_path / "files")
    with run_gateway(config, tmp_path) as gateway, gateway.client(api_key="key-ada") as client:
        Batches(client).ended(Batches(client).create([line("a")]))
    stored = b"".join(each.read_bytes() for each in (tmp_path / "files").iterdir())
    assert b'"ada"' in stored
    assert b"key-ada" not in stored
    assert hashlib.sha256(b"key-ada").hexdigest().encode() not in stored
