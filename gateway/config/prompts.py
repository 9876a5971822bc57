"""`[prompts.<id>]`: prompts that requests to `/v1/responses` name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from gateway.config.tables import KeyPath, TableError, decode_table, suggestion

MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of a prompt's file in bytes."""
_FIRST_VERSION: Final = "1"
"""The version of a prompt that has no table of versions."""
_ID = re.compile(r"[A-Za-z0-9._:-]{1,256}")


class PromptMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `messages`: a message before the conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str
    """Its text, with `{{name}}` for a variable."""


class PromptVersion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[prompts.<id>.versions.<version>]`: one version of a prompt."""

    text: str | None = None
    """The instructions, with `{{name}}` for a variable."""
    file: Annotated[str, Meta(min_length=1)] | None = None
    """A file with the instructions, instead of `text`. A relative path is first looked up relative to the configuration
    file."""
    messages: list[PromptMessage] = []
    """Messages before the conversation, each with a `role` and a `content`, which may have variables. Images and files as
    variables stand in messages of the user only."""


class PromptConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[prompts.<id>]`: a prompt that requests to `/v1/responses` name as `prompt: {"id": "<id>"}`."""

    text: str | None = None
    """The instructions, with `{{name}}` for a variable."""
    file: Annotated[str, Meta(min_length=1)] | None = None
    """A file with the instructions, instead of `text`. A relative path is first looked up relative to the configuration
    file."""
    messages: list[PromptMessage] = []
    """Messages before the conversation, each with a `role` and a `content`, which may have variables. Images and files as
    variables stand in messages of the user only."""
    versions: dict[str, PromptVersion] = {}
    """The versions of the prompt, as tables `[prompts.<id>.versions.<version>]` with the keys above. Without them, the keys above
    are the version `1`."""
    default_version: str | None = None
    """The version of requests that name none. Default: the last one in the file."""


def decode_prompt(name: str, table: Mapping[str, object], folder: Path | None) -> PromptConfig:
    """Decode the table of a prompt with its versions, and read their files. `folder` is the folder of the configuration
    file. Raises `TableError`."""
    path = ("prompts", name)
    if not _ID.fullmatch(name):
        raise TableError(path, "a prompt's id has letters, digits and the characters . _ : - only")
    prompt = decode_table(table, PromptConfig, path)
    own = PromptVersion(text=prompt.text, file=prompt.file, messages=prompt.messages)
    if not prompt.versions:
        versions = {_FIRST_VERSION: _loaded(own, path, folder)}
    elif own != PromptVersion():
        raise TableError(
            path, "text, file and messages are those of a version; move them below versions"
        )
    else:
        versions = {
            version: _loaded(each, (*path, "versions", version), folder)
            for version, each in prompt.versions.items()
        }
    default = prompt.default_version
    if default is not None and default not in versions:
        problem = f"there is no version {default!r}; {suggestion(default, versions)}"
        raise TableError((*path, "default_version"), problem)
    return PromptConfig(versions=versions, default_version=default or [*versions][-1])


def _loaded(version: PromptVersion, path: KeyPath, folder: Path | None) -> PromptVersion:
    if version.file is None:
        if version.text is None and not version.messages:
            raise TableError(path, "it has neither text, file nor messages; give one of them")
        return version
    if version.text is not None:
        raise TableError((*path, "file"), "text says the same; keep one of them")
    return msgspec.structs.replace(
        version, text=_read(version.file, (*path, "file"), folder), file=None
    )


def _read(written: str, path: KeyPath, folder: Path | None) -> str:
    try:
        file = Path(written).expanduser()
        if folder is not None and not file.is_absolute() and (folder / file).exists():
            file = folder / file
        if not file.is_file():
            raise TableError(path, f"there is no file {str(file)!r}")
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise TableError(path, f"the file has more than {MAX_BYTES} bytes")
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TableError(path, f"byte {error.start} of the file is not UTF-8") from error
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(path, f"the file cannot be read: {error}") from error
