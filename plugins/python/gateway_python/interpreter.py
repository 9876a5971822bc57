"""The tool `python`: runs code cells in a container. Variables live as long as the container."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import UNSET

from gateway.sdk import (
    CodeDetails,
    ServerTool,
    SessionContext,
    ToolCall,
    ToolDefinition,
    ToolImage,
    ToolResult,
    ToolServer,
)
from gateway.sdk.wire import CodeInterpreterCall, CodeInterpreterTool
from gateway_container.citable import Citable
from gateway_container.config import CallsConfig
from gateway_container.container import Container
from gateway_container.containers import Containers
from gateway_container.requested import container_settings
from gateway_container.sandbox.answers import CellResult
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
"""Seconds beyond the cell's own limit before the gateway abandons a call. Leaves time for the sandbox to interrupt
the cell and for files to be fetched and stored."""


class PythonServer(ToolServer):
    """The tool, in a given container or a new one for each response."""

    def __init__(
        self,
        config: CallsConfig,
        containers: Containers,
        container: Container | None = None,
        file_ids: Sequence[str] = (),
    ) -> None:
        """`file_ids` are uploads that are copied into `container`."""
        self.label = NAME if container is None else container.id
        self._config = config
        self._containers = containers
        self._container = container
        self._file_ids = file_ids

    async def tools(self) -> Sequence[ServerTool]:
        config = self._config
        tool = ServerTool(
            definition=ToolDefinition(name=NAME, description=_DESCRIPTION, parameters=_PARAMETERS),
            builtin=ToolDefinition(name=NAME, kind="builtin", parameters=_PARAMETERS),
            time_limit=config.time_limit + self._containers.seconds_to_start + _SLACK,
            request_type="code_interpreter",
            item_type="code_interpreter_call",
        )
        return [tool]

    def check(self, context: SessionContext) -> PythonServer | None:
        """The server for the `container` of a `code_interpreter` entry. An `auto` container is that of the
        conversation's last call as long as it exists, as at OpenAI."""
        containers, tool, owner = self._containers, context.entry, context.owner
        if tool is None:
            return None
        named = tool.container if isinstance(tool, CodeInterpreterTool) else None
        if isinstance(named, str):
            found = containers.find(named, owner, "container")
            return PythonServer(self._config, containers, found)
        asked = {} if named is None else _set_fields(named)
        settings = container_settings(asked, containers.config, owner=owner, param=("container",))
        used = (
            each.container_id
            for each in reversed(context.items)
            if isinstance(each, CodeInterpreterCall)
        )
        if earlier := next(used, None):
            kept = containers.earlier(earlier, owner, settings)
            if kept is not None:
                return PythonServer(self._config, containers, kept, settings.file_ids)
        return PythonServer(self._config, containers, containers.new(owner, settings))

    @asynccontextmanager
    async def session(self, context: SessionContext) -> AsyncIterator[PythonSession]:
        container = self._container or self._containers.new(context.owner)
        async with self._containers.used(container, self._file_ids):
            yield PythonSession(self._config, self._containers, container)


class PythonSession:
    """One response's use of a container."""

    def __init__(self, config: CallsConfig, containers: Containers, container: Container) -> None:
        self._config = config
        self._containers = containers
        self._container = container
        self._citable = Citable(containers, container)

    async def call(self, call: ToolCall) -> ToolResult:
        if call.name != NAME:
            return ToolResult(text=f"There is no tool named '{call.name}'.", failed=True)
        code = call.arguments.get("code")
        if not isinstance(code, str):
            return ToolResult(text="Send the code to run as the string 'code'.", failed=True)
        config, container = self._config, self._container
        try:
            async with self._containers.working(container) as work, container.cells:
                ran = await work.sandbox.ask(
                    "cell",
                    CellResult,
                    seconds=config.time_limit,
                    code=code.encode("utf-8", "replace").decode(),
                    limit=config.max_output_bytes,
                )
        except SandboxEnded as ended:
            return _failed(container, str(ended))
        result = _tool_result(ran, container, config, work.notes)
        return msgspec.structs.replace(result, container_files=await self._citable.after(work))


def _set_fields(settings: msgspec.Struct) -> dict[str, Any]:
    fields = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return {name: value for name, value in fields.items() if value is not UNSET}


def _tool_result(
    ran: CellResult, container: Container, config: CallsConfig, file_notes: Sequence[str]
) -> ToolResult:
    """The text that the model reads: the output, followed by notes that the output does not contain."""
    if ran.failed is not None:
        return _failed(container, f"The code could not be run: {ran.failed}.")
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
    return ToolResult(
        text=ran.logs + ("[" + " ".join(notes) + "]" if notes else ""),
        failed=ran.stopped is not None or ran.died is not None,
        details=CodeDetails(logs=ran.logs, container_id=container.id),
        images=[ToolImage(data=each, media_type="image/png", note="") for each in images],
    )


def _failed(container: Container, text: str) -> ToolResult:
    details = CodeDetails(logs=text, container_id=container.id)
    return ToolResult(text=text, failed=True, details=details)
