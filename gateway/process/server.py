"""Runs the application with uvicorn. At shutdown, streams end with a terminal event instead of breaking off."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import multiprocessing
import os
import signal
import socket
import ssl
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn
from litestar import Litestar

from gateway.base.errors import ConfigurationError, GatewayError, ServerShuttingDown
from gateway.base.task_context import running_task
from gateway.config import Config
from gateway.config.redaction import secrets_of
from gateway.config.reloading import ConfigSource, changes
from gateway.engines.process.starting import EngineProcesses, EngineStarter
from gateway.http.app import app_of
from gateway.http.connections.connections import Connections, ServingConfig
from gateway.http.connections.http_protocol import LimitedHttpProtocol
from gateway.http.connections.request_starts import RequestStarts
from gateway.http.connections.websocket_protocol import LimitedWebSocketProtocol
from gateway.models.model_slot import ModelSlot, ModelUse
from gateway.plugins.loading import PluginSet, load_plugins
from gateway.process.banner import banner
from gateway.process.certificates import WatchedCertificates
from gateway.process.descriptors import close_all_on_exec
from gateway.process.engine_control import SupervisorStarter
from gateway.process.event_loop import new_event_loop
from gateway.process.listening import address, bound_all, listen
from gateway.process.logs import set_up_logging
from gateway.process.memory import memory_trimmer
from gateway.process.parent_watch import end_with_parent
from gateway.process.service_manager import notify
from gateway.process.stop_signals import HANGUP, leave_hangup, stop_signals, terminal_is_gone
from gateway.process.stop_watchdog import end_in_time, ignore_further
from gateway.process.worker_sockets import WorkerSockets
from gateway.process.worker_watch import Heartbeat
from gateway.process.workers import END_SECONDS, host_settings, run_workers
from gateway.services import NamedApi, Services
from gateway.startup.selection import check_configuration
from gateway.startup.service_opening import open_services

logger = logging.getLogger("gateway.process.server")

FINAL_SECONDS = 3
"""How long the terminal events of stopped streams may take to be written after the grace period, in seconds."""
CLOSING_SECONDS = 1
"""How long connections may then take to close, in seconds."""


def _has_page(apis: Iterable[NamedApi]) -> bool:
    """Whether an API has a page for browsers at `/`."""
    routes = (route for each in apis for route in each.api.routes)
    return any((route.method, route.path) == ("GET", "/") for route in routes)


class GatewayServer(uvicorn.Server):
    """uvicorn's server with a graceful stop.

    After a stop signal (`gateway.process.stop_signals`), it accepts no more connections and waits for running
    responses, at most for the grace period. Then it ends the rest, whose streams get a terminal event. A second
    Ctrl-C or SIGTERM ends the server immediately.
    """

    def __init__(
        self,
        config: ServingConfig,
        services: Services,
        *,
        announce: bool,
        source: ConfigSource | None = None,
    ) -> None:
        """`source`: the configuration that SIGHUP reads again. Without it, SIGHUP stops the server."""
        super().__init__(config)
        self._source = source
        self._reload_asked = False
        self._reloading: asyncio.Task[None] | None = None
        self._limits, self._starts = config.limits, config.starts
        self._services = services
        self._certificates = (
            WatchedCertificates(services.config.server, config, services.metrics.certificate_expiry)
            if config.is_ssl
            else None
        )
        self._watching = AsyncExitStack()
        self._memory = memory_trimmer()
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for each in sockets or ():
            listen(each, self.config.backlog)
        await super().startup(sockets)
        if self._certificates is not None:
            await self._watching.enter_async_context(self._certificates.watched())
        if self.started and self._announce and sockets:
            slots = sorted(self._services.slots.slots.values(), key=_suits_an_example)
            uses = slots[0].uses or frozenset(("generates",))
            example: ModelUse = next(each for each in _EXAMPLES if each in uses)
            names = [name for slot in slots for name in slot.names]
            url = address(sockets[0], tls=self.config.is_ssl)
            unix_socket = self._services.config.server.unix_socket
            needs_key = self._services.authenticator.needs_key
            text = banner(
                url,
                names,
                use=example,
                unix_socket=unix_socket,
                needs_key=needs_key,
                page=_has_page(self._services.apis),
            )
            print(text, flush=True)
            notify("READY=1")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Like uvicorn's method, but does not raise the signal again afterwards: a clean stop is not a failure.
        signals = stop_signals()
        handlers = {sig: signal.signal(sig, self.handle_exit) for sig in signals}
        if self._source is not None and HANGUP is not None:
            handlers.setdefault(HANGUP, signal.signal(HANGUP, self._hang_up))
            signals = [sig for sig in signals if sig != HANGUP]
        end_in_time(self._services.config.server.grace_period + END_SECONDS, signals)
        try:
            yield
        finally:
            for sig, handler in handlers.items():
                signal.signal(sig, handler)

    def _hang_up(self, sig: int, frame: FrameType | None) -> None:
        """Handle SIGHUP: read the configuration again; but stop the server if its terminal was closed."""
        if terminal_is_gone() and multiprocessing.parent_process() is None:
            self.should_exit = True
        else:
            self._reload_asked = True

    async def _reload(self, source: ConfigSource) -> None:
        services = self._services
        before = services.config
        assert services.reload is not None, "the services are open"
        logger.info("reading the configuration again")
        if self._certificates is not None:
            await self._certificates.read_again()
        try:
            config = await asyncio.to_thread(source.read)
            secrets = secrets_of(services.config, os.environ) | secrets_of(config, os.environ)
            self._log(secrets)
            await services.reload(config)
        except ConfigurationError as error:
            logger.error("the configuration stays as it was: %s", error)  # noqa: TRY400  # a sentence, not a trace
        except GatewayError as error:
            logger.warning("the configuration stays as it was: %s", error.message)
        except Exception:  # the server goes on in any case
            logger.exception("the configuration stays as it was")
        else:
            self._log(secrets)
            what = ", ".join(changes(before, services.config)) or "no setting"
            logger.info("the configuration of %s is used now; changed: %s", config.source, what)

    def _log(self, secrets: Iterable[str]) -> None:
        server = self._services.config.server
        set_up_logging(server.log_level, secrets, log_format=server.log_format)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == HANGUP:
            ignore_further(sig)
            self.should_exit = True
            return
        if self.should_exit:
            self.force_exit = True  # the second time, whichever signal
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        services = self._services
        # Requests that have arrived are not refused: begin them, and let their tasks run once.
        self._starts.begin_all()
        await asyncio.sleep(0)
        services.draining = True
        if self._announce:
            notify("STOPPING=1")
        if self._reloading is not None:
            self._reloading.cancel()
            await asyncio.wait((self._reloading,))
        for server in self.servers:
            server.close()
        await self._watching.aclose()
        stopped = ServerShuttingDown("The server was shut down before the response was complete.")
        if services.background is not None:
            services.background.stop(stopped)
        if services.runs:
            grace = services.config.server.grace_period
            logger.info("waiting up to %g s for %d running responses", grace, len(services.runs))
            await self._until_idle(grace)
        if services.runs:
            logger.info("ending %d running responses", len(services.runs))
            services.stop_runs(stopped)
            await self._until_idle(FINAL_SECONDS)
        await super().shutdown(sockets)
        # Other workers continue to report this worker's metrics, even if it is killed while its services close. Closing
        # the services refreshes the metrics once more.
        services.metrics.refresh()

    async def on_tick(self, counter: int) -> bool:
        idle = self._reloading is None or self._reloading.done()
        if self._reload_asked and self._source is not None and idle:
            self._reload_asked = False
            self._reloading = asyncio.create_task(self._reload(self._source))
        if counter % 10 == 0:  # once a second
            now = asyncio.get_running_loop().time()
            self._limits.check(self.server_state.connections, now)  # type: ignore[arg-type]  # protocols of ours
            if self._memory is not None:
                self._memory.check(idle=not self._services.runs)
            if self._services.config.server.workers > 1:
                self._services.metrics.refresh()
            if (history := self._services.queue_history) is not None:
                history.sample(self._services.slots.slots.values())
        return await super().on_tick(counter)

    async def _until_idle(self, seconds: float) -> None:
        """Wait until no response runs, for at most `seconds`. A second signal ends the wait."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._services.runs and not self.force_exit and loop.time() < end:  # noqa: ASYNC110  # a signal's flag has no event to wait for
            await asyncio.sleep(0.05)


_EXAMPLES: Final[tuple[ModelUse, ...]] = ("generates", "embeds", "reranks")


def _suits_an_example(slot: ModelSlot) -> int:
    """Sort key: the model with the smallest number is the best for an example request."""
    if slot.state == "failed":
        return 3
    if slot.uses is None:
        return 1
    return 0 if "generates" in slot.uses else 2


def run(config: Config, plugins: PluginSet, source: ConfigSource | None = None) -> int:
    """Serve until stopped. Returns the exit code. Raises `ConfigurationError` if the configuration cannot be served.

    `source` is the source of `config`. If it is a file, SIGHUP reads it again.
    """
    file = None if source is None else source.file
    if file is None:
        source = None
    # Checked before any model is opened, which may take minutes.
    check_configuration(config, plugins)
    with bound_all(config) as listening, nullcontext() if file is None else findable(file):
        if config.server.workers > 1:
            return run_workers(config, plugins, listening, source, serve_as_worker)
        return serve(config, plugins, listening, source, announce=True)


def serve(
    config: Config,
    plugins: PluginSet,
    listening: Sequence[socket.socket],
    source: ConfigSource | None,
    *,
    announce: bool,
    starter: EngineStarter | None = None,
    worker_folder: Path | None = None,
    heartbeat: Heartbeat | None = None,
) -> int:
    """Serve on bound sockets in this process until a signal stops it. Returns the exit code.

    `announce`: whether to print the banner and notify the service manager. `starter` starts engine processes; by
    default, this process starts them. If this process is one of several workers, `worker_folder` is the folder of the
    workers' sockets, and `heartbeat` shows the supervisor that the event loop runs.
    """
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(
            _serve(config, plugins, listening, source, announce, starter, worker_folder, heartbeat)
        )


def serve_as_worker(
    config: Config,
    listening: Sequence[socket.socket],
    source: ConfigSource | None,
    announce: bool,
    control: str,
    heartbeat: Heartbeat,
) -> None:
    """Serve in a worker process that the supervisor has started (`gateway.process.workers`), and exit the process.

    `control` is the path of the supervisor's socket for engine processes.
    """
    end_with_parent()
    leave_hangup()
    close_all_on_exec()  # multiprocessing passes inheritable descriptors, including the listening socket
    set_up_logging(
        config.server.log_level,
        secrets_of(config, os.environ),
        log_format=config.server.log_format,
    )
    try:
        code = serve(
            config,
            load_plugins(config.plugins),
            listening,
            source,
            announce=announce,
            starter=SupervisorStarter(control),
            worker_folder=Path(control).parent,
            heartbeat=heartbeat,
        )
    except ConfigurationError as error:
        logger.error("%s", error)  # noqa: TRY400  # a sentence, not a trace
        code = 2
    raise SystemExit(code)


async def _serve(
    config: Config,
    plugins: PluginSet,
    listening: Sequence[socket.socket],
    source: ConfigSource | None,
    announce: bool,
    starter: EngineStarter | None,
    worker_folder: Path | None,
    heartbeat: Heartbeat | None,
) -> int:
    # Services are opened here, not in a lifespan, so that a mistake in the configuration causes no traceback.
    async with AsyncExitStack() as stack:
        if starter is None:
            starter = EngineProcesses(host_settings(config))
            stack.push_async_callback(starter.close)
        services = await open_services(
            config,
            plugins,
            stack,
            starter,
            opening=nullcontext if heartbeat is None else heartbeat.opening,
        )
        if worker_folder is not None:
            await stack.enter_async_context(WorkerSockets(worker_folder, services))
        if heartbeat is not None:
            await stack.enter_async_context(running_task(heartbeat.beat()))
        tune_garbage_collector()
        tune_thread_switches()
        settings = uvicorn_config(config, app_of(services))
        server = GatewayServer(settings, services, announce=announce, source=source)
        await server.serve(list(listening))
    return 0


def tune_garbage_collector() -> None:
    """Make the garbage collector ignore permanent objects, and run less often.

    A token creates a few short-lived objects and no cycles. With many open streams, the default thresholds traverse
    all of them several times a second. The youngest generation is collected after 5,000 objects, because a collection
    stops all threads: 50,000 objects of a large conversation take ten milliseconds. After that, an object is examined
    again only when a million more have been created.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 200, 50)


def tune_thread_switches() -> None:
    """Switch threads after half a millisecond instead of five, so that the event loop runs sooner while threads
    decode and render large bodies."""
    sys.setswitchinterval(0.0005)


def findable(file: Path) -> AbstractContextManager[None]:
    """A context manager within which `gateway reload` finds this process by the configuration file."""
    if os.name != "posix":
        return nullcontext()
    from gateway.process.pid_file import pid_file

    return pid_file(file)


def uvicorn_config(config: Config, app: Litestar) -> ServingConfig:
    """Create uvicorn's settings. Raises `ConfigurationError` if the TLS files cannot be used."""
    server = config.server
    starts = RequestStarts(app)
    settings = ServingConfig(
        starts,
        interface="asgi3",
        http=LimitedHttpProtocol,
        ws=LimitedWebSocketProtocol,
        ws_max_size=min(server.max_body_bytes, server.max_websocket_bytes),
        ws_per_message_deflate=False,  # a small message could unpack to a thousand times its size
        lifespan="off",
        access_log=False,  # `gateway.observe.request_log` logs requests
        log_config=None,
        log_level=server.log_level.lower(),
        server_header=False,
        proxy_headers=False,  # uvicorn's client address is not used
        timeout_keep_alive=math.ceil(server.keep_alive),
        timeout_graceful_shutdown=CLOSING_SECONDS,
        ssl_certfile=server.tls_certificate,
        ssl_keyfile=server.tls_key,
        ssl_ca_certs=server.tls_client_ca,
        ssl_cert_reqs=ssl.CERT_NONE if server.tls_client_ca is None else ssl.CERT_REQUIRED,
    )
    if server.tls_certificate is not None:
        try:
            if not settings.loaded:
                settings.load()
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"server.tls_certificate, tls_key or tls_client_ca cannot be used: {error}."
            ) from error
    settings.limits, settings.starts = Connections(server), starts
    return settings
