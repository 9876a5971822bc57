"""The tools of containers: the API's `shell`, and what gpt-oss knows as `container.exec` and `container.feed_chars`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from gateway.errors import Unsupported
from gateway.protocols import ServedTool, ToolResult, ToolServer
from gateway.wire.tools import ShellTool, Tool
from gateway_container.citable import Citable
from gateway_container.config import ContainerConfig
from gateway_container.container import Container, Work
from gateway_container.containers import Containers
from gateway_container.requested import wished
from gateway_container.sandbox.answers import Ran, Said
from gateway_container.sandbox.process import SandboxEnded
from gateway_container.schemas import EXEC, FEED, SHELL, builtin

_SLACK = 20.0
"""Seconds beyond a command's own limit before the gateway gives a call up: files are fetched and kept in them."""
_MAX_COMMANDS = 8
_SESSION_WAIT = 1.0
"""Seconds for which a session's first output is waited for, where the model does not say."""
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


class ShellServer:
    """A `ToolServer` with a new container for each response."""

    label = "container"

    def __init__(
        self, config: ContainerConfig, containers: Containers, owner: str | None = None
    ) -> None:
        self._config = config
        self._containers = containers
        self._owner = owner

    async def tools(self) -> Sequence[ServedTool]:
        return served_tools(self._config, self._containers)

    def for_entry(self, tool: Tool, *, owner: str | None) -> ToolServer:
        """The server for the `environment` of a `shell` entry."""
        found = tool.environment if isinstance(tool, ShellTool) else None
        wish: Mapping[str, Any] = found if isinstance(found, dict) else {}
        param = "environment"
        if wish.get("type") == "container_reference":
            container = self._containers.find(
                str(wish.get("container_id", "")), owner, f"{param}.container_id"
            )
        elif wish.get("type", "container_auto") == "container_auto":
            container = self._containers.new(
                owner, wished(wish, self._containers.config, owner=owner, param=param)
            )
        else:
            raise Unsupported(
                f"Environments of type '{wish['type']}' are not available here. Supported: container_auto, "
                "container_reference, local.",
                param=f"{param}.type",
            )
        return ContainerShell(self._config, self._containers, container)

    def for_owner(self, owner: str | None) -> ToolServer:
        """The server of a request that names no container: its files are `owner`'s."""
        return ShellServer(self._config, self._containers, owner)

    @asynccontextmanager
    async def session(self, response_id: str) -> AsyncIterator[ShellSession]:
        container = self._containers.new(self._owner)
        async with self._containers.used(container):
            yield ShellSession(self._config, self._containers, container)


class ContainerShell:
    """A `ToolServer` for one request, whose container is known."""

    def __init__(
        self, config: ContainerConfig, containers: Containers, container: Container
    ) -> None:
        self._config = config
        self._containers = containers
        self._container = container

    @property
    def label(self) -> str:
        """The container's id: what the items show."""
        return self._container.id

    async def tools(self) -> Sequence[ServedTool]:
        return served_tools(self._config, self._containers)

    @asynccontextmanager
    async def session(self, response_id: str) -> AsyncIterator[ShellSession]:
        async with self._containers.used(self._container):
            yield ShellSession(self._config, self._containers, self._container)


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

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
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
        """Command lines, at once; each has its own output and its own end."""
        limit = self._config.max_output_bytes
        length = min(asked.max_output_length or limit, limit)
        async with self._containers.working(self._container) as work:
            outcomes = await asyncio.gather(
                *(
                    work.sandbox.ask(
                        "run",
                        Ran,
                        seconds=self._seconds(asked.timeout_ms),
                        command=["/bin/sh", "-c", _clean(command)],
                        limit=length,
                    )
                    for command in asked.commands
                )
            )
        output = [_shown(ran) for ran in outcomes]
        text = "\n".join(_told(ran) for ran in outcomes)
        result = ToolResult(
            text=text, details={"output": output, "max_output_length": asked.max_output_length}
        )
        return await self._with_files(result, work)

    async def _with_files(self, result: ToolResult, work: Work) -> ToolResult:
        """`result`, with what the call has written."""
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
                    "run", Ran, seconds=self._seconds(asked.timeout), **program
                )
            failed = ran.timed_out or ran.failed is not None
            return await self._with_files(ToolResult(text=_told(ran), failed=failed), work)
        if len(self._named | {asked.session_name}) > _SESSIONS:
            return _failed(
                f"A response has at most {_SESSIONS} sessions. Use one of {sorted(self._named)}."
            )
        self._named.add(asked.session_name)
        wait = self._seconds(asked.timeout) if asked.timeout is not None else _SESSION_WAIT
        async with self._containers.working(self._container) as work:
            said = await work.sandbox.ask(
                "session", Said, seconds=wait, session=asked.session_name, **program
            )
        return await self._with_files(_heard(said, asked.session_name), work)

    async def _feed(self, asked: FeedArguments) -> ToolResult:
        async with self._containers.working(self._container) as work:
            said = await work.sandbox.ask(
                "session",
                Said,
                seconds=self._seconds(asked.yield_time_ms),
                session=asked.session_name,
                chars=_clean(asked.chars),
                limit=self._config.max_output_bytes,
            )
        return await self._with_files(_heard(said, asked.session_name), work)

    def _seconds(self, milliseconds: float | None) -> float:
        """A time limit that the model wishes, within the configuration's."""
        wished = self._config.time_limit if milliseconds is None else milliseconds / 1000
        return min(wished, self._config.time_limit)


def served_tools(config: ContainerConfig, containers: Containers) -> list[ServedTool]:
    """`shell` for requests that ask for it; the others for every request, where the configuration offers them."""
    seconds = config.time_limit + containers.config.start_timeout + _SLACK
    tools = [
        ServedTool(
            definition=SHELL, time_limit=seconds, request_type="shell", item_type="shell_call"
        )
    ]
    if config.offer:
        tools += [
            ServedTool(definition=each, builtin=builtin(each), time_limit=seconds)
            for each in (EXEC, FEED)
        ]
    return tools


def _decode(arguments: dict[str, Any], into: type[ArgumentsT]) -> ArgumentsT:
    """Read as models write: one command without its list."""
    for key in ("commands", "cmd"):
        if isinstance(arguments.get(key), str):
            line = arguments[key]
            arguments = {**arguments, key: [line] if key == "commands" else ["/bin/sh", "-c", line]}
    return msgspec.convert(arguments, into, strict=False)


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _failed(text: str) -> ToolResult:
    return ToolResult(text=text, failed=True)


def _shown(ran: Ran) -> dict[str, Any]:
    """As the `shell_call_output` item has it."""
    outcome: dict[str, Any] = (
        {"type": "timeout"}
        if ran.timed_out
        else {"type": "exit", "exit_code": 127 if ran.code is None else _exit_code(ran.code)}
    )
    return {"stdout": ran.stdout, "stderr": ran.failed or ran.stderr, "outcome": outcome}


def _exit_code(code: int) -> int:
    """As shells count: a signal is 128 and its number."""
    return code if code >= 0 else 128 - code


def _told(ran: Ran) -> str:
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


def _heard(said: Said, name: str) -> ToolResult:
    if said.failed is not None:
        return _failed(f"{said.failed[:1].upper()}{said.failed[1:]}.")
    state = "goes on" if said.code is None else f"has ended with exit code {_exit_code(said.code)}"
    return ToolResult(text=f"{said.stdout}\n[The session '{name}' {state}.]".lstrip("\n"))
