"""The supervisor of several worker processes that share the listening sockets."""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import TypeAlias

from prometheus_client.multiprocess import mark_process_dead

from gateway.base.errors import ConfigurationError
from gateway.base.temporary_folders import TemporaryFolder
from gateway.config import Config
from gateway.config.redaction import secrets_of
from gateway.config.reloading import ConfigSource, reloaded
from gateway.engines.process.starting import EngineProcesses, HostSettings
from gateway.observe.stall_watch import STALL_SECONDS, BeatWatch, StallWatch
from gateway.plugins.loading import PluginSet
from gateway.process.engine_control import EngineControl
from gateway.process.stop_signals import HANGUP, stop_signals, terminal_is_gone
from gateway.process.worker_watch import Heartbeat
from gateway.startup.selection import select

logger = logging.getLogger("gateway.process.workers")

END_SECONDS = 5
"""Seconds after the grace period at which a process is forcibly ended (see `gateway.process.stop_watchdog`)."""
SPARE_SECONDS = 1.0
"""Additional seconds that the supervisor waits for workers, which normally end by themselves."""
RESTART_SECONDS = 1.0
"""If a worker dies within this many seconds after its start, the server stops, because a new worker would die too."""

Worker: TypeAlias = Callable[
    [Config, Sequence[socket.socket], ConfigSource | None, bool, str, Heartbeat], None
]
"""The function that each worker process runs; it must be importable from a module. Arguments: the configuration, the
bound sockets, the source that SIGHUP reads again, whether to announce the server, the path of the supervisor's socket
for engine processes, and the heartbeat."""


@dataclass
class _Started:
    at: float
    watch: BeatWatch
    killed: bool = False
    """Whether the worker hung and was killed. It may still take long to end, for example if it waits for a disk."""


def run_workers(
    config: Config,
    plugins: PluginSet,
    listening: Sequence[socket.socket],
    source: ConfigSource | None,
    worker: Worker,
) -> int:
    """Run `worker` in `config.server.workers` processes until a signal. Returns the exit code.

    Workers that die or hang (`worker_timeout`) are restarted. If there is a `source`, SIGHUP makes the workers read
    it again. The workers share the engines, which run in processes of their own; each worker opens its own tools and
    store. A metrics scrape of any worker returns the sum over all workers.
    """
    processes = EngineProcesses(host_settings(config))
    with (
        TemporaryFolder("gateway-metrics") as metrics,
        EngineControl(processes) as control,
    ):
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(metrics)
        return _Supervisor(
            config, plugins, listening, source, processes, control.path, worker
        ).run()


def host_settings(config: Config) -> HostSettings:
    """The settings of engine processes."""
    server = config.server
    return HostSettings(
        log_level=server.log_level,
        log_format=server.log_format,
        secrets=sorted(secrets_of(config, os.environ)),
        end_seconds=server.grace_period + END_SECONDS,
        timeout=server.engine_process_timeout,
    )


class _Supervisor:
    def __init__(
        self,
        config: Config,
        plugins: PluginSet,
        listening: Sequence[socket.socket],
        source: ConfigSource | None,
        processes: EngineProcesses,
        control: str,
        worker: Worker,
    ) -> None:
        self._config = config
        self._worker = worker
        self._processes = processes
        self._control = control
        self._plugins = plugins
        self._source = source
        self._reload_asked = False
        self._listening = listening
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[BaseProcess, _Started] = {}
        self._stalls = StallWatch()
        self._stopping = False
        self._end: float | None = None
        """Time at which remaining workers are killed. They normally end earlier by themselves
        (`gateway.process.stop_watchdog`)."""

    def run(self) -> int:
        restore: list[tuple[signal.Signals, Callable[[int, FrameType | None], object] | int | None]]
        restore = [(sig, signal.signal(sig, self._pass_on)) for sig in stop_signals()]
        try:
            for number in range(self._config.server.workers):
                self._start(announce=number == 0)
            failed = self._watch()
        finally:
            for process in self._workers:
                process.terminate()
            self._stop_by(self._last_end())
            for process in self._workers:
                process.join(max(0.0, (self._end or 0.0) - time.monotonic()))
            self._kill_rest()
            # The workers have ended, so engine processes are no longer used and end by themselves.
            self._processes.stop(max(0.5, (self._end or 0.0) - time.monotonic()))
            for sig, handler in restore:
                signal.signal(sig, handler)
        return 1 if failed else 0

    def _start(self, *, announce: bool = False) -> None:
        heartbeat = Heartbeat(self._context)
        process = self._context.Process(
            target=self._worker,
            args=(
                self._config, self._listening, self._source, announce, self._control, heartbeat,
            ),
        )  # fmt: skip
        process.start()
        watch = BeatWatch(lambda: heartbeat.beats, self._config.server.worker_timeout)
        self._workers[process] = _Started(time.monotonic(), watch)

    def _watch(self) -> bool:
        """Wait until all workers have ended. Returns whether one could not be kept running."""
        failed = False
        while self._workers:
            multiprocessing.connection.wait([p.sentinel for p in self._workers], timeout=1.0)
            self._kill_rest()
            self._kill_silent()
            if self._reload_asked:
                self._reload_asked = False
                self._reload()
            for process in [p for p in self._workers if not p.is_alive()]:
                lived = time.monotonic() - self._workers.pop(process).at
                # Otherwise the requests that ran when it was killed would be reported as running.
                mark_process_dead(process.pid)  # type: ignore[no-untyped-call]  # the library has no types
                if self._stopping or failed:
                    continue
                if process.exitcode == 2 or lived < RESTART_SECONDS:
                    failed = True
                    self._stop_by(self._last_end())
                    for other in self._workers:
                        other.terminate()
                    continue
                logger.error(
                    "worker %s ended with code %s; starting another", process.pid, process.exitcode
                )
                self._start()
        return failed

    def _kill_silent(self) -> None:
        """Kill the workers whose event loop has not run for `worker_timeout`. A stopped process handles only
        SIGKILL."""
        stalled = self._stalls.stalled(STALL_SECONDS)
        for process, started in self._workers.items():
            if stalled:
                started.watch.begin_anew()
            elif not self._stopping and not started.killed and started.watch.silent():
                seconds = self._config.server.worker_timeout
                logger.error(
                    "worker %s has not run its event loop for %g s (worker_timeout) and was killed",
                    process.pid, seconds,
                )  # fmt: skip
                process.kill()
                started.killed = True

    def _reload(self) -> None:
        """Let the workers read the configuration again. If it has no mistake, workers that start later use it too."""
        assert self._source is not None, "asked for only where there is one"
        for process in self._workers:
            if process.pid is not None and HANGUP is not None:
                os.kill(process.pid, HANGUP)
        try:
            wanted = self._source.read()
            select(wanted, self._plugins)
        except ConfigurationError:
            return  # the workers log it
        self._config = reloaded(self._config, wanted)

    def _pass_on(self, sig: int, frame: FrameType | None) -> None:
        if sig == HANGUP and self._source is not None and not terminal_is_gone():
            self._reload_asked = True
            return
        # Workers receive Ctrl-C from the terminal directly; a signal to this process only must be forwarded.
        again, self._stopping = self._stopping, True
        self._stop_by(self._last_end())
        # A closed terminal may send SIGHUP more than once; a second SIGTERM would end the workers' streams.
        if sig == signal.SIGTERM or (sig == HANGUP and not again):
            for process in self._workers:
                process.terminate()

    def _last_end(self) -> float:
        return time.monotonic() + self._config.server.grace_period + END_SECONDS + SPARE_SECONDS

    def _stop_by(self, end: float) -> None:
        if self._end is None:
            self._end = end

    def _kill_rest(self) -> None:
        """Kill the workers that have not ended in time."""
        if self._end is None or time.monotonic() < self._end:
            return
        for process in self._workers:
            if process.is_alive():
                logger.error("worker %s did not end in time and was killed", process.pid)
                process.kill()
                process.join()
