"""Formats from a response template in the model's files, as Transformers and vLLM's parser `hf` read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway.sdk import ConfigurationError, ModelInfo
from gateway_parsers.families.formats import BY_NAME
from gateway_parsers.kit.json_calls import JsonCalls
from gateway_parsers.kit.syntax import CallSyntax
from gateway_parsers.profile import calls_in
from gateway_parsers.spec import FormatSpec, Frame, ReasoningMarkers

_KEY: Final = "response_template"
_FILES: Final = ("response_template.json", "tokenizer_config.json")
_MAX_BYTES: Final = 64 * 1024 * 1024
_FIELDS: Final = frozenset({"thinking", "content", "tool_calls"})


class ResponseTemplateConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[models.<model>.hf]`."""

    template: Path | None = None
    """A JSON file with the response template; None: the one in the model's folder."""


def spec_of_template(config: ResponseTemplateConfig, model: ModelInfo) -> FormatSpec:
    """The format that the model's response template describes.

    Raises `ConfigurationError` if there is no template, or if it describes what no syntax of this plugin reads.
    """
    where, template = _template(config, model)
    try:
        return _spec(template)
    except ValueError as error:
        raise ConfigurationError(f"{where}: {error}") from error


def _template(config: ResponseTemplateConfig, model: ModelInfo) -> tuple[Path, Mapping[str, Any]]:
    if config.template is not None:
        paths = [config.template]
    else:
        paths = [Path(model.path) / name for name in _FILES] if model.path else []
    for path in paths:
        found = _read(path, required=path is config.template)
        template = found.get(_KEY, found if path.name != _FILES[1] else None)
        if isinstance(template, Mapping) and template:
            return path, template
    raise ConfigurationError(
        f"The model {model.name!r} has no {_KEY!r} in {' or '.join(_FILES)}. Name a file with"
        f" [models.{model.name}.hf] template, or name a format as parser."
    )


def _read(path: Path, *, required: bool) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigurationError(f"{path}: larger than {_MAX_BYTES} bytes.")
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError as error:
        if required:
            raise ConfigurationError(f"{path}: there is no such file.") from error
        return {}
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _spec(template: Mapping[str, Any]) -> FormatSpec:
    fields = template.get("fields")
    if not isinstance(fields, Mapping) or not all(isinstance(f, Mapping) for f in fields.values()):
        raise ValueError("a response template has an object 'fields'.")
    unknown = sorted(set(fields) - _FIELDS)
    if unknown:
        raise ValueError(f"the field {unknown[0]!r} is not supported; {', '.join(_FIELDS)} are.")
    return FormatSpec(
        name="hf",
        reasoning=_reasoning(fields.get("thinking")),
        calls=_calls(fields.get("tool_calls")),
        frame=_frame(fields.get("content")),
    )


def _reasoning(field: Mapping[str, Any] | None) -> ReasoningMarkers | None:
    if field is None:
        return None
    opens, closes = _literals(field, "open", "thinking"), _literals(field, "close", "thinking")
    return ReasoningMarkers(
        open=opens[0], also_open=opens[1:], close=closes[0], also_close=closes[1:]
    )


def _frame(field: Mapping[str, Any] | None) -> Frame | None:
    if field is None or "open" not in field or "close" not in field:
        return None
    opens, closes = _literals(field, "open", "content"), _literals(field, "close", "content")
    return Frame(open=opens[0], also_open=opens[1:], close=closes[0], also_close=closes[1:])


def _calls(field: Mapping[str, Any] | None) -> CallSyntax | None:
    """A syntax of this plugin with the field's markup, or JSON between its markers."""
    if field is None:
        return None
    if field.get("content") == "json":
        opens = _literals(field, "open", "tool_calls")
        closes = _literals(field, "close", "tool_calls") if "close" in field else ("",)
        return JsonCalls(start=opens[0], more_starts=opens[1:], end=closes[0], more_ends=closes[1:])
    family = calls_in("\n".join(_texts(field)))
    if family is None:
        raise ValueError(
            "the calls of this template are neither JSON nor in a known syntax. Name a format as parser."
        )
    return BY_NAME[family].calls


def _texts(value: Any) -> Iterator[str]:
    """All texts of a template, with patterns as they are without escapes."""
    if isinstance(value, str):
        yield value.replace("\\", "")
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _literals(field: Mapping[str, Any], key: str, name: str) -> tuple[str, ...]:
    """The markers of a field. White space next to them is markup in any case."""
    value = field.get(key)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise ValueError(f"the field {name!r} needs texts as {key!r}; patterns are not supported.")
    found = tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))
    if not found:
        raise ValueError(f"the field {name!r} needs {key!r} with more than white space.")
    return found
