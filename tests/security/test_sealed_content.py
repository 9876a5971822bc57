"""`encrypted_content` is for its owner, and not for ever. Another model of the owner reads a summary, and no thought."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.access.access import hash_key
from gateway_testing.server import run_gateway

RULES = [{"when": "", "pieces": [{"reasoning": "a secret thought"}, {"text": "Hello."}]}]
MODEL = {"engine": "scripted", "scripted": {"rules": RULES}}
KEYS = [{"name": name, "sha256": hash_key(f"{name}-key")} for name in ("ada", "bob")]
CONFIG: dict[str, Any] = {
    "server": {"api_keys": KEYS},
    "models": {"one": {**MODEL, "aliases": ["uno"]}, "two": MODEL},
}


class Client:
    def __init__(self, url: str) -> None:
        self._url = url

    def post(self, path: str, *, key: str = "ada", **body: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}-key"}
        return httpx.post(f"{self._url}{path}", json=body, headers=headers, timeout=60)

    def thought(self) -> dict[str, Any]:
        """What the model `one` has thought, as a client carries it that drops the open text."""
        answer = self.post(
            "/responses",
            model="one",
            input="hi",
            store=False,
            include=["reasoning.encrypted_content"],
        ).json()
        return {**answer["output"][0], "content": None}

    def summary(self) -> dict[str, Any]:
        """A conversation of the model `one`, compacted."""
        answer = self.post("/responses/compact", model="one", input="a long story").json()
        item: dict[str, Any] = answer["output"][-1]
        assert item["type"] == "compaction"
        return item

    def send(self, item: dict[str, Any], *, model: str, key: str = "ada") -> httpx.Response:
        asked = [item, {"role": "user", "content": "go on"}]
        return self.post("/responses", key=key, model=model, input=asked, store=False)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with run_gateway(CONFIG, tmp_path_factory.mktemp("gateway")) as gateway:
        yield Client(gateway.base_url)


@pytest.mark.parametrize("kind", ["thought", "summary"])
def test_a_session_goes_on_with_another_model(client: Client, kind: str) -> None:
    """What the other model has thought is left out of the prompt; a summary stands for a conversation, and is read."""
    item = getattr(client, kind)()
    alone = client.post("/responses", model="two", input="go on", store=False).json()
    sizes = {}
    for name in ("one", "uno", "two"):
        answer = client.send(item, model=name)
        assert answer.status_code == 200, answer.text
        sizes[name] = answer.json()["usage"]["input_tokens"]
    assert sizes["one"] == sizes["uno"]
    if kind == "summary":
        assert sizes["two"] == sizes["one"]
        assert sizes["two"] > alone["usage"]["input_tokens"]


@pytest.mark.parametrize("kind", ["thought", "summary"])
def test_what_is_sealed_for_one_owner_nobody_else_reads(client: Client, kind: str) -> None:
    item = getattr(client, kind)()
    refused = client.send(item, model="one", key="bob")
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "invalid_encrypted_content"


@pytest.mark.parametrize("kind", ["thought", "summary"])
@pytest.mark.slow
def test_what_is_sealed_is_read_for_as_long_as_the_operator_says(kind: str, tmp_path: Path) -> None:
    config = {**CONFIG, "server": {"api_keys": KEYS, "reasoning_lifetime": 1}}
    with run_gateway(config, tmp_path) as gateway:
        client = Client(gateway.base_url)
        item = getattr(client, kind)()
        time.sleep(2.1)
        refused = client.send(item, model="one")
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert error["code"] == "invalid_encrypted_content"
        assert "older than this server's limit of 1 seconds" in error["message"]


def test_what_the_server_has_stored_itself_goes_on_with_any_model_at_any_age(
    tmp_path: Path,
) -> None:
    """A stored conversation is kept as long as the store keeps it: its compactions are not the client's to send."""
    config = {**CONFIG, "server": {"api_keys": KEYS, "reasoning_lifetime": 1}}
    with run_gateway(config, tmp_path) as gateway:
        client = Client(gateway.base_url)
        first = client.post(
            "/responses",
            model="one",
            input=[{"role": "user", "content": "a story"}, {"type": "compaction_trigger"}],
        ).json()
        assert "compaction" in [item["type"] for item in first["output"]], first
        time.sleep(2.1)
        again = client.post(
            "/responses", model="two", input="go on", previous_response_id=first["id"]
        )
        assert again.status_code == 200, again.text
