"""/v1/containers, through the official SDK."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gateway_testing.server import RunningGateway
from tests.waiting import wait_until

KEYS = [
    {"name": name, "sha256": hashlib.sha256((name[0] * 40).encode()).hexdigest()}
    for name in ("alice", "bob")
]


def test_a_container_is_made_found_listed_and_deleted(container_gateway: RunningGateway) -> None:
    with container_gateway.client() as client:
        before = int(time.time())
        made = client.containers.create(
            name="mine",
            expires_after={"anchor": "last_active_at", "minutes": 5},
            memory_limit="1g",
            network_policy={"type": "disabled"},
        )
        assert made.id.startswith("cntr_")
        assert (made.object, made.name, made.status) == ("container", "mine", "running")
        assert (made.expires_after.anchor, made.expires_after.minutes) == ("last_active_at", 5)
        assert made.memory_limit == "1g"
        assert made.network_policy.type == "disabled"
        assert before <= made.created_at <= made.last_active_at <= time.time()
        assert client.containers.retrieve(made.id).to_dict() == made.to_dict()
        assert made.id in [each.id for each in client.containers.list()]
        assert client.containers.delete(made.id) is None
        with pytest.raises(openai.NotFoundError, match="not found"):
            client.containers.retrieve(made.id)
        with pytest.raises(openai.NotFoundError):
            client.containers.delete(made.id)


def test_a_list_has_pages_an_order_and_names(container_gateway: RunningGateway) -> None:
    with container_gateway.client() as client:
        ids = [client.containers.create(name=f"page {n % 2}").id for n in range(5)]
        newest = client.containers.list(limit=2)
        assert [each.id for each in newest.data] == [ids[4], ids[3]]
        assert newest.has_more
        paged = [each.id for each in client.containers.list(limit=2)]
        assert paged[:5] == ids[::-1], "the SDK follows `after`"
        oldest = client.containers.list(order="asc", after=ids[0])
        assert [each.id for each in oldest.data][:4] == ids[1:]
        assert [each.id for each in client.containers.list(name="page 1")] == [ids[3], ids[1]]
        for each in ids:
            client.containers.delete(each)


def test_files_are_put_listed_fetched_and_deleted(container_gateway: RunningGateway) -> None:
    with container_gateway.client() as client:
        container = client.containers.create(name="files").id
        big = bytes(range(256)) * 4096 + b"end"
        first = client.containers.files.create(container, file=("a b.csv", b"1,2\n"))
        second = client.containers.files.create(container, file=("big.bin", big))
        assert first.id.startswith("cfile_")
        assert first.to_dict() == {
            "id": first.id,
            "object": "container.file",
            "created_at": first.created_at,
            "bytes": 4,
            "container_id": container,
            "path": "/mnt/data/a b.csv",
            "source": "user",
        }
        listed = client.containers.files.list(container, order="asc")
        assert [each.id for each in listed] == [first.id, second.id]
        found = client.containers.files.retrieve(second.id, container_id=container)
        assert found.bytes == len(big)
        fetched = client.containers.files.content.retrieve(second.id, container_id=container)
        assert fetched.read() == big
        again = client.containers.files.create(container, file=("a b.csv", b"3"))
        assert again.id == first.id, "a file of the same path takes its place"
        assert client.containers.files.delete(second.id, container_id=container) is None
        assert [each.bytes for each in client.containers.files.list(container)] == [1]
        with pytest.raises(openai.NotFoundError, match="file with id"):
            client.containers.files.content.retrieve(second.id, container_id=container)
        empty = client.containers.files.create(container, file=("empty", b""))
        got = client.containers.files.content.retrieve(empty.id, container_id=container)
        assert got.read() == b""


def test_a_files_content_is_no_page_of_this_server(container_gateway: RunningGateway) -> None:
    with container_gateway.client() as client:
        container = client.containers.create(name="pages").id
        file = client.containers.files.create(
            container, file=("é.html", b"<script>alert(1)</script>")
        )
    url = f"{container_gateway.base_url}/containers/{container}/files/{file.id}/content"
    headers = httpx.get(url).headers
    assert headers["content-type"] == "application/octet-stream"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-disposition"] == "attachment; filename*=UTF-8''%C3%A9.html"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "name", "missing_required_parameter"),
        ({"name": 7}, "name", "invalid_type"),
        ({"name": "x", "expires_after": {"anchor": "created_at", "minutes": 5}}, "expires_after.anchor", "invalid_value"),
        ({"name": "x", "expires_after": {"anchor": "last_active_at", "minutes": 0}}, "expires_after.minutes", "invalid_value"),
        ({"name": "x", "expires_after": {"anchor": "last_active_at", "minutes": 9999}}, "expires_after.minutes", "invalid_value"),
        ({"name": "x", "memory_limit": "64g"}, "memory_limit", "unsupported_parameter"),
        ({"name": "x", "memory_limit": "lots"}, "memory_limit", "unsupported_parameter"),
        ({"name": "x", "skills": [{"type": "skill_reference"}]}, "skills", "unsupported_parameter"),
        ({"name": "x", "network_policy": {"type": "allowlist", "allowed_domains": ["a.b"]}}, "network_policy", "unsupported_parameter"),
        ({"name": "x", "file_ids": "file-1"}, "file_ids", "invalid_type"),
        ({"name": "x", "file_ids": ["file-1"]}, "file_ids", "unsupported_parameter"),
    ],
)  # fmt: skip
def test_what_a_container_cannot_be_is_refused(
    container_gateway: RunningGateway, body: Any, param: str, code: str
) -> None:
    answer = httpx.post(f"{container_gateway.base_url}/containers", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert (error["param"], error["code"]) == (param, code)


@pytest.mark.parametrize(
    ("query", "status", "param"),
    [
        ("limit=0", 400, "limit"),
        ("limit=101", 400, "limit"),
        ("order=up", 400, "order"),
        ("after=cntr_none", 404, "after"),
    ],
)
def test_a_list_that_cannot_be_is_refused(
    container_gateway: RunningGateway, query: str, status: int, param: str
) -> None:
    answer = httpx.get(f"{container_gateway.base_url}/containers?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        ({"files": {"file": ("", b"x")}}, 400, "invalid_value"),
        ({"files": {"file": ("..", b"x")}}, 400, "invalid_value"),
        ({"files": {"file": ("n" * 300, b"x")}}, 400, "invalid_value"),
        ({"files": {"other": ("a", b"x")}}, 400, "missing_required_parameter"),
        ({"content": b"x", "headers": {"content-type": "text/plain"}}, 415, "unsupported_media_type"),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data; boundary=y"}}, 400, "invalid_multipart"),
        ({"json": {}}, 400, "missing_required_parameter"),
        ({"json": {"file_id": "file-1"}}, 400, "unsupported_parameter"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_is_refused(
    container_gateway: RunningGateway, sent: Any, status: int, code: str
) -> None:
    with container_gateway.client() as client:
        container = client.containers.create(name="refused").id
        answer = httpx.post(f"{container_gateway.base_url}/containers/{container}/files", **sent)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert client.containers.files.list(container).data == []


def test_a_path_in_a_files_name_is_left_out(container_gateway: RunningGateway) -> None:
    with container_gateway.client() as client:
        container = client.containers.create(name="paths").id
        made = client.containers.files.create(container, file=("../../etc/passwd", b"x"))
    assert made.path == "/mnt/data/passwd"


def test_what_one_key_has_no_other_sees(start_container: Callable[..., RunningGateway]) -> None:
    gateway = start_container(server={"api_keys": KEYS})
    with gateway.client(api_key="a" * 40) as alice, gateway.client(api_key="b" * 40) as bob:
        container = alice.containers.create(name="hers").id
        file = alice.containers.files.create(container, file=("a", b"x")).id
        his = bob.containers.create(name="his").id
        asks: list[Callable[[], Any]] = [
            lambda: bob.containers.retrieve(container),
            lambda: bob.containers.delete(container),
            lambda: bob.containers.files.list(container),
            lambda: bob.containers.files.create(container, file=("b", b"y")),
            lambda: bob.containers.files.retrieve(file, container_id=container),
            lambda: bob.containers.files.retrieve(file, container_id=his),
            lambda: bob.containers.files.content.retrieve(file, container_id=his),
            lambda: bob.containers.files.delete(file, container_id=his),
            lambda: bob.responses.create(
                model="qwen3",
                input="x",
                tools=[
                    {
                        "type": "shell",
                        "environment": {"type": "container_reference", "container_id": container},
                    }
                ],
            ),
        ]
        for ask in asks:
            with pytest.raises(openai.NotFoundError):
                ask()
        assert [each.id for each in bob.containers.list()] == [his]
        assert [each.id for each in alice.containers.files.list(container)] == [file]


def test_there_are_limits(start_container: Callable[..., RunningGateway]) -> None:
    gateway = start_container(
        max_containers=2, max_files=2, max_disk_bytes=1_048_576, max_total_bytes=1_500_000
    )
    with gateway.client() as client:
        one, two = (client.containers.create(name=name).id for name in "ab")
        with pytest.raises(openai.BadRequestError, match="2 containers, this server's limit"):
            client.containers.create(name="c")
        with pytest.raises(openai.APIStatusError, match="larger than this server's limit") as large:
            client.containers.files.create(one, file=("a", b"x" * 1_048_577))
        assert large.value.status_code == 413
        client.containers.files.create(one, file=("a", b"x" * 1_000_000))
        with pytest.raises(openai.BadRequestError, match="for the files of a container"):
            client.containers.files.create(one, file=("b", b"x" * 100_000))
        client.containers.files.create(one, file=("b", b"x"))
        with pytest.raises(openai.BadRequestError, match="2 files, this server's limit"):
            client.containers.files.create(one, file=("c", b"x"))
        client.containers.files.create(one, file=("b", b"yy"))
        with pytest.raises(openai.BadRequestError, match="for the files of all your containers"):
            client.containers.files.create(two, file=("d", b"x" * 600_000))
        client.containers.delete(one)
        client.containers.files.create(two, file=("d", b"x" * 600_000))


def test_what_is_not_used_expires(
    start_container: Callable[..., RunningGateway], tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    gateway = start_container(path=str(folder), keep_running=1.0)
    with gateway.client() as client:
        container = client.containers.create(name="old").id
        file = client.containers.files.create(container, file=("a", b"x")).id
        with sqlite3.connect(folder / "containers.sqlite3", timeout=60) as database:
            database.execute("UPDATE containers SET active_at = active_at - 1201")
        database.close()
        assert client.containers.retrieve(container).status == "expired"
        assert client.containers.list().data == []
        with pytest.raises(openai.NotFoundError, match="has expired") as gone:
            client.containers.files.content.retrieve(file, container_id=container)
        assert gone.value.code == "container_expired"

        def deleted() -> bool:
            with closing(sqlite3.connect(folder / "containers.sqlite3", timeout=60)) as database:
                [left] = database.execute("SELECT count(*) FROM contents").fetchone()
            return bool(left == 0)

        wait_until(deleted, "its files are deleted")


def test_uploaded_files_are_copied_into_containers(
    start_container: Callable[..., RunningGateway], tmp_path: Path
) -> None:
    gateway = start_container(tools={"file_search": {}}, server={"api_keys": KEYS})
    with gateway.client(api_key="a" * 40) as alice, gateway.client(api_key="b" * 40) as bob:
        data = b"0123456789" * 150_000
        up = alice.files.create(file=("data.txt", data), purpose="user_data").id
        container = alice.containers.create(name="with", file_ids=[up])
        [file] = alice.containers.files.list(container.id).data
        assert (file.path, file.bytes, file.source) == ("/mnt/data/data.txt", len(data), "user")
        got = alice.containers.files.content.retrieve(file.id, container_id=container.id)
        assert got.read() == data
        other = alice.containers.create(name="later").id
        copied = alice.containers.files.create(other, file_id=up)
        assert copied.path == "/mnt/data/data.txt"
        with pytest.raises(openai.NotFoundError) as refused:
            bob.containers.create(name="his", file_ids=[up])
        assert refused.value.param == "file_ids[0]"
        assert bob.containers.list().data == []
        mine = bob.containers.create(name="his").id
        with pytest.raises(openai.NotFoundError) as refused:
            bob.containers.files.create(mine, file_id=up)
        assert refused.value.param == "file_id"
        with pytest.raises(openai.NotFoundError) as refused:
            alice.responses.create(
                model="qwen3",
                input="two commands",
                tools=[
                    {
                        "type": "shell",
                        "environment": {"type": "container_auto", "file_ids": [up, "file-no"]},
                    }
                ],
            )
        assert refused.value.param == "tools[0].environment.file_ids[1]"


def test_processes_with_one_folder_have_the_same_containers(
    start_container: Callable[..., RunningGateway], tmp_path: Path
) -> None:
    gateways = [start_container(path=str(tmp_path / "shared")) for _ in range(2)]
    with gateways[0].client() as here, gateways[1].client() as there:
        container = here.containers.create(name="ours").id
        file = there.containers.files.create(container, file=("a", b"x")).id
        assert [each.id for each in here.containers.files.list(container)] == [file]
        there.containers.delete(container)
        with pytest.raises(openai.NotFoundError):
            here.containers.retrieve(container)


def test_without_a_tool_that_uses_them_there_are_no_routes(
    gateway_server: Callable[..., RunningGateway],
) -> None:
    gateway = gateway_server({"models": {"m": {"engine": "scripted"}}})
    answer = httpx.get(f"{gateway.base_url}/containers")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")


def test_a_key_without_a_tool_for_containers_makes_none(
    start_container: Callable[..., RunningGateway],
) -> None:
    keys = [
        {**KEYS[0], "tools": ["container"]},
        {**KEYS[1], "tools": []},
        {"name": "carol", "sha256": hashlib.sha256(b"c" * 40).hexdigest(), "tools": ["python"]},
    ]
    gateway = start_container(server={"api_keys": keys})
    with gateway.client(api_key="a" * 40) as alice, gateway.client(api_key="b" * 40) as bob:
        container = alice.containers.create(name="hers").id
        for ask in (
            lambda: bob.containers.create(name="his"),
            lambda: bob.containers.files.create(container, file=("b", b"y")),
        ):
            with pytest.raises(openai.PermissionDeniedError, match="may not use containers"):
                ask()
        assert list(bob.containers.list()) == []
        with gateway.client(api_key="c" * 40) as carol:
            made = carol.containers.create(name="carol's").id
            assert carol.containers.files.create(made, file=("a", b"x")).bytes == 1
