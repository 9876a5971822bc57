"""Reads a model's files that the gateway needs: tokenizer, chat template and configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gateway.sdk import ConfigurationError
from gateway.sdk.engines import (
    PROCESSOR_TEMPLATE,
    ChatTemplates,
    named_templates,
    with_processor_template,
)
from gateway_remote.tokenizer import JsonTokenizer, load_tokenizer

_OPTIONAL = (
    "config.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
    PROCESSOR_TEMPLATE,
    "additional_chat_templates/tool_use.jinja",
)


class Assets(Struct, frozen=True, kw_only=True):
    """Files found beside the tokenizer. Fields are None or empty where a file is missing."""

    tokenizer: JsonTokenizer
    architecture: str | None = None
    model_type: str | None = None
    chat_template: str | None = None
    tool_chat_template: str | None = None
    bos_token: str | None = None
    eos_token: str | None = None
    eos_token_ids: tuple[int, ...] = ()
    vocab_size: int | None = None
    """Vocabulary size of the model, which may be padded beyond the tokenizer's."""


def load_assets(source: str) -> Assets:
    """Read `source`: a `tokenizer.json`, a folder with one, or a hub id (downloaded or read from the hub's cache).

    Blocks. Raises `ConfigurationError` if it cannot be loaded.
    """
    files = _find(source)
    config, generation = _json(files.get("config.json")), _json(files.get("generation_config.json"))
    named = _json(files.get("tokenizer_config.json"))
    architectures = config.get("architectures") or [None]
    templates = _templates(files, named)
    ending = generation.get("eos_token_id", config.get("eos_token_id"))
    return Assets(
        tokenizer=load_tokenizer(files["tokenizer.json"]),
        architecture=architectures[0],
        model_type=config.get("model_type"),
        vocab_size=config.get("vocab_size"),
        chat_template=templates.default,
        tool_chat_template=templates.tool_use,
        bos_token=_text(named.get("bos_token")),
        eos_token=_text(named.get("eos_token")),
        eos_token_ids=tuple(
            ending if isinstance(ending, list) else [ending] if ending is not None else []
        ),
    )


def _find(source: str) -> dict[str, Path]:
    place = Path(os.path.expanduser(source))
    if place.is_file() and place.suffix == ".json":
        return {"tokenizer.json": place}
    if place.is_dir():
        folder = {name: place / name for name in ("tokenizer.json", *_OPTIONAL)}
        found = {name: file for name, file in folder.items() if file.is_file()}
        if "tokenizer.json" not in found:
            raise ConfigurationError(f"The folder {source} has no tokenizer.json.")
        return found
    if place.is_absolute() or place.suffix in (".gguf", ".json") or source.count("/") > 1:
        raise ConfigurationError(
            f"There is no tokenizer {source} on this machine: set `tokenizer` to a tokenizer.json, a folder with one, or "
            "a hub id."
        )
    return _from_hub(source)


def _from_hub(name: str) -> dict[str, Path]:
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    found: dict[str, Path] = {}
    for file in ("tokenizer.json", *_OPTIONAL):
        try:
            found[file] = Path(huggingface_hub.hf_hub_download(name, file))
        except (LocalEntryNotFoundError, EntryNotFoundError) as error:
            if file == "tokenizer.json":
                raise _unavailable_error(name, error) from error
        except (OSError, ValueError) as error:
            raise _unavailable_error(name, error) from error
    return found


def _unavailable_error(name: str, error: Exception) -> ConfigurationError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ConfigurationError(
        f"The tokenizer of {name!r} cannot be had from the hub ({reason}): set `tokenizer` to a tokenizer.json, a folder "
        "with one, or a hub id."
    )


def _json(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigurationError(f"{file} is not JSON: {error}.") from error
    return content if isinstance(content, dict) else {}


def _templates(files: Mapping[str, Path], named: Mapping[str, Any]) -> ChatTemplates:
    """The chat templates in files of their own, else those of the processor and in the tokenizer's configuration."""
    found = with_processor_template(
        named_templates(named.get("chat_template")),
        named_templates(_json(files.get(PROCESSOR_TEMPLATE)).get("chat_template")),
    )
    texts = {
        name: files[file].read_text(encoding="utf-8")
        for name, file in (
            ("default", "chat_template.jinja"),
            ("tool_use", "additional_chat_templates/tool_use.jinja"),
        )
        if file in files
    }
    return msgspec.structs.replace(found, **texts)


def _text(token: Any) -> str | None:
    """The text of a special token, which is stored as a string or as an object with `content`."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None
