"""Stored prompts: finding the prompt that a request names, and inserting the request's variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from gateway.base.errors import InvalidRequest, NotFound
from gateway.config import PromptConfig
from gateway.plugins.protocols import PromptTemplate, StoredPrompt, TemplateMessage
from gateway.services import Services
from gateway.wire import items
from gateway.wire.common import JsonObject
from gateway.wire.content import InputText, MessageContent, OutputText
from gateway.wire.field_errors import shortened
from gateway.wire.ids import new_id
from gateway.wire.request import Prompt, PromptVariable, ResponseRequest

_PLACEHOLDER: Final = re.compile(r"\{\{\s*(\w{1,64})\s*\}\}")
_SHOWN: Final = 16

_Values: TypeAlias = Mapping[str, PromptVariable]


class FilledPrompt(Struct, frozen=True, kw_only=True):
    """A stored prompt with the request's variables."""

    messages: Sequence[items.Item]
    """Messages that precede the conversation, without being part of it."""
    shown: JsonObject
    """The `prompt` parameter as the response shows it, with the version that was used."""


async def with_prompt(
    request: ResponseRequest, services: Services, owner: str | None
) -> tuple[ResponseRequest, FilledPrompt | None]:
    """Return the request with the instructions of the prompt that it names, and that prompt, if any. The request's own
    instructions take precedence.

    Raises `NotFound` for an unknown prompt or version, and `InvalidRequest` for unknown, missing or misplaced
    variables.
    """
    prompt = request.prompt
    if prompt is None:
        return request, None
    version, template = await _template(prompt, services, owner)
    values = prompt.variables or {}
    _check_names(template, values)
    _check_size(template, values, services.config.server.max_body_bytes)
    instructions = None if template.text is None else _text(template.text, values, "instructions")
    if request.instructions is None and instructions is not None:
        request = msgspec.structs.replace(request, instructions=instructions)
    shown = {"id": prompt.id, "version": version, "variables": msgspec.to_builtins(values)}
    messages = [_message(each, values) for each in template.messages]
    return request, FilledPrompt(messages=messages, shown=shown)


async def _template(
    prompt: Prompt, services: Services, owner: str | None
) -> tuple[str, PromptTemplate]:
    found = await _find(prompt.id, services, owner)
    if found is None:
        raise NotFound(
            f"Prompt with id '{shortened(prompt.id)}' not found.",
            param=("prompt", "id"),
            code="prompt_not_found",
        )
    version = prompt.version or found.default_version
    template = found.versions.get(version)
    if template is None:
        raise NotFound(
            f"Prompt with id '{prompt.id}' has no version '{shortened(version)}'.",
            param=("prompt", "version"),
            code="prompt_version_not_found",
        )
    return version, template


async def _find(prompt_id: str, services: Services, owner: str | None) -> StoredPrompt | None:
    configured = services.config.prompts.get(prompt_id)
    if configured is not None:
        return _configured(configured)
    for source in services.prompt_sources:
        found = await source.find_prompt(prompt_id, owner)
        if found is not None:
            return found
    return None


def _configured(prompt: PromptConfig) -> StoredPrompt:
    assert prompt.default_version is not None, "the loading of the configuration has set it"
    return StoredPrompt(
        default_version=prompt.default_version,
        versions={
            name: PromptTemplate(
                text=version.text,
                messages=[
                    TemplateMessage(role=each.role, content=each.content)
                    for each in version.messages
                ],
            )
            for name, version in prompt.versions.items()
        },
    )


def _texts(template: PromptTemplate) -> Iterator[str]:
    if template.text is not None:
        yield template.text
    for message in template.messages:
        yield message.content


def _check_names(template: PromptTemplate, values: _Values) -> None:
    named = {name for text in _texts(template) for name in _PLACEHOLDER.findall(text)}
    if unknown := sorted(values.keys() - named - {*template.variables}):
        raise InvalidRequest(
            f"Unknown prompt variables: {_listed(unknown)}.",
            param=("prompt", "variables"),
            code="unknown_prompt_variables",
        )
    if missing := sorted(named - values.keys()):
        raise InvalidRequest(
            f"Missing prompt variables: {_listed(missing)}.",
            param=("prompt", "variables"),
            code="missing_prompt_variables",
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(shortened(name) for name in names[:_SHOWN])


def _check_size(template: PromptTemplate, values: _Values, limit: int) -> None:
    """Raise `InvalidRequest` if the texts with their variables would be too large. Called before they are made, because
    a variable may occur many times."""
    lengths = {name: len(_plain(value) or "") for name, value in values.items()}
    size = sum(
        len(text) + sum(lengths[name] for name in _PLACEHOLDER.findall(text))
        for text in _texts(template)
    )
    if size > limit:
        raise InvalidRequest(
            f"The prompt with its variables has {size} characters, more than the limit of {limit}. Send shorter variables.",
            param=("prompt", "variables"),
            code="string_above_max_length",
        )


def _plain(value: PromptVariable) -> str | None:
    """Return the text of a variable; None for an image or a file."""
    if isinstance(value, str):
        return value
    return value.text if isinstance(value, InputText) else None


def _text(template: str, values: _Values, place: str) -> str:
    """Insert the variables into a text template. Placeholders within inserted texts are not replaced."""

    def put_in(found: re.Match[str]) -> str:
        name = found[1]
        text = _plain(values[name])
        if text is None:
            raise InvalidRequest(
                f"The prompt variable '{name}' stands in {place}, which are text. Send a string or an input_text.",
                param=("prompt", "variables", name),
                code="invalid_type",
            )
        return text

    return _PLACEHOLDER.sub(put_in, template)


def _message(template: TemplateMessage, values: _Values) -> items.Message:
    content: list[MessageContent]
    match template.role:
        case "user":
            content = list(_parts(template.content, values))
        case "assistant":
            text = _text(template.content, values, "messages of the assistant")
            content = [OutputText(text=text)]
        case role:
            content = [InputText(text=_text(template.content, values, f"{role} messages"))]
    return items.Message(id=new_id("msg_"), role=template.role, content=content)


def _parts(template: str, values: _Values) -> Iterator[MessageContent]:
    """Yield the template as parts. An image or a file is a part between the texts before and after it."""
    pending: list[str] = []
    for number, piece in enumerate(_PLACEHOLDER.split(template)):
        if number % 2 == 0:
            pending.append(piece)
            continue
        value = values[piece]
        if isinstance(value, str):
            pending.append(value)
        elif isinstance(value, InputText):
            pending.append(value.text)
        else:
            if text := "".join(pending):
                yield InputText(text=text)
            pending.clear()
            yield value
    if text := "".join(pending):
        yield InputText(text=text)
