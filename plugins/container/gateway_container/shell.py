"""The tools of containers: the API's `shell`, and gpt-oss's `container.exec` and `container.feed_chars`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from gateway.sdk import (
    ServerTool,
    SessionContext,
    ShellDetails,
    ToolCall,
    ToolResult,
    ToolServer,
    Unsupported,
)
from gateway.sdk.wire import ShellExit, ShellOutput, ShellTimeout, ShellTool
from gateway_container.citable import Citable
from gateway_container.config import ContainerConfig
from gateway_container.container import Container, SandboxUse
from gateway_container.containers import Containers
from gateway_container.requested import container_settings
from gateway_container.sandbox.answers import CommandResult, SessionOutput
from gateway_container.sandbox.process import SandboxEnded
from gateway_container.schemas import EXEC, FEED, SHELL, builtin

_SLACK = 20.0
"""Seconds beyond a command's own limit before the gateway abandons a call. Leaves time for files to be fetched and
stored."""
_MAX_COMMANDS = 8
_SESSION_WAIT = 1.0
"""Seconds to wait for a session's first output, if the model sets no limit."""
_SESSIONS = 8

_Milliseconds = Annotated[float, Meta(ge=0)]
_Name = Annotated[str, Meta(min_length=1, max_length=64)]


class ShellArguments(Struct, frozen=True):
    commands: Annotated[list[str], Meta(min_length=1, max_length=_MAX_COMMANDS)]
    timeout_ms: _Milliseconds | None = None
    max_output_length: Annotated[int, Meta(ge=1)] | None = None


class ExecArguments(Struct, frozen=True):
    cmd: Annotated[list[str], Meta(min_length=1, max_length=1000)]
    session_name: _Name | None = None
    workdir: str | None = None
    timeout: _Milliseconds | None = None
    env: dict[str, str] | None = None
    user: str | None = None


class FeedArguments(Struct, frozen=True):
    session_name: _Name = "main"
    chars: str = ""
    yield_time_ms: _Milliseconds = 100


ArgumentsT = TypeVar("ArgumentsT", ShellArguments, ExecArguments, FeedArguments)


class ShellServer(ToolServer):
    """The tools, in a given container or a new one for each response."""

    def __init__(
        self, config: ContainerConfig, containers: Containers, container: Container | None = None
    ) -> None:
        self.label = "container" if container is None else container.id
        self._config = config
        self._containers = containers
        self._container = container

    async def tools(self) -> Sequence[ServerTool]:
        """`shell` for requests that ask for it; the other tools for every request, if the configuration offers them."""
        seconds = self._config.time_limit + self._containers.seconds_to_start + _SLACK
        tools = [
            ServerTool(
                definition=SHELL, time_limit=seconds, request_type="shell", item_type="shell_call"
            )
        ]
        if self._config.offer:
            tools += [
                ServerTool(definition=each, builtin=builtin(each), time_limit=seconds)
                for each in (EXEC, FEED)
            ]
        return tools

    def check(self, context: SessionContext) -> ShellServer | None:
        """The server for the `environment` of a `shell` entry."""
        tool, owner = context.entry, context.owner
        if tool is None:
            return None
        found = tool.environment if isinstance(tool, ShellTool) else None
        requested: Mapping[str, Any] = found if isinstance(found, dict) else {}
        param = ("environment",)
        if requested.get("type") == "container_reference":
            container = self._containers.find(
                str(requested.get("container_id", "")), owner, (*param, "container_id")
            )
        elif requested.get("type", "container_auto") == "container_auto":
            container = self._containers.new(
                owner,
                container_settings(requested, self._containers.config, owner=owner, param=param),
            )
        else:
            raise Unsupported(
                f"Environments of type '{str(requested['type'])[:100]}' are not available here. Supported: container_auto, "
                "container_reference, local.",
                param=(*param, "type"),
            )
        return ShellServer(self._config, self._containers, container)

    @asynccontextmanager
    async def session(self, context: SessionContext) -> AsyncIterator[ShellSession]:
        container = self._container or self._containers.new(context.owner)
        async with self._containers.used(container):
            yield ShellSession(self._config, self._containers, container)


class ShellSession:
    """One response's use of a container."""

    def __init__(
        self, config: ContainerConfig, containers: Containers, container: Container
    ) -> None:
        self._config = config
        self._containers = containers
        self._container = container
        self._citable = Citable(containers, container)
        self._named: set[str] = set()

    async def call(self, call: ToolCall) -> ToolResult:
        name, arguments = call.name, call.arguments
        try:
            match name:
                case "shell":
                    return await self._shell(_decode(arguments, ShellArguments))
                case "container_exec":
                    return await self._exec(_decode(arguments, ExecArguments))
                case "container_feed_chars":
                    return await self._feed(_decode(arguments, FeedArguments))
        except msgspec.ValidationError as error:
            return _failed(f"Wrong arguments: {error}.")
        except SandboxEnded as ended:
            return _failed(str(ended))
        return _failed(f"There is no tool named '{name}'.")

    async def _shell(self, asked: ShellArguments) -> ToolResult:
        """Run command lines concurrently. Each has its own output and outcome."""
        limit = self._config.max_output_bytes
        length = min(asked.max_output_length or limit, limit)
        async with self._containers.working(self._container) as work:
            outcomes = await asyncio.gather(
                *(
                    work.sandbox.ask(
                        "run",
                        CommandResult,
                        seconds=self._seconds(asked.timeout_ms),
                        command=["/bin/sh", "-c", _clean(command)],
                        limit=length,
                    )
                    for command in asked.commands
                )
            )
        output = [_shell_output(ran) for ran in outcomes]
        text = "\n".join(_output_text(ran) for ran in outcomes)
        result = ToolResult(text=text, details=ShellDetails(output=output))
        return await self._with_files(result, work)

    async def _with_files(self, result: ToolResult, work: SandboxUse) -> ToolResult:
        """`result` with the files that the call has written."""
        text = "\n".join([result.text, *(f"[{note}]" for note in work.notes)]).lstrip("\n")
        return msgspec.structs.replace(
            result, text=text, container_files=await self._citable.after(work)
        )

    async def _exec(self, asked: ExecArguments) -> ToolResult:
        if asked.user not in (None, "", "user"):
            return _failed("Commands run as 'user' here. Leave 'user' out.")
        program: dict[str, Any] = {
            "command": [_clean(part) for part in asked.cmd],
            "folder": asked.workdir,
            "environment": asked.env,
            "limit": self._config.max_output_bytes,
        }
        if asked.session_name is None:
            async with self._containers.working(self._container) as work:
                ran = await work.sandbox.ask(
                    "run", CommandResult, seconds=self._seconds(asked.timeout), **program
                )
            failed = ran.timed_out or ran.failed is not None
            return await self._with_files(ToolResult(text=_output_text(ran), failed=failed), work)
        if len(self._named | {asked.session_name}) > _SESSIONS:
            return _failed(
                f"A response has at most {_SESSIONS} sessions. Use one of {sorted(self._named)}."
            )
        self._named.add(asked.session_name)
        wait = self._seconds(asked.timeout) if asked.timeout is not None else _SESSION_WAIT
        async with self._containers.working(self._container) as work:
            said = await work.sandbox.ask(
                "session", SessionOutput, seconds=wait, session=asked.session_name, **program
            )
        return await self._with_files(_session_result(said, asked.session_name), work)

    async def _feed(self, asked: FeedArguments) -> ToolResult:
        async with self._containers.working(self._container) as work:
            said = await work.sandbox.ask(
                "session",
                SessionOutput,
                seconds=self._seconds(asked.yield_time_ms),
                session=asked.session_name,
                chars=_clean(asked.chars),
                limit=self._config.max_output_bytes,
            )
        return await self._with_files(_session_result(said, asked.session_name), work)

    def _seconds(self, milliseconds: float | None) -> float:
        """The time limit that the model asks for, within the configured one."""
        requested = self._config.time_limit if milliseconds is None else milliseconds / 1000
        return min(requested, self._config.time_limit)


def _decode(arguments: dict[str, Any], into: type[ArgumentsT]) -> ArgumentsT:
    """Decode arguments leniently: a single command may be given without a list."""
    for key in ("commands", "cmd"):
        if isinstance(arguments.get(key), str):
            line = arguments[key]
            arguments = {**arguments, key: [line] if key == "commands" else ["/bin/sh", "-c", line]}
    return msgspec.convert(arguments, into, strict=False)


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _failed(text: str) -> ToolResult:
    return ToolResult(text=text, failed=True)


def _shell_output(ran: CommandResult) -> ShellOutput:
    """Output in the form of the `shell_call_output` item."""
    code = 127 if ran.code is None else _exit_code(ran.code)
    outcome = ShellTimeout() if ran.timed_out else ShellExit(exit_code=code)
    return ShellOutput(stdout=ran.stdout, stderr=ran.failed or ran.stderr, outcome=outcome)


def _exit_code(code: int) -> int:
    """The exit code as shells report it: 128 plus the signal number for a signal."""
    return code if code >= 0 else 128 - code


def _output_text(ran: CommandResult) -> str:
    if ran.failed is not None:
        return f"The command could not be run: {ran.failed}."
    if ran.timed_out:
        end = "[Stopped: its time was over.]"
    elif ran.code:
        end = f"[Exit code {_exit_code(ran.code)}.]"
    else:
        end = ""
    return "\n".join(
        text for text in (ran.stdout.rstrip("\n"), ran.stderr.rstrip("\n"), end) if text
    )


def _session_result(said: SessionOutput, name: str) -> ToolResult:
    if said.failed is not None:
        return _failed(f"{said.failed[:1].upper()}{said.failed[1:]}.")
    state = "goes on" if said.code is None else f"has ended with exit code {_exit_code(said.code)}"
    return ToolResult(text=f"{said.stdout}\n[The session '{name}' {state}.]".lstrip("\n"))
