"""Tools of the API that the client runs: `shell`, `local_shell`, `apply_patch`, `tool_search`.

They are presented to every model as functions, since self-hosted models do not know them. A call becomes the API's item
for that tool; earlier items of these types are converted back to function arguments.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET

from gateway.base.errors import ParamPath
from gateway.plugins.protocols import ToolDefinition
from gateway.tools.roles import CallRole, ClientTool
from gateway.wire import items
from gateway.wire import tools as wire
from gateway.wire.json_text import decode_text

ClientCallType: TypeAlias = Literal[
    "local_shell_call", "shell_call", "apply_patch_call", "tool_search_call"
]
ClientCall: TypeAlias = (
    items.LocalShellCall | items.ShellCall | items.ApplyPatchCall | items.ToolSearchCall
)

CLIENT_TOOLS = ("apply_patch", "local_shell", "shell", "tool_search")
"""The tool types. The model sees them as the names of the tools."""

_PREFIXES: dict[ClientCallType, str] = {
    "local_shell_call": items.ID_PREFIXES[items.LocalShellCall],
    "shell_call": items.ID_PREFIXES[items.ShellCall],
    "apply_patch_call": items.ID_PREFIXES[items.ApplyPatchCall],
    "tool_search_call": items.ID_PREFIXES[items.ToolSearchCall],
}


def id_prefix(kind: ClientCallType) -> str:
    """The id prefix of these items."""
    return _PREFIXES[kind]


# Definitions for the model.

_TIMEOUT = {"type": "integer", "description": "Milliseconds after which it is stopped."}

_LOCAL_SHELL = ToolDefinition(
    name="local_shell",
    description="Runs a program on the user's computer and returns its output.",
    parameters={
        "type": "object",
        "properties": {
            "command": {
                "type": "array",
                "items": {"type": "string"},
                "description": 'The program and its arguments, such as ["bash", "-lc", "ls -l"].',
            },
            "working_directory": {"type": "string", "description": "Where to run it."},
            "timeout_ms": _TIMEOUT,
        },
        "required": ["command"],
        "additionalProperties": False,
    },
    strict=True,
)

_SHELL = ToolDefinition(
    name="shell",
    description="Runs shell commands on the user's computer and returns what each wrote and its exit code.",
    parameters={
        "type": "object",
        "properties": {
            "commands": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Shell command lines; they may run at the same time.",
            },
            "timeout_ms": _TIMEOUT,
            "max_output_length": {
                "type": "integer",
                "description": "The most characters of output to return for each command.",
            },
        },
        "required": ["commands"],
        "additionalProperties": False,
    },
    strict=True,
)

_APPLY_PATCH = ToolDefinition(
    name="apply_patch",
    description=(
        "Creates, changes or deletes one file of the user's. In `diff`, each line of a new file begins with '+'. For a "
        "change, each place begins with a line '@@' (and, if that helps to find it, the class or function that it is in), "
        "followed by some unchanged lines that begin with a space, old lines that begin with '-' and new lines that begin "
        "with '+'; there are no line numbers."
    ),
    parameters={
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            "path": {"type": "string", "description": "The file's path, relative to the project."},
            "diff": {"type": "string", "description": "Empty where a file is deleted."},
        },
        "required": ["type", "path", "diff"],
        "additionalProperties": False,
    },
    strict=True,
)

_TOOL_SEARCH = ToolDefinition(
    name="tool_search",
    description="Finds further tools for a task. Those that it finds can be called afterwards.",
    parameters={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What a tool is needed for."},
            "limit": {"type": "integer", "description": "The most tools to return."},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)


def client_tool(tool: wire.Tool, param: ParamPath) -> ClientTool | None:
    """The client-run tool of the entry at `param`; None for other tools."""
    item_type: ClientCallType
    match tool:
        case wire.LocalShellTool():
            definition, item_type = _LOCAL_SHELL, "local_shell_call"
        case wire.ApplyPatchTool():
            definition, item_type = _APPLY_PATCH, "apply_patch_call"
        case wire.ShellTool() if runs_locally(tool):
            shell_description = _SHELL.description or ""
            skills = "".join(f"\n- {line}" for line in _skills(tool))
            if skills:
                shell_description += f"\nSkills are folders with instructions in SKILL.md; read them as needed:{skills}"
            definition = msgspec.structs.replace(_SHELL, description=shell_description)
            item_type = "shell_call"
        case wire.ToolSearchTool(execution="client"):
            schema = None if tool.parameters is UNSET else tool.parameters
            definition = msgspec.structs.replace(
                _TOOL_SEARCH,
                description=tool.description or _TOOL_SEARCH.description,
                parameters=schema or _TOOL_SEARCH.parameters,
            )
            item_type = "tool_search_call"
        case _:
            return None
    return ClientTool(definition, CallRole(item_type=item_type), (*param, "type"))


def runs_locally(tool: wire.ShellTool) -> bool:
    """Whether the client runs the commands. True unless the tool asks for a container."""
    return not isinstance(tool.environment, dict) or tool.environment.get("type") == "local"


def _skills(tool: wire.ShellTool) -> Iterator[str]:
    environment = tool.environment if isinstance(tool.environment, dict) else {}
    skills = environment.get("skills")
    for skill in skills if isinstance(skills, list) else ():
        if isinstance(skill, dict):
            yield f"{skill.get('name', '')} ({skill.get('path', '')}): {skill.get('description', '')}"


# Calls from the model.


def client_call(
    kind: ClientCallType, item_id: str, call_id: str, arguments: str
) -> ClientCall | None:
    """The finished item of a call; None if the arguments do not fit the item type.

    Accepts common variations: a single command instead of a list, a number as a string, nulls for absent values.
    """
    try:
        given = decode_text(arguments.encode("utf-8", "replace"))
    except msgspec.DecodeError:
        return None
    if not isinstance(given, dict):
        return None
    given = {key: value for key, value in given.items() if value is not None}
    try:
        match kind:
            case "local_shell_call":
                local = _convert(_local_action(given), items.LocalShellAction)
                return items.LocalShellCall(id=item_id, call_id=call_id, action=local)
            case "shell_call":
                action = _convert(_shell_action(given), items.ShellAction)
                where = items.LocalEnvironment()
                return items.ShellCall(
                    id=item_id, call_id=call_id, action=action, environment=where
                )
            case "apply_patch_call":
                inner = given.get("operation", given)
                operation: Any = msgspec.convert(
                    inner, items.CreateFile | items.UpdateFile | items.DeleteFile
                )
                return items.ApplyPatchCall(id=item_id, call_id=call_id, operation=operation)
            case "tool_search_call":
                return items.ToolSearchCall(id=item_id, call_id=call_id, arguments=given)
    except msgspec.ValidationError:
        return None


def _convert(given: dict[str, Any], into: Any) -> Any:
    return msgspec.convert(given, into, strict=False)


def _local_action(given: dict[str, Any]) -> dict[str, Any]:
    command = given.get("command")
    line = isinstance(command, str)
    return {**given, "type": "exec", "command": ["sh", "-c", command] if line else command}


def _shell_action(given: dict[str, Any]) -> dict[str, Any]:
    commands = given.get("commands", given.get("command"))
    if isinstance(commands, str):
        commands = [commands]
    elif "commands" not in given and isinstance(commands, list):
        commands = [shlex.join(map(str, commands))]  # one program and its arguments
    return {**given, "commands": commands}


def call_arguments(call: ClientCall) -> dict[str, Any]:
    """The inverse of `client_call`: the arguments that the model sees for such a call."""
    match call:
        case items.LocalShellCall():
            given = msgspec.to_builtins(call.action)
            del given["type"]
            return {key: value for key, value in given.items() if value not in (None, {})}
        case items.ShellCall():
            given = msgspec.to_builtins(call.action)
            return {key: value for key, value in given.items() if value is not None}
        case items.ApplyPatchCall():
            return {
                **msgspec.to_builtins(call.operation),
                "diff": getattr(call.operation, "diff", ""),
            }
        case items.ToolSearchCall():
            return call.arguments if isinstance(call.arguments, dict) else {}
