"""Gateways with the tool `python`, and models of two families that call it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_testing.server import RunningGateway, run_gateway
from tests.plugins.sandboxed import family_models, or_skip

FAMILIES = ("qwen3", "harmony")


def rules(family: str) -> list[dict[str, Any]]:
    """What a model of a family says: each request is answered with a cell, its output with a word."""

    def cell(when: str, code: str) -> dict[str, Any]:
        if family == "harmony":  # which writes code as it is
            raw = f"<|channel|>analysis to=python code<|message|>{code}<|call|>"
            return {"when": when, "pieces": [{"raw": raw}]}
        return {
            "when": when,
            "pieces": [{"call": {"name": "python", "arguments": {"code": code}}}],
        }

    def word(when: str, text: str) -> dict[str, Any]:
        return {"when": when, "pieces": [{"text": text}]}

    return [
        cell("please compute", "x = 6 * 7\nprint('product', x)"),
        word("product 42", "It is 42."),
        cell("remember it", "y = 1234567\nprint('kept' + ' well')"),
        cell("kept well", "print('again', y + 1)"),
        word("again 1234568", "I remembered."),
        cell("what is y", "print('y' in globals(), 'is what I see')"),
        word("is what I see", "Seen."),
        word("processes were started anew", "It is a new one."),
        cell("fail please", "raise ValueError('as ' + 'asked')"),
        word("as asked", "It failed."),
        cell("hang please", "import subprocess; subprocess.run(['/bin/sleep', '600'])"),
        word("the limit of one call", "Too slow."),
        cell("die please", "import os; os._exit(7)"),
        word("The interpreter has ended (exit code 7)", "It died."),
        cell("be big", "print('m' * 1_000_000, 'end' + ' of it')"),
        word("bytes cut out", "It was long."),
        cell("no text", "import os; os.write(1, b'\\xff\\xfe raw'); print(' br' + 'oken')"),
        word("broken", "It was broken."),
        cell("draw it", DRAW),
        word("Images shown: 1", "Drawn."),
        cell(
            "kill all", "import os, signal; os.kill(-1, signal.SIGKILL); os.kill(os.getppid(), 9)"
        ),
        word("has died", "All is lost."),
    ]


DRAW = """import base64
class Picture:
    def _repr_png_(self):
        return base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')
Picture()"""


def configuration(**python: Any) -> dict[str, Any]:
    """A gateway with the models `qwen3` and `harmony`; `python` is `[tools.python]` and `[resources.containers]`.

    Sandboxes end with their responses, if nothing else is said.
    """
    server = python.pop("server", {})
    own = {name: python.pop(name) for name in ("time_limit", "max_output_bytes") if name in python}
    return {
        "server": server,
        "models": family_models(rules),
        "tools": {"python": own},
        "resources": {"containers": {"keep_running": 0.0, "start_timeout": 60.0, **python}},
    }


@pytest.fixture(scope="session")
def python_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One gateway, for tests that do not need another configuration."""
    yield from _serving(tmp_path_factory.mktemp("python"))


@pytest.fixture(scope="session")
def hasty_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One whose calls may take a second, for calls that never end."""
    yield from _serving(tmp_path_factory.mktemp("hasty"), time_limit=1.0)


def _serving(folder: Path, **python: Any) -> Iterator[RunningGateway]:
    context = run_gateway(configuration(**python), folder)
    running = or_skip(context.__enter__)
    yield running
    context.__exit__(None, None, None)


@pytest.fixture
def start_python(gateway_server: Any) -> Callable[..., RunningGateway]:
    """Start a gateway: `start_python(time_limit=1, server={...})`."""
    return lambda **python: or_skip(lambda: gateway_server(configuration(**python)))
