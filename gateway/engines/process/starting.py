"""Starts engines' processes, and starts them again when they have died."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.base.temporary_folders import TemporaryFolder
from gateway.config import LogFormat, LogLevel, ModelConfig, PluginsConfig
from gateway.engines.process.frames import framed
from gateway.engines.process.heartbeat import HeartbeatReader, wait_for_end

logger = logging.getLogger("gateway.engines.process.starting")

HOST_MODULE: Final = "gateway.process.engine_main"
"""The module that the process runs."""
MAX_FAILURES: Final = 6
"""Number of successive deaths of a process after which it is not started again."""
STABLE_SECONDS: Final = 60.0
"""Seconds that a process must live so that earlier deaths no longer count."""
_LONGEST_WAIT: Final = 30.0
AGAIN_SECONDS: Final = 1.0
"""Seconds to wait after the system could not start a process."""
CLOSE_SECONDS: Final = 2.0
"""Seconds that the processes may take to end when the server ends, once no server process is connected."""


class EngineSpec(Struct, frozen=True, kw_only=True):
    """The model and plugins that a process opens. Server processes with equal specifications share one process."""

    name: str
    """The model's name."""
    config: ModelConfig
    """The model's configuration, including the name of the engine."""
    plugins: PluginsConfig
    compile_seconds: float


class HostSettings(Struct, frozen=True, kw_only=True):
    """The settings of all engine processes."""

    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
    secrets: list[str] = []
    """Texts that are removed from log lines."""
    end_seconds: float = 20.0
    """Seconds after the server's end, or after a stop signal, after which the process is killed."""
    timeout: float = 0.0
    """The setting `engine_process_timeout`."""


class HostStart(Struct, frozen=True, kw_only=True):
    """The first frame that a process reads."""

    spec: EngineSpec
    settings: HostSettings
    path: list[str]
    """Python's module path."""
    parent: int
    """Process id of the parent."""


class StartLater(Exception):
    """The process has died or could not be started. It can be started again after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class NotStarted(Exception):
    """The process will not be started. The message is a sentence with the reason."""


class EngineStarter(Protocol):
    """Starts engines' processes."""

    async def start(self, spec: EngineSpec) -> str:
        """Start the process unless it is running, and return the path of its socket.

        Raises `StartLater` or `NotStarted`.
        """
        ...


class _Process:
    """The state of the process for one `EngineSpec`, including the failures of earlier processes."""

    def __init__(self) -> None:
        self.running: subprocess.Popen[bytes] | None = None
        self.path = ""
        self.began = 0.0
        self.failures = 0
        self.retry_at = 0.0


class EngineProcesses:
    """The engines' processes that this process has started. The methods may be called in any thread.

    On Linux, the processes receive a signal when the thread that called `start` ends.
    """

    def __init__(self, settings: HostSettings) -> None:
        self._settings = settings
        self._folder: TemporaryFolder | None = None
        self._numbers = itertools.count(1)
        self._processes: dict[bytes, _Process] = {}
        self._lock = threading.Lock()
        self._stopping = False

    def start_now(self, spec: EngineSpec) -> str:
        """See `EngineStarter.start`."""
        key = hashlib.sha256(msgspec.msgpack.encode(spec)).digest()
        with self._lock:
            if self._stopping:
                raise NotStarted("The server is shutting down.")
            process = self._processes.setdefault(key, _Process())
            if process.running is not None:
                return process.path
            if process.failures >= MAX_FAILURES:
                raise NotStarted(
                    f"The engine's process has ended {process.failures} times in succession, and is not started again. The log "
                    "says why; restart the server."
                )
            if (wait := process.retry_at - time.monotonic()) > 0:
                raise StartLater(wait)
            self._start(process, spec)
            return process.path

    async def start(self, spec: EngineSpec) -> str:
        """See `EngineStarter.start`. Starts the process in the thread of the event loop."""
        return self.start_now(spec)

    def _start(self, process: _Process, spec: EngineSpec) -> None:
        if self._folder is None:
            self._folder = TemporaryFolder("litegate-engines")
        path = self._folder.path / f"{next(self._numbers)}.sock"
        host_start = HostStart(
            spec=spec, settings=self._settings, path=list(sys.path), parent=os.getpid()
        )
        try:
            running, heartbeat = self._run(path)
        except OSError as error:  # such as too many open files
            path.unlink(missing_ok=True)
            logger.error(  # noqa: TRY400  # a sentence, not a trace
                "model %s: its engine's process could not be started: %s", spec.name, error
            )
            raise StartLater(AGAIN_SECONDS) from error
        process.running, process.path, process.began = running, str(path), time.monotonic()
        assert running.stdin is not None
        try:
            # Never closed while this process lives: the other process notices the closed pipe and ends.
            running.stdin.write(framed(msgspec.msgpack.encode(host_start)))
            running.stdin.flush()
        except OSError:  # the process has ended already
            pass
        logger.info("model %s: its engine runs in process %s", spec.name, running.pid)
        threading.Thread(
            target=self._wait, args=(process, running, heartbeat, path, spec.name), daemon=True,
            name=f"engine-{running.pid}",
        ).start()  # fmt: skip

    @staticmethod
    def _run(path: Path) -> tuple[subprocess.Popen[bytes], HeartbeatReader]:
        """Start a process that listens on a socket at `path`. Returns the process and its heartbeat. Raises `OSError`,
        and `ConfigurationError` if the socket cannot be created."""
        with socket.socket(socket.AF_UNIX) as listening:
            try:
                listening.bind(str(path))
            except OSError as error:
                raise ConfigurationError(
                    f"The socket {path} cannot be made: {error.strerror or error}. Set TMPDIR to another folder."
                ) from error
            path.chmod(0o600)
            listening.listen(128)
            number = listening.fileno()
            reading, writing = os.pipe()
            try:
                running = subprocess.Popen(  # noqa: S603  # our own module
                    [sys.executable, "-P", "-m", HOST_MODULE, str(number), str(writing)],
                    stdin=subprocess.PIPE,
                    stdout=2,
                    pass_fds=(number, writing),
                )
            except BaseException:
                os.close(reading)
                raise
            finally:
                os.close(writing)
            return running, HeartbeatReader(reading)

    def _wait(
        self,
        process: _Process,
        running: subprocess.Popen[bytes],
        heartbeat: HeartbeatReader,
        path: Path,
        name: str,
    ) -> None:
        def silent() -> bool:
            if self._stopping:  # `stop` kills processes that do not end
                return False
            logger.error(
                "model %s: its engine's process %s has not run its event loop for %g s (engine_process_timeout) and was killed",
                name, running.pid, self._settings.timeout,
            )  # fmt: skip
            return True

        code = wait_for_end(running, heartbeat, self._settings.timeout, silent)
        heartbeat.close()
        path.unlink(missing_ok=True)
        with self._lock:
            if running.stdin is not None:
                running.stdin.close()
            process.running = None
            if code == 0:
                process.failures = 0
                return
            now = time.monotonic()
            if now - process.began >= STABLE_SECONDS:
                process.failures = 0
            process.failures += 1
            process.retry_at = now + min(_LONGEST_WAIT, 0.5 * 2.0 ** (process.failures - 1))
            if not self._stopping:
                logger.error("model %s: its engine's process %s ended with code %s", name, running.pid, code)  # fmt: skip

    async def close(self) -> None:
        """Call `stop` without blocking the event loop."""
        if any(each.running is not None for each in self._processes.values()):
            await asyncio.to_thread(self.stop, CLOSE_SECONDS)
        elif self._folder is not None:
            self._folder.remove()

    def stop(self, seconds: float) -> None:
        """Terminate all processes, and kill those that do not end within `seconds`. Blocks. Processes cannot be started
        afterwards."""
        with self._lock:
            self._stopping = True
            left = [each.running for each in self._processes.values() if each.running is not None]
            for running in left:
                running.terminate()
        end = time.monotonic() + seconds
        for running in left:
            try:
                running.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                logger.error(  # noqa: TRY400  # a sentence, not a trace
                    "the engine's process %s did not end in time and was killed", running.pid
                )
                running.kill()
                running.wait()
        if self._folder is not None:
            self._folder.remove()
