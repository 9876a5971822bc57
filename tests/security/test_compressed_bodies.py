"""Compressed request bodies: what a client can make of few bytes is bounded."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import InvalidRequest, PayloadTooLarge
from gateway.http.compressed import MAX_PARTS, decompressed
from gateway_testing.server import run_gateway

LIMIT = 300_000
PACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}
BODY = {"model": "m", "input": "x"}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    config: dict[str, Any] = {
        "models": {"m": {"engine": "scripted"}},
        "server": {"max_body_bytes": LIMIT},
    }
    with (
        run_gateway(config, tmp_path_factory.mktemp("packed")) as running,
        httpx.Client(base_url=running.base_url, timeout=60) as client,
    ):
        yield client


def post(http: httpx.Client, body: bytes, coding: str, path: str = "/responses") -> httpx.Response:
    headers = {"content-type": "application/json", "content-encoding": coding}
    return http.post(path, content=body, headers=headers)


def unpacked(body: bytes, coding: str, limit: int = LIMIT) -> bytes:
    return asyncio.run(decompressed(body, coding, limit))


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "zstd", "GZIP"])
def test_compressed_requests_are_answered_as_any(http: httpx.Client, coding: str) -> None:
    pack = PACK["zstd" if coding == "zstd" else "gzip"]
    for more in ({}, {"client_metadata": {"a": "word " * 50_000}}):
        answer = post(http, pack(json.dumps({**BODY, **more}).encode()), coding)
        assert answer.status_code == 200
        assert answer.json()["output"][0]["content"][0]["text"] == "x"
    messages = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
    assert post(http, pack(json.dumps(messages).encode()), coding, "/messages").status_code == 200


@pytest.mark.parametrize(
    "coding", ["br", "deflate", "gzip, gzip", "gzip, identity", "compress", "x" * 5000]
)
def test_other_codings_are_a_415_that_names_those_there_are(
    http: httpx.Client, coding: str
) -> None:
    answer = post(http, b"{}", coding)
    assert answer.status_code == 415
    assert answer.headers["accept-encoding"] == "gzip, zstd"
    assert answer.json()["error"]["code"] == "unsupported_media_type"
    assert len(answer.text) < 500


@pytest.mark.parametrize("coding", PACK)
def test_a_bomb_is_a_413(http: httpx.Client, coding: str) -> None:
    bomb = PACK[coding](b" " * 200_000_000)
    assert len(bomb) < LIMIT
    answer = post(http, bomb, coding)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "payload_too_large"
    assert post(http, PACK[coding](json.dumps(BODY).encode()), coding).status_code == 200


@pytest.mark.parametrize("coding", PACK)
def test_a_bomb_takes_no_more_memory_than_the_limit(coding: str) -> None:
    bomb = PACK[coding](b" " * 100_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooLarge):
            unpacked(bomb, coding)
        assert tracemalloc.get_traced_memory()[1] < 20 * LIMIT
    finally:
        tracemalloc.stop()


def test_a_zstd_window_beyond_eight_mebibytes_is_refused() -> None:
    options = {int(zstd.CompressionParameter.window_log): 27}
    packer = zstd.ZstdCompressor(options=options)
    large = packer.compress(b"x" * 100, zstd.ZstdCompressor.FLUSH_BLOCK) + packer.flush()
    with pytest.raises(InvalidRequest):
        unpacked(large, "zstd")


@pytest.mark.parametrize("coding", PACK)
def test_several_parts_are_read_up_to_a_bound(coding: str) -> None:
    part = PACK[coding](b"ab")
    assert unpacked(part * MAX_PARTS, coding) == b"ab" * MAX_PARTS
    with pytest.raises(InvalidRequest):
        unpacked(part * (MAX_PARTS + 1), coding)
    with pytest.raises(InvalidRequest):
        unpacked(part + b"rubbish", coding)


@pytest.mark.parametrize("coding", PACK)
def test_what_is_damaged_or_cut_is_a_400(http: httpx.Client, coding: str) -> None:
    whole = PACK[coding](json.dumps(BODY).encode())
    for wrong in (b"rubbish", whole[:-5], whole[:3], b"\0" * 100, zlib.compress(b"{}")):
        answer = post(http, wrong, coding)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "invalid_encoding"
    assert post(http, b"", coding).status_code == 400


@given(st.binary(max_size=200_000), st.sampled_from(sorted(PACK)))
def test_any_body_comes_back(body: bytes, coding: str) -> None:
    packed = PACK[coding](body)
    assert unpacked(packed, coding) == body
    assert unpacked(packed, coding, limit=len(body)) == body
    if body:
        with pytest.raises(PayloadTooLarge):
            unpacked(packed, coding, limit=len(body) - 1)


@given(st.binary(max_size=300), st.sampled_from(sorted(PACK)))
def test_rubbish_is_never_another_error(body: bytes, coding: str) -> None:
    with suppress(InvalidRequest, PayloadTooLarge):
        unpacked(body, coding, limit=1000)
