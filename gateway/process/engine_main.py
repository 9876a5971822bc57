"""The main program of an engine process: `python -m gateway.process.engine_main SOCKET PIPE`.

`SOCKET` and `PIPE` are file descriptors of a listening Unix socket and of the pipe for the heartbeat. The process
reads from standard input which engine to open (`HostStart`). The end of standard input means that the parent has
ended; this process then ends too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack

import msgspec

from gateway.base.errors import ConfigurationError
from gateway.engines.process.frames import HEAD, MAX_FRAME
from gateway.engines.process.heartbeat import HeartbeatWriter
from gateway.engines.process.starting import HostStart
from gateway.plugins.protocols import Engine, FormatAwareEngine

logger = logging.getLogger("gateway.process.engine_main")

_STUCK_SECONDS = 2.0
"""Seconds after the deadline for ending at which a stuck process is killed."""


def main() -> None:
    """Serve the engine until no server process needs it."""
    for number in (signal.SIGINT, getattr(signal, "SIGHUP", None)):
        # A terminal sends these signals to the whole process group. The parent decides what to do.
        if number is not None:
            signal.signal(number, lambda *_: None)
    listening = socket.socket(fileno=int(sys.argv[1]))
    listening.set_inheritable(False)
    heartbeat = HeartbeatWriter(int(sys.argv[2]))
    start = _read_start()
    if start is None:
        return
    sys.path[:] = start.path
    if sys.platform == "linux":
        from gateway.process.parent_watch import terminate_with_parent

        terminate_with_parent(start.parent)
    # Imported only now, because the modules may be on that path.
    from gateway.process.event_loop import new_event_loop
    from gateway.process.logs import set_up_logging

    settings = start.settings
    set_up_logging(settings.log_level, settings.secrets, log_format=settings.log_format)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(start, listening, heartbeat))


def _read_start() -> HostStart | None:
    """The start message of the parent; None if the parent has ended."""
    head = _read(HEAD)
    if head is None:
        return None
    payload = _read(min(int.from_bytes(head, "big"), MAX_FRAME))
    return None if payload is None else msgspec.msgpack.decode(payload, type=HostStart)


def _read(size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            return None
        data += more
    return data


async def _serve(start: HostStart, listening: socket.socket, heartbeat: HeartbeatWriter) -> None:
    from gateway.base.task_context import running_task
    from gateway.process.engine_host import EngineHost
    from gateway.process.stop_watchdog import end_in_time

    async def open_engine(stack: AsyncExitStack) -> Engine:
        engine = await _opened(start, stack)
        # Beat only while the engine is open: it may block the event loop while it is opened or closed.
        await stack.enter_async_context(running_task(heartbeat.beat()))
        return engine

    seconds = start.settings.end_seconds
    host = EngineHost(start.spec.name, open_engine)
    loop = asyncio.get_running_loop()

    def told_to_end() -> None:
        # The kernel also sends the signal when the parent has ended. Server processes then let their requests run.
        end = host.drain if os.getppid() == start.parent else host.stop
        end(seconds)

    loop.add_signal_handler(signal.SIGTERM, told_to_end)
    end_in_time(seconds + _STUCK_SECONDS, [signal.SIGTERM])

    def parent_ended() -> None:
        loop.remove_reader(0)
        host.stop(seconds)

    loop.add_reader(0, parent_ended)
    await host.serve(listening)


async def _opened(start: HostStart, stack: AsyncExitStack) -> Engine:
    """Open the engine within `stack`. Raises `ConfigurationError`."""
    from gateway.plugins.loading import load_plugins
    from gateway.process.server import tune_garbage_collector
    from gateway.startup.model_opening import finish_opening, open_engine
    from gateway.startup.model_plan import resolve_model

    spec = start.spec
    plan = resolve_model(spec.name, spec.config, load_plugins(spec.plugins))
    context = msgspec.structs.replace(plan.context, compile_seconds=spec.compile_seconds)
    plan = msgspec.structs.replace(plan, context=context)
    engine = await open_engine(plan, stack)
    if "messages" in engine.capabilities:
        raise ConfigurationError(
            f"models.{spec.name}.process: the engine {plan.engine.name!r} takes messages, and so runs in the server process: set "
            'process = "server".'
        )
    if isinstance(engine, FormatAwareEngine):
        engine.use_format(finish_opening(plan, engine).output_format)
    tune_garbage_collector()
    return engine


if __name__ == "__main__":
    main()
