"""Gateways whose models search files, and files for them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_testing.server import RunningGateway, run_gateway

FAMILIES = ("harmony", "qwen3")
TOWER = b"# The tower\n\nThe tower has a height of 312 metres. It was opened in 1931.\n"
BRIDGE = b"<title>Bridge</title><p>The bridge is 99 metres <b>long</b>.</p><script>tower()</script>"


def rules() -> list[dict[str, Any]]:
    """What the models do: search and answer, or what the user's words say."""

    def search(*queries: str) -> dict[str, Any]:
        return {"call": {"name": "file_search", "arguments": {"queries": list(queries)}}}

    return [
        {"when": "how high is the tower", "pieces": [{"reasoning": "I look."}, search("tower height", "metres")]},
        {"when": "【0:0†tower.md】", "pieces": [{"text": "It is 312 metres high 【0:0†tower.md】, as told【0:0】 and 【9:9†x】."}], "chunk": 3},
        {"when": "cite it again", "pieces": [{"text": "As said【0:0†tower.md】."}]},
        {"when": "look once more", "pieces": [search("bridge")]},
        {"when": "【1:0†bridge.html】", "pieces": [{"text": "The bridge has 99【1:0†bridge.html】."}]},
        {"when": "two at once", "pieces": [search("tower"), search("bridge long")]},
        {"when": "both words", "pieces": [search("tower", "bridge long")]},
        {"when": "【0:0†bridge.html】", "pieces": [{"text": "A bridge."}]},
        {"when": "nothing there", "pieces": [search("zeppelin")]},
        {"when": "wrong arguments", "pieces": [{"call": {"name": "file_search", "arguments": {"queries": [7, {}]}}}]},
        {"when": "Nothing was found", "pieces": [{"text": "Nothing."}]},
        {"when": "Wrong arguments", "pieces": [{"text": "My mistake."}]},
    ]  # fmt: skip


def configuration(**file_search: Any) -> dict[str, Any]:
    """A gateway with both families; `file_search` are keys of `[tools.file_search]`."""
    return {
        "models": {
            family: {
                "engine": "scripted",
                "parser": family,
                "renderer": "harmony" if family == "harmony" else "chat_template",
                "scripted": {"rules": rules()},
            }
            for family in FAMILIES
        },
        "tools": {"file_search": file_search},
        "resources": {"files": {"max_file_bytes": 3_000_000}},
    }


def with_keys(config: dict[str, Any], *names: str) -> dict[str, Any]:
    """With the API keys `key-<name>`."""
    keys = [
        {"name": name, "sha256": hashlib.sha256(f"key-{name}".encode()).hexdigest()}
        for name in names
    ]
    return {**config, "server": {**config.get("server", {}), "api_keys": keys}}


@pytest.fixture(scope="module")
def searching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway for a whole file of tests, with keys of Ada and Bob."""
    folder = tmp_path_factory.mktemp("file_search")
    config = configuration(max_text=2_000_000)
    with run_gateway(with_keys(config, "ada", "bob"), Path(folder)) as gateway:
        yield gateway


@pytest.fixture
def ada(searching: RunningGateway) -> Iterator[Any]:
    with searching.client(api_key="key-ada") as client:
        yield client


@pytest.fixture
def bob(searching: RunningGateway) -> Iterator[Any]:
    with searching.client(api_key="key-bob") as client:
        yield client


@pytest.fixture(scope="module")
def towers(searching: RunningGateway) -> str:
    """The id of a vector store of Ada's that has a tower and a bridge; not to be changed."""
    with searching.client(api_key="key-ada") as client:
        store = client.vector_stores.create(name="towers")
        for name, content in (("tower.md", TOWER), ("bridge.html", BRIDGE)):
            added = client.vector_stores.files.upload_and_poll(
                vector_store_id=store.id,
                file=(name, content),
                attributes={
                    "kind": name.partition(".")[0],
                    "year": 1931 if "tower" in name else 1999,
                },
            )
            assert added.status == "completed", added.last_error
        return str(store.id)
