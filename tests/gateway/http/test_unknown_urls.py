"""A path that is not served says what would serve it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gateway.http import unknown_urls
from gateway.http.unknown_urls import unknown_url_hint
from gateway_testing.server import run_gateway

MODELS = {"m": {"engine": "scripted"}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_gateway({"models": MODELS}, tmp_path_factory.mktemp("bare")) as running:
        yield running.base_url.removesuffix("/v1")


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("POST", "/v1/files", "It is served if gateway.toml has a table [resources.files]"),
        ("GET", "/v1/files/file_1/content", "[resources.files]"),
        ("POST", "/v1/uploads", "[resources.files]"),
        ("POST", "/v1/vector_stores", "[tools.file_search]"),
        ("POST", "/v1/containers", "[tools.container] or [tools.python]"),
        ("POST", "/v1/batches", "[apis.batches] and a table [resources.files]"),
        ("POST", "/v1/prompts", "[apis.prompts]"),
        ("POST", "/v1/audio/speech", "Litegate has no /v1/audio. Models with 'audio'"),
        ("POST", "/v1/threads", "/v1/responses and /v1/conversations are in its place"),
        ("GET", "/v1/videos", "Litegate has no /v1/videos."),
        ("GET", "/v1/organization/users", "Litegate has usage/completions"),
        ("POST", "/responses", "the client's base_url must end with /v1"),
        ("POST", "/chat/completions", "the client's base_url must end with /v1"),
        ("GET", "/v1/v1/models", "/v1 twice"),
        ("POST", "/api/chat", "The own APIs of Ollama"),
        ("POST", "/v1/api/generate", "The own APIs of Ollama"),
        (
            "POST",
            "/v1/chat/completions/chat/completions",
            "end with /v1, without /chat/completions.",
        ),
        ("POST", "/openai/deployments/m/chat/completions", "Azure's paths are not here"),
        ("POST", "/completion", "/v1/completions is in its place"),
        ("GET", "/", "The API is below /v1"),
        ("GET", "/v1/nothing", ""),
        ("GET", "/v1", ""),
        ("GET", "/x", ""),
    ],
)
def test_what_is_said_of_a_path(root: str, method: str, path: str, said: str) -> None:
    answer = httpx.request(method, root + path, timeout=60)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "unknown_url")
    start = f"Invalid URL ({method} {path})."
    assert error["message"].startswith(start)
    assert said in error["message"]
    assert said or error["message"] == start


def test_a_path_that_is_appended_twice_may_be_one_of_another_method(root: str) -> None:
    answer = httpx.post(f"{root}/v1/responses/responses", json={}, timeout=60)
    assert answer.status_code == 405
    assert "end with /v1, without /responses." in answer.json()["error"]["message"]


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_of_another_type_does_not_hide_that_there_is_no_such_path(
    root: str, media_type: str
) -> None:
    def status(path: str) -> int:
        headers = {"content-type": media_type} if media_type else {}
        return httpx.post(root + path, content=b"x", headers=headers, timeout=60).status_code

    assert [status(path) for path in ("/v1/threads", "/x", "/v1/responses/a/b/c")] == [
        404,
        404,
        404,
    ]
    served = ("/v1/responses", "/v1/responses/", "/v1/responses/resp_1/cancel", "/v1/models/a/b")
    assert [status(path) for path in served] == [415, 415, 415, 415]


def test_the_documentation_names_every_part() -> None:
    page = (Path(__file__).parents[3] / "docs" / "clients.md").read_text(encoding="utf-8")
    table = page.partition("## OpenAI's API, part by part")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert {*unknown_urls._ABSENT, *unknown_urls._TABLES, "organization"} <= named


def test_what_is_served_needs_no_table() -> None:
    assert unknown_url_hint("/v1/files/a/b/c", {"files"}) == ""
    assert unknown_url_hint("/", ()) == " The API is below /v1."
    assert unknown_url_hint("/v1/batches/a/b/c", {"files"}) != ""
    assert "no batches of Messages" in unknown_url_hint("/v1/messages/batches", {"messages"})


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown_urls, "package_of", lambda kind, name: f"litegate-{name}")
    assert "`pip install litegate-batches`" in unknown_url_hint("/v1/batches", ())
