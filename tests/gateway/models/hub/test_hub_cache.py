"""What is in the cache, and removing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.base.errors import ConfigurationError
from gateway.config.hub_names import HubName, parse_name
from gateway.models.hub.cache import cached_models, cached_repositories, remove
from gateway.models.hub.client import Hub
from gateway.models.hub.fetching import fetch
from gateway_testing.hub_server import HubServer


def name(text: str) -> HubName:
    found = parse_name(text)
    assert found is not None
    return found


@pytest.fixture
def hub(hub_server: HubServer, tmp_path: Path) -> Hub:
    files = {
        "m-Q4_K_M.gguf": b"4" * 4000,
        "m-Q8_0.gguf": b"8" * 8000,
        "mmproj-F16.gguf": b"p" * 100,
    }
    hub_server.add("o/m-GGUF", files)
    hub_server.add("o/m", {"model.safetensors": b"s" * 500, "config.json": b"{}"})
    hub = Hub(endpoint=hub_server.url, cache=tmp_path / "cache", timeout=60)
    for each in ("o/m-GGUF", "o/m-GGUF:Q8_0", "o/m"):
        fetch(name(each), hub)
    return hub


def listed(hub: Hub) -> dict[str, tuple[str, int]]:
    return {model.name: (model.kind, model.size) for model in cached_models(hub)}


def test_the_models_of_the_cache_by_the_names_that_serve_them(hub: Hub) -> None:
    blobs = hub.cache / "models--o--m" / "blobs"
    (blobs / f"{'a' * 64}.incomplete").write_bytes(b"x" * 70)
    (hub.cache / "models--bad--..--name").mkdir()
    (hub.cache / "datasets--o--d").mkdir()
    assert cached_models(hub) == cached_models(hub)
    assert [(model.name, model.kind, model.size) for model in cached_models(hub)] == [
        ("o/m", "safetensors", 502),
        ("o/m", "incomplete", 70),
        ("o/m-GGUF:Q4_K_M", "gguf", 4100),
        ("o/m-GGUF:Q8_0", "gguf", 8100),
    ]
    assert all(model.used > 1e9 for model in cached_models(hub))


def test_one_quantization_is_removed_and_the_other_stays(hub: Hub) -> None:
    assert remove(hub, name("o/m-GGUF:Q4_K_M")) == 4000
    assert listed(hub) == {"o/m": ("safetensors", 502), "o/m-GGUF:Q8_0": ("gguf", 8100)}
    assert remove(hub, name("o/m-GGUF/m-Q8_0.gguf")) == 8100, "the last one takes its projector"
    assert listed(hub) == {"o/m": ("safetensors", 502)}
    assert cached_repositories(hub) == ["o/m"]


def test_a_whole_repository_is_removed(hub: Hub) -> None:
    assert remove(hub, name("o/m-GGUF")) == 12_100
    assert cached_repositories(hub) == ["o/m"]
    assert remove(hub, name("hf:o/m")) == 502
    assert cached_models(hub) == []


def test_what_is_not_there_cannot_be_removed(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"is not in the cache .*; it has o/m, o/m-GGUF"):
        remove(hub, name("o/n"))
    with pytest.raises(ConfigurationError, match="o/m-GGUF has no Q5_0"):
        remove(hub, name("o/m-GGUF:Q5_0"))
    empty = Hub(endpoint=hub.endpoint, cache=tmp_path / "none")
    assert cached_models(empty) == []
    with pytest.raises(ConfigurationError, match="it is empty"):
        remove(empty, name("o/n"))
