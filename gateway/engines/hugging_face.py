"""What engines read of models of Hugging Face's library `transformers`, as they have loaded them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from gateway.protocols import Sampling

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
    """The ids of the tokens that end an output: the tokenizer's `first`, then those of the generation configuration."""
    found = [] if first is None else [int(first)]
    listed = [more] if isinstance(more, int) else more or ()
    found += [token_id for token_id in listed if token_id not in found]
    return tuple(found)


class ChatTemplates(Struct, frozen=True, kw_only=True):
    """The chat templates of a model."""

    default: str | None = None
    tool_use: str | None = None
    """The one for conversations with tools, if there is one of its own."""


def named_templates(value: Any) -> ChatTemplates:
    """The templates in a value of `chat_template`: a text, or several by name, as `tokenizer_config.json` and processors have them."""
    if isinstance(value, str):
        return ChatTemplates(default=value)
    if isinstance(value, list):
        value = {each.get("name"): each.get("template") for each in value if isinstance(each, dict)}
    if not isinstance(value, dict):
        return ChatTemplates()
    named = {name: text for name, text in value.items() if isinstance(text, str)}
    tool_use = named.get("tool_use")
    # Of a model that has only a template for tools, it is the one for all.
    return ChatTemplates(default=named.get("default", tool_use), tool_use=tool_use)


def chat_templates_of(tokenizer: Any) -> ChatTemplates:
    """The chat templates of the model's processor, which are in a file beside the tokenizer, and the tokenizer's own."""
    found = named_templates(getattr(tokenizer, "chat_template", None))
    processor = _processor_templates(getattr(tokenizer, "name_or_path", ""))
    return with_processor_template(found, processor)


def with_processor_template(own: ChatTemplates, processor: ChatTemplates) -> ChatTemplates:
    """The templates of a model whose tokenizer and processor may both have some. The processor's shows images; with tools, the
    tokenizer's is used, as vLLM does."""
    if processor.default is None or processor.default == own.default:
        return own
    tools = processor.tool_use or own.tool_use or own.default
    return ChatTemplates(default=processor.default, tool_use=tools)


def chat_template_of(tokenizer: Any) -> str | None:
    """The tokenizer's chat template, or the one named `default` if there are several."""
    return chat_templates_of(tokenizer).default


def _processor_templates(model: Any) -> ChatTemplates:
    """Those in the file `chat_template.json` of a model, in its folder or in the hub's cache. A file `chat_template.jinja` takes
    its place; tokenizers read that themselves."""
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
    """A file of a model, in its folder or in the hub's cache. Raises `ValueError` for what is no name of the hub."""
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
    """One sentence of an error's message: the first problem of pydantic's errors, without their framing."""
    details = getattr(error, "errors", None)
    if not callable(details) or not (listed := details()):
        return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    first = listed[0]
    words = str(first.get("msg", error)).removeprefix("Value error, ")
    # Only the field name; pydantic's union branches follow it.
    return f"{first['loc'][0]}: {words}" if first.get("loc") else words
