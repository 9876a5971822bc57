"""/v1/uploads: files that are sent in parts, by the official SDK."""

from __future__ import annotations

import asyncio
import hashlib
import io
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types import Upload
from openai.types.uploads import UploadPart

from gateway_files.config import FilesConfig
from gateway_files.files import DATABASE, open_files
from gateway_files.uploads import CompleteUpload, CreateUpload, ExpiresAfter
from gateway_testing.server import RunningGateway, run_gateway

CONTENT = bytes(range(256)) * 3000
ASKED: Any = {"filename": "a.bin", "mime_type": "text/plain", "purpose": "user_data"}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {
        "models": {"m": {"engine": "scripted", "parser": "qwen3"}},
        "resources": {"files": {"max_file_bytes": 3_000_000}},
    }
    with run_gateway(config, tmp_path_factory.mktemp("uploads")) as gateway:
        yield gateway


@pytest.fixture
def client(serving: RunningGateway) -> Iterator[Any]:
    with serving.client() as client:
        yield client


def test_the_sdk_sends_a_file_in_parts(client: Any, tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    path.write_bytes(CONTENT)
    md5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
    made = client.uploads.upload_file_chunked(
        file=path, mime_type="text/plain", purpose="user_data", part_size=300_000, md5=md5
    )
    Upload.model_validate_json(made.model_dump_json(), strict=True)
    assert (made.status, made.filename, made.bytes) == ("completed", "large.bin", len(CONTENT))
    assert made.file == client.files.retrieve(made.file.id)
    assert client.files.content(made.file.id).read() == CONTENT
    empty = client.uploads.upload_file_chunked(
        file=b"", filename="e.txt", bytes=0, mime_type="text/plain", purpose="user_data"
    )
    assert client.files.content(empty.file.id).read() == b""


def test_parts_are_joined_as_the_request_orders_them(client: Any) -> None:
    begun = client.uploads.create(
        bytes=6, **ASKED, expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert (begun.status, begun.file) == ("pending", None)
    assert begun.expires_at == begun.created_at + 3600
    last, first, lost = (
        client.uploads.parts.create(begun.id, data=data) for data in (b"def", b"abc", b"abc")
    )
    UploadPart.model_validate_json(last.model_dump_json(), strict=True)
    assert lost.upload_id == begun.id
    with pytest.raises(openai.BadRequestError, match="The MD5 of the parts") as raised:
        client.uploads.complete(begun.id, part_ids=[first.id, last.id], md5="0" * 32)
    assert raised.value.param == "md5"
    made = client.uploads.complete(begun.id, part_ids=[first.id, last.id])
    assert client.files.content(made.file.id).read() == b"abcdef"
    assert made.file.expires_at == made.file.created_at + 3600
    assert client.uploads.complete(begun.id, part_ids=[], md5="x") == made, "a repeated request"
    client.files.delete(made.file.id)
    assert client.uploads.complete(begun.id, part_ids=[]).file is None
    for end in (
        lambda: client.uploads.cancel(begun.id),
        lambda: client.uploads.parts.create(begun.id, data=b"g"),
    ):
        with pytest.raises(openai.BadRequestError, match="completed already"):
            end()


def test_a_cancelled_upload_takes_nothing_more(client: Any) -> None:
    begun = client.uploads.create(bytes=3, **ASKED)
    part = client.uploads.parts.create(begun.id, data=b"abc").id
    assert client.uploads.cancel(begun.id).status == "cancelled"
    assert client.uploads.cancel(begun.id).status == "cancelled", "a repeated request"
    for use in (
        lambda: client.uploads.complete(begun.id, part_ids=[part]),
        lambda: client.uploads.parts.create(begun.id, data=b"abc"),
    ):
        with pytest.raises(openai.BadRequestError, match="cancelled already"):
            use()


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"bytes": None}, "bytes"),
        ({"bytes": -1}, "bytes"),
        ({"bytes": 3_000_001}, "bytes"),
        ({"bytes": "many"}, "bytes"),
        ({"filename": "../\n"}, "filename"),
        ({"mime_type": None}, "mime_type"),
        ({"purpose": "fun"}, "purpose"),
        ({"expires_after": {"anchor": "created_at", "seconds": 5}}, "expires_after.seconds"),
    ],
)
def test_a_bad_beginning_is_refused(serving: Any, changed: Any, param: str) -> None:
    body = {"bytes": 3, **ASKED, **changed}
    sent = {key: value for key, value in body.items() if value is not None}
    answer = httpx.post(f"{serving.base_url}/uploads", json=sent, timeout=60)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


@pytest.mark.parametrize(
    ("part_ids", "param", "said"),
    [
        (["b", "nothing"], "part_ids[1]", "no part 'nothing'"),
        (["b", "b"], "part_ids", "names a part twice"),
        (["b"], "part_ids", "have 3 bytes together, but the upload was created with 6"),
        (["x"] * 1001, "part_ids", "1000"),
    ],
)
def test_a_bad_end_is_refused(client: Any, part_ids: list[str], param: str, said: str) -> None:
    begun = client.uploads.create(bytes=6, **ASKED)
    part = client.uploads.parts.create(begun.id, data=b"abc").id
    with pytest.raises(openai.BadRequestError, match=said) as raised:
        client.uploads.complete(begun.id, part_ids=[part if e == "b" else e for e in part_ids])
    assert raised.value.param == param


@pytest.mark.parametrize(
    ("form", "status", "code"),
    [
        ({"files": {"file": ("a", b"abc")}}, 400, "missing_required_parameter"),
        ({"files": {"data": ("a", b"")}}, 400, "empty_part"),
        ({"files": {"data": ("a", b"abcd")}}, 413, "part_too_large"),
        ({"files": {"data": ("a", b"x" * 100_000)}}, 413, "part_too_large"),
        ({"json": {"data": "abc"}}, 415, "unsupported_media_type"),
    ],
)
def test_a_bad_part_is_refused(
    serving: Any, client: Any, form: Any, status: int, code: str
) -> None:
    begun = client.uploads.create(bytes=3, **ASKED)
    answer = httpx.post(f"{serving.base_url}/uploads/{begun.id}/parts", **form, timeout=60)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text


@settings(max_examples=20, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=9), max_size=5), st.randoms())
def test_any_parts_in_any_order_make_the_file(parts: list[bytes], random: Any) -> None:
    content = b"".join(parts)

    async def run() -> None:
        async with open_files(FilesConfig()) as files:
            asked = CreateUpload(
                bytes=len(content), filename="a", mime_type="x/y", purpose="vision"
            )
            begun = await files.uploads.create("ada", asked)
            ids: dict[int, str] = {}
            for index in random.sample(range(len(parts)), len(parts)):
                added = await files.uploads.add("ada", begun.id, io.BytesIO(parts[index]))
                ids[index] = added.id
            end = CompleteUpload(
                part_ids=[ids[index] for index in range(len(parts))],
                md5=hashlib.md5(content, usedforsecurity=False).hexdigest().upper(),
            )
            made = await files.uploads.complete("ada", begun.id, end)
            assert made.file is not None
            assert await files.read("ada", made.file.id, max_bytes=100) == content

    asyncio.run(run())


async def _one_file(folder: Path) -> str:
    async with open_files(FilesConfig(path=str(folder))) as files:
        asked = CreateUpload(
            bytes=3,
            filename="a",
            mime_type="x/y",
            purpose="vision",
            expires_after=ExpiresAfter(anchor="created_at", seconds=3600),
        )
        begun = await files.uploads.create("", asked)
        added = await files.uploads.add("", begun.id, io.BytesIO(b"abc"))
        made = await files.uploads.complete("", begun.id, CompleteUpload(part_ids=[added.id]))
        assert made.file is not None
        return made.file.id


def test_a_folder_of_an_earlier_version_is_kept(tmp_path: Path) -> None:
    file_id = asyncio.run(_one_file(tmp_path))
    with closing(sqlite3.connect(tmp_path / DATABASE)) as database:
        for table in ("upload_contents", "upload_parts", "uploads"):
            database.execute(f"DROP TABLE {table}")
        database.execute("PRAGMA user_version = 1")
    asyncio.run(_one_file(tmp_path))

    async def read() -> bytes:
        async with open_files(FilesConfig(path=str(tmp_path))) as files:
            return await files.read("", file_id, max_bytes=3)

    assert asyncio.run(read()) == b"abc"
