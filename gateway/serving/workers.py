"""Several worker processes on one listening socket."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from types import FrameType

from gateway.config import Config
from gateway.errors import ConfigurationError

logger = logging.getLogger("gateway.serving.workers")

RESTART_SECONDS = 1.0
"""A worker that dies sooner after its start than this is not started again: it would die for ever."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where there is uvloop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_workers(config: Config, listening: socket.socket) -> int:
    """Run `config.server.workers` processes until a signal; start again what dies. The exit code.

    Each worker opens its own engines, tools and store. Metrics of all are added up at whichever is scraped.
    """
    if config.server.store == "memory":
        raise ConfigurationError(
            'workers > 1 needs a store that the workers share, and memory is one process\'s own: set store = "redis" '
            'or store = "none" under [server].'
        )
    with tempfile.TemporaryDirectory(prefix="gateway-metrics-") as metrics:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = metrics
        return _Supervisor(config, listening).run()


def _worker(config: Config, listening: socket.socket, announce: bool) -> None:
    from gateway.cli.logs import set_up_logging
    from gateway.plugins import load_plugins
    from gateway.serving.server import serve

    set_up_logging(config.server.log_level)
    try:
        code = serve(config, load_plugins(config.plugins), listening, announce=announce)
    except ConfigurationError as error:
        logger.error("%s", error)  # noqa: TRY400  # a sentence, not a trace
        code = 2
    raise SystemExit(code)


class _Supervisor:
    def __init__(self, config: Config, listening: socket.socket) -> None:
        self._config = config
        self._listening = listening
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[BaseProcess, float] = {}
        self._stopping = False

    def run(self) -> int:
        restore: list[tuple[signal.Signals, Callable[[int, FrameType | None], object] | int | None]]
        restore = [
            (sig, signal.signal(sig, self._pass_on)) for sig in (signal.SIGINT, signal.SIGTERM)
        ]
        try:
            for number in range(self._config.server.workers):
                self._start(announce=number == 0)
            failed = self._watch()
        finally:
            for process in self._workers:
                process.terminate()
            for process in self._workers:
                process.join()
            for sig, handler in restore:
                signal.signal(sig, handler)
        return 1 if failed else 0

    def _start(self, *, announce: bool = False) -> None:
        process = self._context.Process(
            target=_worker, args=(self._config, self._listening, announce)
        )
        process.start()
        self._workers[process] = time.monotonic()

    def _watch(self) -> bool:
        """Until all workers have ended; whether one could not be kept running."""
        failed = False
        while self._workers:
            multiprocessing.connection.wait([p.sentinel for p in self._workers], timeout=1.0)
            for process in [p for p in self._workers if not p.is_alive()]:
                lived = time.monotonic() - self._workers.pop(process)
                if self._stopping or failed:
                    continue
                if process.exitcode == 2 or lived < RESTART_SECONDS:
                    failed = True
                    for other in self._workers:
                        other.terminate()
                    continue
                logger.error("a worker ended with code %s; starting another", process.exitcode)
                self._start()
        return failed

    def _pass_on(self, sig: int, frame: FrameType | None) -> None:
        # A terminal's Ctrl-C reaches the workers by itself; a signal to this process alone is passed on.
        self._stopping = True
        if sig == signal.SIGTERM:
            for process in self._workers:
                process.terminate()
