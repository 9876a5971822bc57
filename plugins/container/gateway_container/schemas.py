"""Definitions of the container tools, as shown to models."""

from __future__ import annotations

import msgspec

from gateway.sdk import ToolDefinition

SHELL = ToolDefinition(
    name="shell",
    description=(
        "Runs shell commands in a Linux container of its own, without internet access, and returns what each wrote and its "
        "exit code. Files in the working directory /mnt/data are kept from call to call. To give the user a file, link it in "
        "the answer: [name](sandbox:/mnt/data/name)."
    ),
    parameters={
        "type": "object",
        "properties": {
            "commands": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Shell command lines; they run at the same time.",
            },
            "timeout_ms": {
                "type": "integer",
                "description": "Milliseconds after which they are stopped.",
            },
            "max_output_length": {
                "type": "integer",
                "description": "The most bytes of output to return for each command.",
            },
        },
        "required": ["commands"],
        "additionalProperties": False,
    },
)

EXEC = ToolDefinition(
    name="container_exec",
    description=(
        "Runs a program in a Linux container without internet access and returns its output. With session_name it goes on "
        "running, and container.feed_chars writes to its standard input."
    ),
    parameters={
        "type": "object",
        "properties": {
            "cmd": {
                "type": "array",
                "items": {"type": "string"},
                "description": 'The program and its arguments, such as ["bash", "-lc", "ls -l"].',
            },
            "session_name": {
                "type": ["string", "null"],
                "description": "Keeps it running under this name.",
            },
            "workdir": {
                "type": ["string", "null"],
                "description": "Where to run it; /mnt/data if left out.",
            },
            "timeout": {
                "type": ["integer", "null"],
                "description": "Milliseconds after which it is stopped, or a session's output returned.",
            },
            "env": {"type": ["object", "null"], "description": "Variables for it."},
            "user": {"type": ["string", "null"]},
        },
        "required": ["cmd"],
        "additionalProperties": False,
    },
)

FEED = ToolDefinition(
    name="container_feed_chars",
    description="Writes to the standard input of a session and returns what it says for a while.",
    parameters={
        "type": "object",
        "properties": {
            "session_name": {"type": "string", "default": "main"},
            "chars": {"type": "string", "default": ""},
            "yield_time_ms": {
                "type": "integer",
                "default": 100,
                "description": "How long to wait.",
            },
        },
        "additionalProperties": False,
    },
)

_KNOWN = {"container_exec": "container.exec", "container_feed_chars": "container.feed_chars"}
"""The names of the tools that gpt-oss was trained with."""


def builtin(tool: ToolDefinition) -> ToolDefinition:
    """The same tool, as shown to models that were trained with it."""
    return msgspec.structs.replace(tool, name=_KNOWN[tool.name], kind="builtin")
