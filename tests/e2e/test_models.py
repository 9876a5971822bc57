"""/v1/models: what a client may know of each model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from gateway.base.errors import EngineUnavailable
from gateway_scripted import ScriptedEngine
from gateway_testing.server import RunningGateway, run_gateway

CONFIG = """
[models.one]
engine = "scripted"
path = "{scenario}"
aliases = ["gpt-x", "owner/one-GGUF:Q4_K_M"]
description = "The first."
max_model_len = 4096
[models.one.scripted]
task = "generate"
adapters = ["tuned"]

[models.vectors]
engine = "scripted"
[models.vectors.scripted]
task = "embed"
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("weights")
    (folder / "scenario.json").write_text("[]")
    config = CONFIG.replace("{scenario}", str(folder / "scenario.json"))
    with run_gateway(config, folder) as running:
        yield running


def listed(gateway: RunningGateway) -> dict[str, Any]:
    models = httpx.get(f"{gateway.base_url}/models", timeout=30).json()["data"]
    return {model["id"]: model for model in models}


def test_what_the_list_says_of_each_model(gateway: RunningGateway) -> None:
    models = listed(gateway)
    assert list(models) == ["one", "tuned", "vectors"]
    one = models["one"]
    assert one.pop("created") > 1_700_000_000
    capabilities = one.pop("capabilities")
    assert one == {
        "id": "one",
        "object": "model",
        "owned_by": "litegate",
        "root": "one",
        "parent": None,
        "max_model_len": 4096,
        "aliases": ["gpt-x", "owner/one-GGUF:Q4_K_M"],
        "description": "The first.",
        "state": "loaded",
    }
    assert capabilities[0] == "generation"
    assert {"logprobs", "json_schema"} <= set(capabilities)
    assert not {"tokens", "messages", "structure", "triggered", "adapters", "embeddings"} & set(
        capabilities
    )
    assert models["vectors"]["capabilities"] == ["embeddings"]
    assert models["tuned"]["parent"] == "one"
    assert "aliases" not in models["tuned"]
    assert "aliases" not in models["vectors"]


def test_codex_gets_a_list_of_its_form_too(gateway: RunningGateway) -> None:
    """With its version in the query. Each name that can generate has an entry."""
    where = f"{gateway.base_url}/models"
    answer = httpx.get(where, params={"client_version": "0.169.0"}, timeout=30).json()
    assert [model["id"] for model in answer["data"]] == ["one", "tuned", "vectors"]
    entries = {each["slug"]: each for each in answer["models"]}
    assert list(entries) == ["one", "gpt-x", "owner/one-GGUF:Q4_K_M", "tuned"]
    assert entries["gpt-x"]["context_window"] == 4096
    assert "models" not in httpx.get(where, timeout=30).json()


def test_no_path_of_a_file_is_shown(
    gateway: RunningGateway, tmp_path_factory: pytest.TempPathFactory
) -> None:
    info = gateway.services.models["one"].info
    assert info.path is not None
    for path in ("models", "models/one"):
        answer = httpx.get(f"{gateway.base_url}/{path}", timeout=30).text
        assert info.path not in answer
        assert str(Path(info.path).parent) not in answer


def test_a_model_is_found_by_its_name_and_its_aliases_also_by_the_sdk(
    gateway: RunningGateway,
) -> None:
    client: OpenAI
    with gateway.client() as client:
        for name in ("one", "gpt-x", "owner/one-GGUF:Q4_K_M"):
            assert client.models.retrieve(name).id == "one"
        model = next(iter(client.models.list()))
    assert (model.id, model.model_dump()["state"]) == ("one", "loaded")


def test_a_model_whose_engine_is_down_is_unavailable(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(engine: ScriptedEngine) -> None:
        raise EngineUnavailable("It is down.")

    async def broken(engine: ScriptedEngine) -> None:
        raise ZeroDivisionError

    for health in (down, broken):
        monkeypatch.setattr(ScriptedEngine, "health", health)
        assert {model["state"] for model in listed(gateway).values()} == {"unavailable"}
