"""Running a real gateway in a thread, for tests of the HTTP API."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from gateway.config import Config, load_config
from gateway.http.app import app_of
from gateway.plugins.loading import PluginSet, load_plugins
from gateway.process.listening import address, bound
from gateway.process.server import GatewayServer, uvicorn_config
from gateway.services import Services
from gateway.startup.service_opening import open_services

START_SECONDS = 120.0
"""Time limit for opening the engines, in seconds."""


T = TypeVar("T")
Started: TypeAlias = tuple[GatewayServer, Services, asyncio.AbstractEventLoop]


class RunningGateway:
    """A gateway that runs on this machine."""

    def __init__(self, base_url: str, services: Services, loop: asyncio.AbstractEventLoop) -> None:
        self.base_url = base_url
        """The base URL of the API: `http://127.0.0.1:…/v1`."""
        self.services = services
        """The open services, for tests that inspect an engine or the store: `services.models["m"].engine`."""

        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the server's event loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def client(self, **options: Any) -> Any:
        """An `openai.OpenAI` client without retries; requires the package. Close it, or use it in a `with`."""
        from openai import OpenAI

        return OpenAI(**{"base_url": self.base_url, "api_key": "none", "max_retries": 0, **options})

    def async_client(self, **options: Any) -> Any:
        """An `openai.AsyncOpenAI` client without retries; requires the package. Close it, or use it in an `async
        with`."""
        from openai import AsyncOpenAI

        known = {"base_url": self.base_url, "api_key": "none", "max_retries": 0}
        return AsyncOpenAI(**{**known, **options})


@contextmanager
def run_gateway(
    config: Mapping[str, Any] | str,
    folder: Path,
    *,
    plugins: Iterable[object] = (),
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Iterator[RunningGateway]:
    """Serve `config` in a thread, on a free port, until the context is left.

    `config` is the text of a `gateway.toml`, or the same as a mapping. It is written to a file in `folder`; relative
    paths refer to this folder. The store is `memory` if `config` names no store. `plugins` are modules or objects with
    hooks that are not installed as plugins. `loop_factory` creates the event loop; by default it is asyncio's. Raises
    any error of the start, such as `ConfigurationError`.
    """
    path = folder / "gateway.toml"
    path.write_text(config if isinstance(config, str) else to_toml(config), encoding="utf-8")
    decoded = load_config(path, {}, server={"port": 0}, default_store="memory")
    loaded = load_plugins(decoded.plugins, extra=plugins)
    with bound(decoded) as listening:
        started: Future[Started] = Future()
        thread = threading.Thread(
            target=lambda: _run(_serve(decoded, loaded, listening, started), loop_factory),
            name="gateway",
            daemon=True,
        )
        thread.start()
        server, services, loop = started.result(START_SECONDS)
        try:
            yield RunningGateway(f"{address(listening)}/v1", services, loop)
        finally:
            server.should_exit = True
            thread.join()


def _run(
    serving: Coroutine[Any, Any, None],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(serving)


async def _serve(
    config: Config,
    plugins: PluginSet,
    listening: Any,
    started: Future[Started],
) -> None:
    try:
        async with AsyncExitStack() as stack:
            services = await open_services(config, plugins, stack)
            settings = uvicorn_config(config, app_of(services))
            server = _Announcing(settings, services, announce=False)
            server.started_future = started
            await server.serve([listening])
    except BaseException as error:
        # An error that stops the start is raised to the caller.
        if started.done():
            raise
        started.set_exception(error)


class _Announcing(GatewayServer):
    """A server that notifies another thread when it listens."""

    started_future: Future[Started]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # only the main thread can handle signals, and the caller stops this server

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        self.started_future.set_result((self, self._services, asyncio.get_running_loop()))


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


def to_toml(table: Mapping[str, Any]) -> str:
    """A mapping as TOML, one line for each top-level key. None values are omitted."""
    pairs = [(key, value) for key, value in table.items() if value is not None]
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in pairs)


def _key(key: str) -> str:
    return key if _BARE_KEY.match(key) else _value(key)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            # The escapes of TOML and JSON are the same, except for one control character that JSON
            # does not escape.
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
