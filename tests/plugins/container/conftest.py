"""Sandboxes for tests: real ones, of the isolation that this machine has; and gateways whose models use them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.base.errors import ConfigurationError
from gateway_container.config import ContainersConfig
from gateway_container.sandbox.choice import choose_isolation
from gateway_container.sandbox.isolation import Isolation
from gateway_testing.server import RunningGateway, run_gateway
from tests.plugins.sandboxed import family_models, or_skip

FAMILIES = ("qwen3", "harmony")


@pytest.fixture(scope="session")
def isolation() -> Isolation:
    """Namespaces; where there are none, the tests that need them are skipped, with the reason."""
    try:
        return asyncio.run(choose_isolation(ContainersConfig(isolation="namespaces")))
    except ConfigurationError as error:
        pytest.skip(str(error))


def rules(family: str) -> list[dict[str, Any]]:
    """What a model of a family says: requests are answered with commands, their output with a word."""
    dotted = family == "harmony"

    def call(when: str, *calls: tuple[str, Any]) -> dict[str, Any]:
        pieces = [{"call": {"name": name, "arguments": arguments}} for name, arguments in calls]
        return {"when": when, "pieces": pieces}

    def shell(when: str, *commands: str, **more: Any) -> dict[str, Any]:
        return call(when, ("shell", {"commands": commands, **more}))

    def word(when: str, text: str) -> dict[str, Any]:
        return {"when": when, "pieces": [{"text": text}]}

    exec_name = "container.exec" if dotted else "container_exec"
    feed_name = "container.feed_chars" if dotted else "container_feed_chars"
    return [
        shell("two commands", "echo o''ne; echo warn >&2", "exit 3"),
        word("warn", "Both ran."),
        shell("write it", "echo 12''34 > note; echo written ''well"),
        shell("written well", "cat note"),
        word("1234", "I have read it."),
        shell("hang please", "sleep 600", timeout_ms=800),
        word("timed out", "Too slow."),
        shell("hang after a word", "echo begun; sleep 600", timeout_ms=10_000),
        shell("sleep long", "sleep 600"),
        call("nonsense", ("shell", {"commands": {"a": 1}})),
        word("Wrong arguments", "I misspoke."),
        call(
            "twice",
            ("shell", {"commands": ["echo fi''rst"]}),
            ("shell", {"commands": ["echo sec''ond"]}),
        ),
        word("second", "Twice."),
        shell("be big", "yes wide | head -c 1000000; echo the'' end"),
        word("bytes cut out", "It was long."),
        call(
            "exec it",
            (
                exec_name,
                {
                    "cmd": ["sh", "-c", "echo $WHO in $(pwd)"],
                    "env": {"WHO": "me"},
                    "workdir": "/tmp",
                },
            ),
        ),
        word("me in /tmp", "Executed."),
        call("make a file", (exec_name, {"cmd": ["sh", "-c", "echo hi > made; echo file ma''de"]})),
        word("file made", "See sandbox:/mnt/data/made."),
        call("start a session", (exec_name, {"cmd": ["sh"], "session_name": "s", "timeout": 100})),
        call(
            "'s' goes on",
            (
                feed_name,
                {"session_name": "s", "chars": "echo h''eard; exit 5\n", "yield_time_ms": 60_000},
            ),
        ),
        word("exit code 5", "It is over."),
    ]


def configuration(**container: Any) -> dict[str, Any]:
    """A gateway with the models `qwen3` and `harmony`; `container` is `[resources.containers]`.

    Sandboxes end with their responses, if nothing else is said. `server` and further `tools` are tables of their own.
    """
    server, tools = container.pop("server", {}), container.pop("tools", {})
    return {
        "server": server,
        "models": family_models(rules),
        "tools": {"container": {"offer": True}, **tools},
        "resources": {"containers": {"keep_running": 0.0, "start_timeout": 60.0, **container}},
    }


@pytest.fixture(scope="session")
def container_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One gateway, for tests that do not need another configuration."""
    context = run_gateway(configuration(), tmp_path_factory.mktemp("container"))
    running = or_skip(context.__enter__)
    yield running
    context.__exit__(None, None, None)


@pytest.fixture
def start_container(gateway_server: Any) -> Callable[..., RunningGateway]:
    """Start a gateway: `start_container(max_running=1)`."""
    return lambda **container: or_skip(lambda: gateway_server(configuration(**container)))
