"""`gateway config check` and the start refuse the same configurations: both by `check_configuration`, and what that accepts can be opened."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.base.errors import ConfigurationError
from gateway.cli import main
from gateway.config import Config, load_config
from gateway.plugins.loading import load_plugins
from gateway.process.server import run
from gateway.startup.selection import check_configuration
from gateway.startup.service_opening import open_services

FOLDER = "a folder"
"""Stands for a folder of the test's own."""
MISTAKES: dict[str, tuple[str, dict[str, Any]]] = {
    "files that end before the vector stores": (
        "resources.files.path: it is not set",
        {"tools": {"file_search": {"path": FOLDER}}},
    ),
    "stores without their tool": (
        r"add a table \[tools.file_search\]",
        {"apis": {"file_search": {}}},
    ),
    "a URL that is none of Redis": (
        "cannot be used",
        {"server": {"store": "redis"}, "stores": {"redis": {"url": "http://127.0.0.1"}}},
    ),
    "keys in a memory of one process": (
        "server.stored_keys needs a store",
        {"server": {"store": "memory", "stored_keys": True}},
    ),
    "two scenarios": (
        "names two scenarios",
        {"models": {"n": {"engine": "scripted", "path": "a.json", "scripted": {"scenario": "b.json"}}}},
    ),
    "an upstream without an address": (
        "needs the address of its upstream",
        {"models": {"n": {"engine": "openai"}}},
    ),
    "engines without addresses": (
        "needs the addresses of its engines",
        {"models": {"n": {"engine": "remote"}}},
    ),
    "vLLM without a model": ("has no path", {"models": {"n": {"engine": "vllm"}}}),
    "vLLM's adapters switched off": (
        "enable_lora = false",
        {"models": {"n": {"engine": "vllm", "path": "a/b", "vllm": {"enable_lora": False, "lora_modules": {"x": "/x"}}}}},
    ),
    "TensorRT-LLM without a model": ("has no path", {"models": {"n": {"engine": "trtllm"}}}),
    "a key that no renderer has": (
        "efort",
        {"models": {"n": {"engine": "scripted", "renderer": "harmony", "harmony": {"efort": "low"}}}},
    ),
    "a policy without patterns": ("policies.redact.patterns", {"policies": {"redact": {}}}),
    "a key that no tool has": ("tools.file_search", {"tools": {"file_search": {"pth": "x"}}}),
}  # fmt: skip
SOUND: dict[str, dict[str, Any]] = {
    "vector stores": {"tools": {"file_search": {}}},
    "lasting vector stores": {
        "tools": {"file_search": {"path": FOLDER}},
        "resources": {"files": {"path": FOLDER}},
    },
    "files": {"resources": {"files": {}}},
    "lasting files": {"resources": {"files": {"path": FOLDER}}},
    "no store": {"server": {"store": "none"}},
    "batches": {"apis": {"batches": {}}},
    "prompts": {"apis": {"prompts": {}}},
}


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            both = isinstance(value, dict) and isinstance(made.get(name), dict)
            made[name] = merged(made[name], value) if both else value
    return made


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(each)}" for name, each in value.items()) + "}"
    return json.dumps(value)


def read(raw: dict[str, Any], folder: str) -> Config:
    text = "".join(f"{name} = {toml(value)}\n" for name, value in raw.items()).replace(
        FOLDER, folder
    )
    file = Path(folder) / "gateway.toml"
    file.write_text(text, encoding="utf-8")
    return load_config(file)


def base() -> dict[str, Any]:
    return {"server": {"store": "memory"}, "models": {"m": {"engine": "scripted"}}}


def refusal(raw: dict[str, Any], folder: str) -> str | None:
    try:
        check_configuration(read(raw, folder), load_plugins())
    except ConfigurationError as error:
        return str(error)
    return None


async def opened(raw: dict[str, Any], folder: str) -> None:
    async with AsyncExitStack() as stack:
        await open_services(read(raw, folder), load_plugins(), stack)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_alike(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    sentence, part = MISTAKES[mistake]
    config = read(merged(base(), part), str(tmp_path))
    with pytest.raises(ConfigurationError, match=sentence) as told:
        run(config, load_plugins())
    assert main(["config", "check", "--config", str(tmp_path / "gateway.toml")]) == 2
    assert str(told.value) in capsys.readouterr().err


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from([*MISTAKES, *SOUND]), max_size=4, unique=True),
)
def test_what_is_accepted_can_be_opened_and_what_has_a_mistake_is_refused(names: list[str]) -> None:
    parts = [MISTAKES[name][1] if name in MISTAKES else SOUND[name] for name in names]
    raw = merged(base(), *parts)
    with tempfile.TemporaryDirectory() as folder:
        told = refusal(raw, folder)
        if told is None:
            asyncio.run(opened(raw, folder))
        else:
            assert any(name in MISTAKES for name in names), told
            with pytest.raises(ConfigurationError):
                asyncio.run(opened(raw, folder))
