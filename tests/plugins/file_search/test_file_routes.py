"""/v1/vector_stores, and the files in them, by the official SDK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from litestar.testing import TestClient
from openai.types import VectorStore

from gateway.config import Config, ModelConfig, ServerConfig
from gateway.http.app import create_app
from gateway.plugins.loading import load_plugins
from gateway_file_search import library

TEXT = b"one two three"


def raw(searching: Any, method: str, path: str, **more: Any) -> httpx.Response:
    """A request of Ada's."""
    headers = {"authorization": "Bearer key-ada", **more.pop("headers", {})}
    return httpx.request(method, f"{searching.base_url}{path}", headers=headers, **more)


def test_a_vector_store_is_made_changed_listed_and_deleted(ada: Any) -> None:
    file = ada.files.create(file=("a.txt", TEXT), purpose="user_data")
    made = ada.vector_stores.create(
        name="one", file_ids=[file.id], metadata={"a": "b"}, expires_after={"anchor": "last_active_at", "days": 2},
        chunking_strategy={"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 0}},
    )  # fmt: skip
    assert isinstance(made, VectorStore)
    assert made.file_counts.total == 1
    assert made.expires_at == made.last_active_at + 2 * 86_400
    ada.vector_stores.files.poll(file.id, vector_store_id=made.id)
    changed = ada.vector_stores.update(made.id, name="two", metadata={"c": "d"}, expires_after=None)
    assert (changed.name, changed.metadata, changed.expires_after) == ("two", {"c": "d"}, None)
    assert (changed.status, changed.usage_bytes, changed.file_counts.completed) == ("completed", 13, 1)  # fmt: skip
    assert ada.vector_stores.retrieve(made.id) == changed
    assert ada.vector_stores.list(limit=1).data == [changed]
    assert ada.vector_stores.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        ada.vector_stores.retrieve(made.id)
    assert ada.files.retrieve(file.id) == file, "the file stays"


def test_the_files_of_a_store_have_attributes_text_and_a_state(ada: Any) -> None:
    store = ada.vector_stores.create()
    file = ada.files.create(file=("a.txt", TEXT), purpose="user_data")
    added = ada.vector_stores.files.create_and_poll(
        file.id, vector_store_id=store.id, attributes={"a": 1, "b": True, "c": "x"}
    )
    assert (added.id, added.status, added.last_error) == (file.id, "completed", None)
    assert added.chunking_strategy.static.max_chunk_size_tokens == 800
    changed = ada.vector_stores.files.update(file.id, vector_store_id=store.id, attributes={"d": 2})
    assert changed.attributes == {"d": 2}
    [text] = ada.vector_stores.files.content(file.id, vector_store_id=store.id).data
    assert (text.type, text.text) == ("text", "one two three")
    assert ada.vector_stores.files.list(store.id, filter="failed").data == []
    assert ada.vector_stores.files.list(store.id, filter="completed").data == [changed]
    assert ada.vector_stores.search(store.id, query="two").data[0].attributes == {"d": 2}
    assert ada.vector_stores.files.delete(file.id, vector_store_id=store.id).deleted
    assert ada.vector_stores.search(store.id, query="two").data == []
    with pytest.raises(openai.NotFoundError):
        ada.vector_stores.files.retrieve(file.id, vector_store_id=store.id)


def test_a_deleted_file_is_found_no_more(ada: Any) -> None:
    store = ada.vector_stores.create()
    added = ada.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=("a.txt", TEXT))
    assert ada.vector_stores.search(store.id, query="two").data
    ada.files.delete(added.id)
    assert ada.vector_stores.search(store.id, query="two").data == []
    assert ada.vector_stores.retrieve(store.id).file_counts.total == 0


def test_a_file_that_is_added_again_is_read_again(ada: Any) -> None:
    store = ada.vector_stores.create()
    added = ada.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=("a.txt", TEXT))
    ada.vector_stores.files.create_and_poll(added.id, vector_store_id=store.id, attributes={"n": 2})
    [hit] = ada.vector_stores.search(store.id, query="two").data
    assert hit.attributes == {"n": 2}


def test_batches_are_read_listed_and_cancelled(ada: Any) -> None:
    store = ada.vector_stores.create()
    batch = ada.vector_stores.file_batches.upload_and_poll(
        store.id, files=[(f"{n}.txt", b"word%d" % n) for n in range(5)] + [("bad.bin", b"\0")]
    )
    assert (batch.status, batch.file_counts.completed, batch.file_counts.failed) == ("completed", 5, 1)  # fmt: skip
    pages = ada.vector_stores.file_batches.list_files(batch.id, vector_store_id=store.id, limit=4, order="asc")  # fmt: skip
    everything = list(pages)
    assert len(everything) == 6
    before = ada.vector_stores.files.list(store.id, before=everything[3].id, limit=2, order="asc")
    assert [file.id for file in before.data] == [file.id for file in everything[1:3]]
    [failed] = ada.vector_stores.files.list(store.id, filter="failed").data
    assert failed.last_error.code == "unsupported_file"
    assert ada.vector_stores.file_batches.cancel(batch.id, vector_store_id=store.id).status == "completed"  # fmt: skip
    ids = [file.id for file in everything[:2]]
    again = ada.vector_stores.file_batches.create_and_poll(
        store.id, files=[{"file_id": ids[0], "attributes": {"n": 1}}, {"file_id": ids[1]}]
    )
    assert again.file_counts.total == 2
    assert ada.vector_stores.files.retrieve(ids[0], vector_store_id=store.id).attributes == {"n": 1}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("", {"name": 5}, "name"),
        ("", {"file_ids": ["file-none"]}, "file_ids[0]"),
        ("", {"expires_after": {"anchor": "last_active_at", "days": 0}}, "expires_after.days"),
        ("", {"expires_after": {"anchor": "never", "days": 1}}, "expires_after.anchor"),
        ("", {"metadata": {"a": 1}}, "metadata.a"),
        ("", {"chunking_strategy": {"type": "static", "static": {"max_chunk_size_tokens": 99, "chunk_overlap_tokens": 0}}}, "chunking_strategy.static.max_chunk_size_tokens"),
        ("/{}/files", {}, "file_id"),
        ("/{}/files", {"file_id": "file-none"}, "file_id"),
        ("/{}/files", {"file_id": "x", "attributes": {"a": []}}, "attributes.a"),
        ("/{}/files", {"file_id": "x", "chunking_strategy": {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 51}}}, "chunking_strategy.static.chunk_overlap_tokens"),
        ("/{}/files", {"file_id": "x", "chunking_strategy": {"type": "magic"}}, "chunking_strategy.type"),
        ("/{}/file_batches", {}, "file_ids"),
        ("/{}/file_batches", {"file_ids": [], "files": []}, "file_ids"),
        ("/{}/file_batches", {"files": [{"file_id": "file-none"}]}, "files[0].file_id"),
        ("/{}/search", {}, "query"),
        ("/{}/search", {"query": " "}, "query"),
        ("/{}/search", {"query": "x", "max_num_results": 0}, "max_num_results"),
        ("/{}/search", {"query": "x", "filters": {"type": "eq", "key": "a"}}, "filters.value"),
    ],
)  # fmt: skip
def test_a_bad_body_is_refused_with_its_parameter(
    searching: Any, towers: str, path: str, body: Any, param: str
) -> None:
    answer = raw(searching, "POST", "/vector_stores" + path.format(towers), json=body)
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["code"]


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "filter=odd"])
def test_a_bad_query_is_refused_with_its_parameter(searching: Any, towers: str, query: str) -> None:
    answer = raw(searching, "GET", f"/vector_stores/{towers}/files?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == query.partition("=")[0]


def test_what_one_key_stores_no_other_sees(ada: Any, bob: Any, towers: str) -> None:
    mine = ada.vector_stores.files.list(towers).data[0].id
    stores, files = bob.vector_stores, bob.files
    his = stores.create()
    for use in (
        lambda: files.retrieve(mine),
        lambda: files.content(mine),
        lambda: files.delete(mine),
        lambda: files.list(after=mine),
        lambda: stores.retrieve(towers),
        lambda: stores.update(towers, name="mine"),
        lambda: stores.delete(towers),
        lambda: stores.search(towers, query="tower"),
        lambda: stores.files.list(towers),
        lambda: stores.files.retrieve(mine, vector_store_id=towers),
        lambda: stores.files.content(mine, vector_store_id=towers),
        lambda: stores.files.create(his.id, file_id=mine),
        lambda: stores.file_batches.create(his.id, file_ids=[mine]),
        lambda: stores.create(file_ids=[mine]),
    ):
        with pytest.raises(openai.NotFoundError):
            use()
    assert bob.files.list().data == []
    assert [store.id for store in stores.list()] == [his.id], "nothing half made is left"


def test_without_a_key_nothing_is_told(searching: Any) -> None:
    answer = httpx.get(f"{searching.base_url}/files")
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    unknown = raw(searching, "GET", "/vector_stores/x/y/z")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_url")


@pytest.mark.slow
def test_limits_are_kept_and_told(gateway_server: Any) -> None:
    tools = {"file_search": {"max_vector_stores": 1, "max_files_per_store": 1}}
    resources = {"files": {"max_files": 2, "max_total_bytes": 20}}
    gateway = gateway_server({"tools": tools, "resources": resources, **_model()})
    with gateway.client() as client:
        first = client.files.create(file=("a", b"x" * 15), purpose="vision")
        with pytest.raises(openai.BadRequestError, match="limit of 20 bytes"):
            client.files.create(file=("b", b"x" * 6), purpose="vision")
        second = client.files.create(file=("b", b"x" * 5), purpose="vision")
        with pytest.raises(openai.BadRequestError, match="2 files"):
            client.files.create(file=("c", b""), purpose="vision")
        client.vector_stores.create(file_ids=[first.id])
        store = client.vector_stores.list().data[0]
        with pytest.raises(openai.BadRequestError, match="1 vector stores"):
            client.vector_stores.create()
        with pytest.raises(openai.BadRequestError, match="at most 1 files"):
            client.vector_stores.files.create(store.id, file_id=second.id)
        assert client.vector_stores.retrieve(store.id).file_counts.total == 1, "undone"


def test_a_folder_outlives_its_server_and_is_shared(gateway_server: Any, tmp_path: Path) -> None:
    kept = {"files": {"path": str(tmp_path / "kept")}}
    config = {"tools": {"file_search": {}}, "resources": kept, **_model()}
    one, other = gateway_server(config), gateway_server(config)
    with one.client() as first, other.client() as second:
        store = first.vector_stores.create()
        added = second.vector_stores.files.upload_and_poll(
            vector_store_id=store.id, file=("a.txt", TEXT)
        )
        assert added.status == "completed"
        assert [hit.filename for hit in first.vector_stores.search(store.id, query="two")] == ["a.txt"]  # fmt: skip


def test_the_routes_come_with_the_tool_and_not_without(gateway_server: Any) -> None:
    without = gateway_server(_model())
    assert httpx.get(f"{without.base_url}/files").status_code == 404
    named = gateway_server({"tools": {"file_search": {}}, "server": {"apis": []}, **_model()})
    assert httpx.get(f"{named.base_url}/files").status_code == 404


def test_the_routes_alone_are_a_mistake_that_is_told(gateway_server: Any) -> None:
    with pytest.raises(
        library.ConfigurationError, match=r"server.apis\[0\]: .* add a table \[tools.file_search\]"
    ):
        gateway_server({"server": {"apis": ["file_search"]}, **_model()})


def test_an_app_for_any_server_has_the_files_too() -> None:
    config = Config(
        server=ServerConfig(),
        models={"m": ModelConfig(engine="scripted")},
        tools={"file_search": {}},
    )
    with TestClient(create_app(config, load_plugins()), base_url="http://127.0.0.1") as client:
        made = client.post("/v1/files", files={"file": ("a.txt", TEXT)}, data={"purpose": "vision"})
        assert made.json()["bytes"] == len(TEXT)


def _model() -> dict[str, Any]:
    return {"models": {"m": {"engine": "scripted", "parser": "qwen3"}}}
