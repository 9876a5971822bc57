"""/v1/files by the official SDK, without any tool."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import openai
import pytest
from openai.types import FileObject

from gateway_files.config import FilesConfig
from gateway_testing.server import RunningGateway, run_gateway

ROOT = Path(__file__).parents[3]
README = (ROOT / "plugins" / "files" / "README.md").read_text(encoding="utf-8")
TEXT = b"one two three"
MODELS = {"m": {"engine": "scripted", "parser": "qwen3"}}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with keys of Ada and Bob, for all tests."""
    keys = [
        {"name": name, "sha256": hashlib.sha256(f"key-{name}".encode()).hexdigest()}
        for name in ("ada", "bob")
    ]
    config = {
        "models": MODELS,
        "server": {"api_keys": keys},
        "resources": {"files": {"max_file_bytes": 3_000_000}},
    }
    with run_gateway(config, tmp_path_factory.mktemp("files")) as gateway:
        yield gateway


@pytest.fixture
def ada(serving: RunningGateway) -> Iterator[Any]:
    with serving.client(api_key="key-ada") as client:
        yield client


@pytest.fixture
def bob(serving: RunningGateway) -> Iterator[Any]:
    with serving.client(api_key="key-bob") as client:
        yield client


def raw(serving: Any, method: str, path: str, **more: Any) -> httpx.Response:
    """A request of Ada's."""
    headers = {"authorization": "Bearer key-ada", **more.pop("headers", {})}
    return httpx.request(method, f"{serving.base_url}{path}", headers=headers, **more)


def test_a_file_is_kept_listed_read_and_deleted(ada: Any) -> None:
    made = ada.files.create(file=("päper.txt", TEXT), purpose="user_data")
    assert isinstance(made, FileObject)
    assert (made.filename, made.bytes, made.purpose, made.expires_at) == ("päper.txt", 13, "user_data", None)  # fmt: skip
    assert abs(made.created_at - time.time()) < 60
    assert ada.files.retrieve(made.id) == made
    assert ada.files.content(made.id).read() == TEXT
    assert made in list(ada.files.list())
    assert ada.files.delete(made.id).deleted
    for use in (ada.files.retrieve, ada.files.content, ada.files.delete):
        with pytest.raises(openai.NotFoundError):
            use(made.id)


def test_a_large_file_comes_back_as_it_was(ada: Any) -> None:
    content = bytes(range(256)) * 8200 + b"end"
    made = ada.files.create(file=("large.bin", content), purpose="assistants")
    assert made.bytes == len(content)
    answer = ada.files.content(made.id)
    assert answer.read() == content
    assert answer.response.headers["content-type"] == "application/octet-stream"
    ada.files.delete(made.id)


def test_lists_are_paged_ordered_and_chosen_from(ada: Any) -> None:
    made = [
        ada.files.create(file=(f"{n}.txt", TEXT), purpose="batch" if n == 1 else "vision").id
        for n in range(4)
    ]
    pages = ada.files.list(limit=2, order="asc", purpose="vision")
    assert (pages.has_more, [file.id for file in pages.data]) == (True, [made[0], made[2]])
    assert [file.id for file in pages] == [made[0], made[2], made[3]], "all pages"
    latest = ada.files.list(limit=1).data[0].id
    assert latest == made[3], "the newest first, where nothing is said"
    assert [f.id for f in ada.files.list(after=made[3], limit=3)][:3] == made[2::-1]
    for file_id in made:
        ada.files.delete(file_id)


def test_a_file_lives_as_long_as_it_was_asked_to(ada: Any) -> None:
    made = ada.files.create(
        file=("a.txt", TEXT), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600}
    )  # fmt: skip
    assert made.expires_at == made.created_at + 3600
    with pytest.raises(openai.BadRequestError, match="from 3600 to 2592000") as raised:
        ada.files.create(
            file=("a.txt", TEXT), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 5}
        )  # fmt: skip
    assert raised.value.param == "expires_after.seconds"


@pytest.mark.parametrize(
    ("form", "status", "param"),
    [
        ({"data": {"purpose": "user_data"}, "files": {"other": ("a", b"x")}}, 400, "file"),
        ({"files": {"file": ("a.txt", b"x")}}, 400, "purpose"),
        ({"files": {"file": ("a.txt", b"x")}, "data": {"purpose": "fun"}}, 400, "purpose"),
        ({"files": {"file": ("a.txt", b"x" * 3_000_001)}, "data": {"purpose": "vision"}}, 413, "file"),
        ({"files": {"file": ("a.txt", b"x" * 4_000_000)}, "data": {"purpose": "vision"}}, 413, None),
        ({"files": {"file": ("../..", b"x")}, "data": {"purpose": "x" * 5000}}, 400, "purpose"),
        ({"files": [("file", ("a", b"x")), ("file", ("b", b"y"))], "data": {"purpose": "vision"}}, 400, "file"),
        ({"files": [("purpose", (None, b"vision")), ("purpose", (None, b"vision")), ("file", ("a", b"x"))]}, 400, "purpose"),
        ({"json": {"purpose": "vision"}}, 415, None),
        ({"content": b"nothing", "headers": {"content-type": "multipart/form-data"}}, 400, None),
        ({"content": b"nothing", "headers": {"content-type": "multipart/form-data; boundary=x"}}, 400, None),
        ({"content": b"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\ncut", "headers": {"content-type": "multipart/form-data; boundary=x"}}, 400, None),
    ],
)  # fmt: skip
def test_a_bad_form_is_refused(serving: Any, form: Any, status: int, param: str | None) -> None:
    answer = raw(serving, "POST", "/files", **form)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert error["message"]


def test_a_name_is_the_last_part_of_a_path(ada: Any) -> None:
    assert (
        ada.files.create(file=("../../etc/pass\nwd", TEXT), purpose="vision").filename == "passwd"
    )


def test_what_one_key_stores_no_other_sees(ada: Any, bob: Any) -> None:
    mine = ada.files.create(file=("a.txt", TEXT), purpose="user_data").id
    for use in (
        lambda: bob.files.retrieve(mine),
        lambda: bob.files.content(mine),
        lambda: bob.files.delete(mine),
        lambda: bob.files.list(after=mine),
    ):
        with pytest.raises(openai.NotFoundError):
            use()
    assert bob.files.list().data == []
    assert ada.files.delete(mine).deleted


def test_a_folder_outlives_its_server_and_is_shared(gateway_server: Any, tmp_path: Path) -> None:
    config = {"resources": {"files": {"path": str(tmp_path / "kept")}}, "models": MODELS}
    one, other = gateway_server(config), gateway_server(config)
    with one.client() as first, other.client() as second:
        made = first.files.create(file=("a.txt", TEXT), purpose="user_data")
        assert second.files.content(made.id).read() == TEXT
    with gateway_server(config).client() as third:
        assert third.files.list().data == [made]


def test_there_are_no_files_unless_they_are_asked_for(gateway_server: Any) -> None:
    without = gateway_server({"models": MODELS})
    assert httpx.get(f"{without.base_url}/files").status_code == 404
    named = gateway_server({"models": MODELS, "server": {"apis": ["files"]}})
    assert httpx.get(f"{named.base_url}/files").json()["data"] == []
    unnamed = gateway_server({"models": MODELS, "server": {"apis": []}, "resources": {"files": {}}})
    assert httpx.get(f"{unnamed.base_url}/files").status_code == 404


def test_the_readme_has_each_key_with_its_default() -> None:
    section = README.split("## `[resources.files]`\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE))
    fields = msgspec.structs.fields(FilesConfig)
    assert rows == {
        field.encode_name: f"`{msgspec.json.encode(field.default).decode()}`" for field in fields
    }
    for table in re.findall(r"```toml\n(.*?)```", README, re.DOTALL):
        msgspec.convert(tomllib.loads(table)["resources"]["files"], FilesConfig)


def test_the_plugin_is_found_without_what_is_heavy() -> None:
    code = (
        "import sys; from gateway.plugins.loading import load_plugins; p = load_plugins(); "
        "assert any(o.name == 'files' for o in p.offers('resource')); "
        "print({'lxml', 'pypdfium2', 'sqlite3', 'gateway_files.files'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_an_upload_without_room_for_it_is_a_503(
    serving: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "w+b"))  # noqa: SIM115
    form = {"data": {"purpose": "user_data"}, "files": {"file": ("a.txt", b"x" * 2_000_000)}}
    refused = raw(serving, "POST", "/files", **form)
    assert refused.status_code == 503, refused.text
    assert refused.json()["error"]["code"] == "store_unavailable"
    monkeypatch.undo()
    assert raw(serving, "POST", "/files", **form).status_code == 200
