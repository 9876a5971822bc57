from __future__ import annotations

import ast
import logging
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http import httptools_impl

from gateway.config import Config, ServerConfig
from gateway.errors import ConfigurationError
from gateway.server.server import uvicorn_config
from gateway.uvicorn_internals.connections import Connections, ServingConfig
from gateway.uvicorn_internals.fast_path_check import fast_path_problem
from gateway.uvicorn_internals.http_protocol import LimitedHttpProtocol
from gateway.uvicorn_internals.protocol_check import UVICORN, check_protocols, load_protocols
from gateway.uvicorn_internals.websocket_protocol import LimitedWebSocketProtocol

pytestmark = pytest.mark.anyio
NOT_LIMITS = ("__init__", "handle_websocket_upgrade", "resume_writing", "run_asgi", "shutdown")
"""Methods of uvicorn that the protocols extend for better errors and logs, for clients that read, and for the stop."""
ROOT = Path(__file__).parents[3]


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("the self-check has an application of its own")


def settings_with(
    http: Any = LimitedHttpProtocol, websocket: Any = LimitedWebSocketProtocol
) -> ServingConfig:
    made = ServingConfig(app, http=http, ws=websocket, lifespan="off", log_config=None)
    made.limits = Connections(ServerConfig())
    return made


@pytest.fixture
def settings() -> ServingConfig:
    return settings_with()


async def test_the_installed_uvicorn_passes_and_leaves_no_trace(
    settings: ServingConfig, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "uvicorn"):
        await check_protocols(settings)
        assert await fast_path_problem(settings) is None
    assert not caplog.records
    assert settings.limits.refused == 0


async def test_another_cycle_fails_the_check_of_the_fast_path_alone(
    settings: ServingConfig, other_uvicorn: str
) -> None:
    await check_protocols(settings)
    assert await fast_path_problem(settings)


async def test_one_line_of_the_log_tells_that_answers_are_sent_by_plain_asgi(
    other_uvicorn: str, caplog: pytest.LogCaptureFixture
) -> None:
    served: Any = app
    made = await uvicorn_config(Config(models={}), served)
    (record,) = (each for each in caplog.records if each.name == "gateway.server.server")
    assert record.levelname == "WARNING"
    assert "plain ASGI" in record.message
    assert uvicorn.__version__ in record.message
    assert UVICORN in record.message
    assert made.loaded_app is not served


@pytest.mark.parametrize(
    ("protocol", "name"),
    [
        (kind, name)
        for kind in (LimitedHttpProtocol, LimitedWebSocketProtocol)
        for name, value in vars(kind).items()
        if callable(value) and name not in NOT_LIMITS and hasattr(kind.__base__, name)
    ],
)
async def test_a_server_whose_limits_do_not_work_does_not_start(protocol: type, name: str) -> None:
    # As if uvicorn called another method. The class itself serves the gateways of other tests, in threads of this process.
    broken = type("Broken", (protocol,), {name: getattr(protocol.__base__, name)})
    kinds = {"http" if protocol is LimitedHttpProtocol else "websocket": broken}
    with pytest.raises(ConfigurationError) as caught:
        await check_protocols(settings_with(**kinds))
    assert str(caught.value).endswith(f"Install uvicorn{UVICORN}.")


async def test_a_server_without_the_tick_that_checks_deadlines_does_not_start(
    settings: ServingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = {name: None for name in vars(uvicorn.Server) if name != "on_tick"}
    other = SimpleNamespace(Server=SimpleNamespace(**methods), __version__="1")
    monkeypatch.setattr("gateway.uvicorn_internals.protocol_check.uvicorn", other)
    with pytest.raises(ConfigurationError, match=r"uvicorn\.Server has no on_tick"):
        await check_protocols(settings)


def test_the_versions_that_the_check_names_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"uvicorn{UVICORN}" in project["dependencies"]


def test_only_this_package_imports_the_private_classes() -> None:
    users = {
        file.parent.name
        for file in (ROOT / "gateway").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        if (node.module or "").startswith("uvicorn.protocols")
    }
    assert users == {"uvicorn_internals"}


def test_a_server_without_a_class_that_it_extends_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(httptools_impl, "HttpToolsProtocol")
    monkeypatch.delitem(sys.modules, LimitedHttpProtocol.__module__)
    with pytest.raises(ConfigurationError, match="HttpToolsProtocol") as caught:
        load_protocols()
    assert str(caught.value).endswith(f"Install uvicorn{UVICORN}.")
