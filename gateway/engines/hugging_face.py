"""Reading settings, templates and tokens of models that engines have loaded with Hugging Face's library
`transformers`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from gateway.plugins.protocols import Sampling

PROCESSOR_TEMPLATE: Final = "chat_template.json"
"""The file of a processor's chat template."""
_RECOMMENDED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def recommended_sampling(generation_config: Mapping[str, Any]) -> Sampling | None:
    """The recommended sampling among the settings that differ from the defaults."""
    found = {
        name: generation_config[name]
        for name in _RECOMMENDED
        if generation_config.get(name) is not None
    }
    return Sampling(**found) if found else None


def ending_tokens(first: int | None, more: int | Iterable[int] | None) -> tuple[int, ...]:
    """The ids of the tokens that end an output: `first`, from the tokenizer, then `more`, from the generation
    configuration."""
    found = [] if first is None else [int(first)]
    listed = [more] if isinstance(more, int) else more or ()
    found += [token_id for token_id in listed if token_id not in found]
    return tuple(found)


class ChatTemplates(Struct, frozen=True, kw_only=True):
    """The chat templates of a model."""

    default: str | None = None
    tool_use: str | None = None
    """The template for conversations with tools, if it differs from the default."""


def named_templates(value: Any) -> ChatTemplates:
    """The templates in a value of `chat_template`, as in `tokenizer_config.json` and in processors: one text, or
    several by name."""
    if isinstance(value, str):
        return ChatTemplates(default=value)
    if isinstance(value, list):
        value = {each.get("name"): each.get("template") for each in value if isinstance(each, dict)}
    if not isinstance(value, dict):
        return ChatTemplates()
    named = {name: text for name, text in value.items() if isinstance(text, str)}
    tool_use = named.get("tool_use")
    # A template for tools is used for all conversations if it is the only one.
    return ChatTemplates(default=named.get("default", tool_use), tool_use=tool_use)


def chat_templates_of(tokenizer: Any) -> ChatTemplates:
    """The chat templates of a model: those of its processor, from a file in the folder of the tokenizer, and those of
    the tokenizer itself."""
    found = named_templates(getattr(tokenizer, "chat_template", None))
    processor = _processor_templates(getattr(tokenizer, "name_or_path", ""))
    return with_processor_template(found, processor)


def with_processor_template(own: ChatTemplates, processor: ChatTemplates) -> ChatTemplates:
    """Combine the templates of a model's tokenizer (`own`) and processor. The processor's template is preferred because
    it shows images. For conversations with tools the tokenizer's template is used, as by vLLM."""
    if processor.default is None or processor.default == own.default:
        return own
    tools = processor.tool_use or own.tool_use or own.default
    return ChatTemplates(default=processor.default, tool_use=tools)


def chat_template_of(tokenizer: Any) -> str | None:
    """The tokenizer's chat template, or the one named `default` if there are several."""
    return chat_templates_of(tokenizer).default


def _processor_templates(model: Any) -> ChatTemplates:
    """The templates in the file `chat_template.json` of a model, in its folder or in the hub's cache. A file
    `chat_template.jinja` has precedence; it is read by tokenizers themselves."""
    if not isinstance(model, str) or not model:
        return ChatTemplates()
    try:
        if _file_of(model, "chat_template.jinja") or not (
            file := _file_of(model, PROCESSOR_TEMPLATE)
        ):
            return ChatTemplates()
        written = json.loads(file.read_text(encoding="utf-8"))
    except (ImportError, OSError, ValueError):
        return ChatTemplates()
    return named_templates(written.get("chat_template") if isinstance(written, dict) else None)


def _file_of(model: str, name: str) -> Path | None:
    """The path of a file of a model, in its folder or in the hub's cache. Raises `ValueError` if `model` is not a valid
    name."""
    if (folder := Path(model)).is_dir():
        return folder / name if (folder / name).is_file() else None
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(model, name)
    return Path(cached) if isinstance(cached, str) else None


def special_token(tokenizer: Any, name: str) -> str | None:
    """The text of a special token (`bos_token`, `eos_token`)."""
    token = getattr(tokenizer, name, None)
    return None if token is None else str(token)


def first_problem(error: Exception) -> str:
    """One sentence from the message of an error. For errors of pydantic, the first problem without the surrounding
    text."""
    details = getattr(error, "errors", None)
    if not callable(details) or not (listed := details()):
        return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    first = listed[0]
    words = str(first.get("msg", error)).removeprefix("Value error, ")
    # Only the field name; pydantic's union branches follow it.
    return f"{first['loc'][0]}: {words}" if first.get("loc") else words
