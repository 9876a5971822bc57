"""A real gateway in a thread, for tests that come in by the front door."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from gateway.app import app_of, open_services
from gateway.config import Config, load_config
from gateway.plugins import PluginSet, load_plugins
from gateway.serving.served import Services
from gateway.serving.server import GatewayServer, address, bind, uvicorn_config

START_SECONDS = 120.0
"""How long the engines may take to open."""


class RunningGateway:
    """A gateway that serves on this machine."""

    def __init__(self, base_url: str, services: Services) -> None:
        self.base_url = base_url
        """Where the API begins: `http://127.0.0.1:…/v1`."""
        self.services = services
        """What is opened, for tests that look at an engine or the store: `services.models["m"].engine`."""

    def client(self, **options: Any) -> Any:
        """An `openai.OpenAI` client without retries; needs the package. Close it, or use it in a `with`."""
        from openai import OpenAI

        return OpenAI(**{"base_url": self.base_url, "api_key": "none", "max_retries": 0, **options})

    def async_client(self, **options: Any) -> Any:
        """An `openai.AsyncOpenAI` client, likewise."""
        from openai import AsyncOpenAI

        known = {"base_url": self.base_url, "api_key": "none", "max_retries": 0}
        return AsyncOpenAI(**{**known, **options})


@contextmanager
def run_gateway(
    config: Mapping[str, Any] | str, folder: Path, *, plugins: Iterable[object] = ()
) -> Iterator[RunningGateway]:
    """Serve `config` in a thread, on a free port, until the context is left.

    `config` is the text of a `gateway.toml`, or the same as a mapping; it is written into `folder`, so that relative
    paths are looked for there. `plugins` are modules or objects with hooks that are not installed. Raises what the start
    raises, such as `ConfigurationError`.
    """
    path = folder / "gateway.toml"
    path.write_text(config if isinstance(config, str) else to_toml(config), encoding="utf-8")
    decoded = load_config(path, {}, server={"port": 0})
    loaded = load_plugins(decoded.plugins, extra=plugins)
    with bind(decoded) as listening:
        started: Future[tuple[GatewayServer, Services]] = Future()
        thread = threading.Thread(
            target=lambda: asyncio.run(_serve(decoded, loaded, listening, started)),
            name="gateway",
            daemon=True,
        )
        thread.start()
        server, services = started.result(START_SECONDS)
        try:
            yield RunningGateway(f"{address(listening)}/v1", services)
        finally:
            server.should_exit = True
            thread.join()


async def _serve(
    config: Config,
    plugins: PluginSet,
    listening: Any,
    started: Future[tuple[GatewayServer, Services]],
) -> None:
    try:
        async with AsyncExitStack() as stack:
            services = await open_services(config, plugins, stack)
            server = _Announcing(uvicorn_config(config, app_of(services)), services, announce=False)
            server.started_future = started
            await server.serve([listening])
    except BaseException as error:
        # Whatever stops the start is raised where the gateway was asked for.
        if started.done():
            raise
        started.set_exception(error)


class _Announcing(GatewayServer):
    """Tells another thread when it listens."""

    started_future: Future[tuple[GatewayServer, Services]]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals belong to the main thread, and this server to whoever started it

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        self.started_future.set_result((self, self._services))


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


def to_toml(table: Mapping[str, Any]) -> str:
    """A mapping as TOML, one line for each top-level key; None is left out."""
    pairs = [(key, value) for key, value in table.items() if value is not None]
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in pairs)


def _key(key: str) -> str:
    return key if _BARE_KEY.match(key) else _value(key)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            # JSON's escapes are TOML's, but for one control character that JSON leaves as it is.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case Path():
            return _value(str(value))
        case int() | float():
            return repr(value)
        case Mapping():
            known = [(key, each) for key, each in value.items() if each is not None]
            return "{" + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in known) + "}"
        case Iterable():
            return "[" + ", ".join(map(_value, value)) + "]"
        case _:
            raise TypeError(f"TOML has no {type(value).__name__}")
