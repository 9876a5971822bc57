"""The tool `python`: cells of code in a container, whose variables live as long as it does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import UNSET

from gateway.protocols import ServedTool, ToolDefinition, ToolResult, ToolServer
from gateway.wire.items import CodeInterpreterCall, Item
from gateway.wire.tools import CodeInterpreterTool, Tool
from gateway_container.citable import Citable
from gateway_container.config import CallsConfig
from gateway_container.container import Container
from gateway_container.containers import Containers
from gateway_container.requested import wished
from gateway_container.sandbox.answers import CellRan
from gateway_container.sandbox.process import SandboxEnded

NAME = "python"
_DESCRIPTION = (
    "Runs Python code and returns what it prints, and the value of its last line. Variables are kept from call to call. "
    "Files in the working directory /mnt/data are kept too. There is no internet access. To give the user a file, save it "
    "there and link it in the answer: [name](sandbox:/mnt/data/name)."
)
_PARAMETERS = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "The code to run."}},
    "required": ["code"],
    "additionalProperties": False,
}
_SLACK = 20.0
"""Seconds beyond the cell's own limit before the gateway gives a call up: the sandbox stops cells more gently, and files are
fetched and kept."""


class PythonServer:
    """A `ToolServer` with a new container for each response."""

    label = "python"

    def __init__(self, config: CallsConfig, containers: Containers) -> None:
        self._config = config
        self._containers = containers

    async def tools(self) -> Sequence[ServedTool]:
        return [served_tool(self._config, self._containers)]

    def for_entry(self, tool: Tool, *, owner: str | None) -> ToolServer:
        """The server for the `container` of a `code_interpreter` entry."""
        return self.for_conversation(tool, (), owner=owner)

    def for_conversation(
        self, tool: Tool, items: Sequence[Item], *, owner: str | None
    ) -> ToolServer:
        """Likewise. An `auto` container is that of the conversation's last call, as long as there is one: OpenAI's rule."""
        containers = self._containers
        named = tool.container if isinstance(tool, CodeInterpreterTool) else None
        if isinstance(named, str):
            found = containers.find(named, owner, "container")
            return ContainerPython(self._config, containers, found)
        asked = {} if named is None else _given(named)
        wish = wished(asked, containers.config, owner=owner, param="container")
        used = (
            each.container_id for each in reversed(items) if isinstance(each, CodeInterpreterCall)
        )
        if earlier := next(used, None):
            kept = containers.earlier(earlier, owner, wish)
            if kept is not None:
                return ContainerPython(self._config, containers, kept, wish.file_ids)
        return ContainerPython(self._config, containers, containers.new(owner, wish))

    @asynccontextmanager
    async def session(self, response_id: str) -> AsyncIterator[PythonSession]:
        container = self._containers.new(None)
        async with self._containers.used(container):
            yield PythonSession(self._config, self._containers, container)


class ContainerPython:
    """A `ToolServer` for one request, whose container is known."""

    def __init__(
        self,
        config: CallsConfig,
        containers: Containers,
        container: Container,
        file_ids: Sequence[str] = (),
    ) -> None:
        """`file_ids` are uploads that the container shall have."""
        self._config = config
        self._containers = containers
        self._container = container
        self._file_ids = file_ids

    @property
    def label(self) -> str:
        """The container's id: what the items show."""
        return self._container.id

    async def tools(self) -> Sequence[ServedTool]:
        return [served_tool(self._config, self._containers)]

    @asynccontextmanager
    async def session(self, response_id: str) -> AsyncIterator[PythonSession]:
        async with self._containers.used(self._container, self._file_ids):
            yield PythonSession(self._config, self._containers, self._container)


class PythonSession:
    """One response's use of a container."""

    def __init__(self, config: CallsConfig, containers: Containers, container: Container) -> None:
        self._config = config
        self._containers = containers
        self._container = container
        self._citable = Citable(containers, container)

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        if name != NAME:
            return ToolResult(text=f"There is no tool named '{name}'.", failed=True)
        code = arguments.get("code")
        if not isinstance(code, str):
            return ToolResult(text="Send the code to run as the string 'code'.", failed=True)
        config, container = self._config, self._container
        try:
            async with self._containers.working(container) as work, container.cells:
                ran = await work.sandbox.ask(
                    "cell",
                    CellRan,
                    seconds=config.time_limit,
                    code=code.encode("utf-8", "replace").decode(),
                    limit=config.max_output_bytes,
                )
        except SandboxEnded as ended:
            return _result(container, str(ended), failed=True)
        told = _told(ran, container, config, work.notes)
        return msgspec.structs.replace(told, container_files=await self._citable.after(work))


def served_tool(config: CallsConfig, containers: Containers) -> ServedTool:
    return ServedTool(
        definition=ToolDefinition(name=NAME, description=_DESCRIPTION, parameters=_PARAMETERS),
        builtin=ToolDefinition(name=NAME, kind="builtin", parameters=_PARAMETERS),
        time_limit=config.time_limit + containers.config.start_timeout + _SLACK,
        request_type="code_interpreter",
        item_type="code_interpreter_call",
    )


def _given(wish: msgspec.Struct) -> dict[str, Any]:
    fields = {name: getattr(wish, name) for name in wish.__struct_fields__}
    return {name: value for name, value in fields.items() if value is not UNSET}


def _told(
    ran: CellRan, container: Container, config: CallsConfig, file_notes: Sequence[str]
) -> ToolResult:
    """What the model reads: the output, then what it could not know from it."""
    if ran.failed is not None:
        return _result(container, f"The code could not be run: {ran.failed}.", failed=True)
    notes: list[str] = []
    if ran.lost is not None:
        notes.append(f"The interpreter had ended ({ran.lost}): earlier variables are lost.")
    if ran.stopped is not None:
        notes.append(f"Stopped after {config.time_limit:g} seconds, the limit of one call.")
        if ran.died is None:
            notes.append("Variables are kept.")
    if ran.died is not None:
        memory = " Memory may have run out." if ran.died == "signal 9" and not ran.stopped else ""
        notes.append(
            f"The interpreter has ended ({ran.died}).{memory} Variables are lost, files are kept."
        )
    images = ran.images or []
    if images:
        notes.append(f"Images shown: {len(images)}.")
    notes += file_notes
    text = ran.logs + ("[" + " ".join(notes) + "]" if notes else "")
    outputs: list[dict[str, Any]] = [{"type": "logs", "logs": ran.logs}] if ran.logs else []
    outputs += [{"type": "image", "url": f"data:image/png;base64,{image}"} for image in images]
    failed = ran.stopped is not None or ran.died is not None
    return _result(container, text, failed=failed, outputs=outputs)


def _result(
    container: Container, text: str, *, failed: bool, outputs: list[dict[str, Any]] | None = None
) -> ToolResult:
    shown = [{"type": "logs", "logs": text}] if outputs is None else outputs
    details = {"container_id": container.id, "outputs": shown}
    return ToolResult(text=text, failed=failed, details=details)
