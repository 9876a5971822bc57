"""Lines run as the key that made the batch: its models, limits, usage, and its end. They wait behind the requests of clients."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from gateway.sdk import (
    AnswerUsage,
    Credentials,
    EngineContext,
    EngineOutput,
    EngineRequest,
    NoConfig,
    Principal,
    hookimpl,
)
from gateway_scripted import ScriptedEngine
from gateway_testing.server import run_gateway, to_toml
from tests.plugins.batches.batch_client import SECONDS, Batches, configuration, line


def key(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(f"key-{name}".encode()).hexdigest(), **more}


def write_keys(file: Path, *keys: dict[str, Any]) -> None:
    """Replace a file of keys at once."""
    fresh = file.with_suffix(".new")
    fresh.write_text(to_toml({"api_keys": list(keys)}))
    fresh.replace(file)


def wait_until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def status_of(files: Path, batch_id: str) -> str:
    """The status of a batch in the database."""
    with closing(sqlite3.connect(files / "batches.sqlite3", timeout=30)) as connection:
        [status] = connection.execute(
            "SELECT status FROM batches WHERE id = ?", (batch_id,)
        ).fetchone()
    return str(status)


class Observer:
    """Collects what is used, in the order of the ends."""

    def __init__(self) -> None:
        self.seen: list[AnswerUsage] = []

    @hookimpl
    def gateway_usage(self, used: AnswerUsage) -> None:
        self.seen.append(used)


def test_a_revoked_key_ends_its_batches_with_what_is_done(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    write_keys(keys, key("ada"), key("bob"))
    config = configuration(tmp_path / "files", apis={"batches": {"concurrency": 1}})
    config["server"] = {"keys_file": str(keys)}
    with run_gateway(config, tmp_path) as gateway, gateway.client(api_key="key-ada") as client:
        ada = Batches(client)
        lines = [line("first"), *(line(f"r{n}", "too much") for n in range(20))]
        made = ada.until(ada.create(lines), lambda now: now.request_counts.completed == 1)
        write_keys(keys, key("bob"))
        other = key("ada", models=["m"])
        other["sha256"] = hashlib.sha256(b"key-new").hexdigest()
        named = gateway.services.authenticator.named
        # Its next line is refused, and the batch ends. A new key of the same name sees that.
        wait_until(lambda: named("ada") is None)
        wait_until(lambda: status_of(tmp_path / "files", made.id) == "failed")
        write_keys(keys, other)
        wait_until(lambda: named("ada") is not None)
        with gateway.client(api_key="key-new") as again:
            ada = Batches(again)
            ended = ada.ended(again.batches.retrieve(made.id))
            assert ended.status == "failed"
            assert ended.errors.data[0].code == "api_key_revoked"
            assert "'ada'" in ended.errors.data[0].message
            assert [each["custom_id"] for each in ada.output(ended)] == ["first"]
            assert {each["error"]["code"] for each in ada.errors(ended)} == {"batch_failed"}


def test_models_limits_and_usage_are_the_keys(tmp_path: Path) -> None:
    observer = Observer()
    config = configuration(tmp_path / "files")
    config["models"]["secret"] = {"engine": "scripted", "parser": "qwen3"}
    config["server"]["api_keys"] = [
        key("ada", models=["m"], requests_per_minute=6, tokens_per_minute=5000),
        key("bob"),
    ]
    with (
        run_gateway(config, tmp_path, plugins=[observer]) as gateway,
        gateway.client(api_key="key-ada") as client,
    ):
        ada = Batches(client)
        lines = [
            line("forbidden", model="secret"),
            line("too long", "word " * 6000),
            *(line(f"r{n}", max_output_tokens=5) for n in range(8)),
        ]
        made = ada.create(lines)
        # Six of its requests are admitted at once, and more only as the limit allows.
        made = ada.until(
            made, lambda now: now.request_counts.completed >= 4 and now.request_counts.failed == 2
        )
        ended = ada.ended(ada.client.batches.cancel(made.id))
        refused = {each["custom_id"]: each for each in ada.errors(ended)}
        assert refused["forbidden"]["response"]["status_code"] == 404
        assert refused["too long"]["response"]["status_code"] == 429
        done = [each for each in observer.seen if each.status == "completed"]
        assert len(done) == ended.request_counts.completed
        assert {(each.principal.name if each.principal else "", each.model) for each in done} == {
            ("ada", "m")
        }


class Prioritizing(ScriptedEngine):
    """Keeps the priorities of its requests."""

    last_priority = 60

    def __init__(self) -> None:
        super().__init__(max_model_len=4096)
        self.priorities: list[int] = []

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        self.priorities.append(request.priority)
        async for output in super().generate(request):
            yield output


class PrioritizingPlugin:
    def __init__(self) -> None:
        self.engine = Prioritizing()

    @asynccontextmanager
    async def open(self, config: NoConfig, context: EngineContext) -> AsyncIterator[Any]:
        yield self.engine

    @hookimpl
    def gateway_register_engines(self, register: Any) -> None:
        register("prioritizing", self.open)


def test_an_engine_that_serves_by_priority_gets_that_of_the_lines(tmp_path: Path) -> None:
    plugin = PrioritizingPlugin()
    config = configuration(tmp_path / "files")
    config["models"]["m"] = {"engine": "prioritizing", "parser": "qwen3"}
    with (
        run_gateway(config, tmp_path, plugins=[plugin]) as gateway,
        gateway.client(api_key="key-ada") as client,
    ):
        ada = Batches(client)
        for url in ("/v1/responses", "/v1/chat/completions", "/v1/completions"):
            lines = [line("a", url=url), line("b", url=url, priority=-50)]
            assert ada.ended(ada.create(lines, endpoint=url)).request_counts.completed == 2
        assert sorted(plugin.engine.priorities) == [50] * 3 + [60] * 3
        client.responses.create(model="m", input="hello")
        assert plugin.engine.priorities[-1] == 0


@pytest.mark.parametrize("scheduling", ["fair", "fifo"])
@pytest.mark.parametrize("keys", [True, False])
@pytest.mark.slow
def test_a_request_of_a_client_is_served_before_the_lines_that_wait(
    tmp_path: Path, scheduling: str, keys: bool
) -> None:
    observer = Observer()
    config = configuration(tmp_path / "files", apis={"batches": {"concurrency": 32}})
    config["models"]["m"] |= {
        "max_running": 1,
        "scheduling": scheduling,
        "scripted": {
            "rules": [{"when": "line", "pieces": [{"text": "word "}], "repeat": 20, "delay_ms": 20}]
        },
    }
    if not keys:
        del config["server"]
    with (
        run_gateway(config, tmp_path, plugins=[observer]) as gateway,
        gateway.client(api_key="key-ada") as client,
        gateway.client(api_key="key-bob") as bob,
    ):
        ada = Batches(client)
        made = ada.create([line(f"r{n}", "line") for n in range(60)])
        ada.until(made, lambda now: now.request_counts.completed >= 1)
        before = len(observer.seen)
        (bob if keys else client).responses.create(model="m", input="please")
        between = len(observer.seen) - before
        # The line that runs is not stopped, and some may have ended while the request was on its way.
        assert between <= 16, "31 lines waited already"
        ada.ended(ada.client.batches.cancel(made.id))


def test_concurrency_is_bounded_for_all_batches_together(tmp_path: Path) -> None:
    config = configuration(tmp_path / "files", apis={"batches": {"concurrency": 2}})
    with run_gateway(config, tmp_path) as gateway, gateway.client(api_key="key-ada") as client:
        ada = Batches(client)
        made = [ada.create([line(f"r{n}", "slowly") for n in range(5)]) for _ in range(3)]
        for each in made:
            ada.until(each, lambda now: now.status == "in_progress")
        admission = gateway.services.models["m"].admission
        most = 0
        for _ in range(50):
            most = max(most, admission.running + admission.waiting)
            time.sleep(0.02)
        assert most == 2
        for each in made:
            ada.ended(ada.client.batches.cancel(each.id))


class Header:
    """Finds principals by a header."""

    async def authenticate(self, request: Credentials) -> Principal | None:
        name = request.headers.get("x-user")
        return None if name is None else Principal(name=name, models=["m"])


class HeaderPlugin:
    @hookimpl
    def gateway_register_authenticators(self, register: Any) -> None:
        @asynccontextmanager
        async def opened(config: NoConfig) -> AsyncIterator[Header]:
            yield Header()

        register("header", opened)


def test_lines_run_as_who_an_authenticator_has_found(tmp_path: Path) -> None:
    observer = Observer()
    config = configuration(tmp_path / "files", authenticators={"header": {}})
    config["models"]["secret"] = {"engine": "scripted", "parser": "qwen3"}
    with (
        run_gateway(config, tmp_path, plugins=[observer, HeaderPlugin()]) as gateway,
        gateway.client(default_headers={"x-user": "eve"}) as client,
    ):
        eve = Batches(client)
        ended = eve.ended(eve.create([line("a"), line("b", model="secret")]))
        assert [each["custom_id"] for each in eve.output(ended)] == ["a"]
        assert [each["response"]["status_code"] for each in eve.errors(ended)] == [404]
    assert {each.principal and each.principal.name for each in observer.seen} == {"eve"}
