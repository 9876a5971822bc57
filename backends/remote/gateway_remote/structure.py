"""Converts constraint trees to each server's request fields.

vLLM, SGLang and TensorRT-LLM use xgrammar, whose structural tags can express whole trees. llama-server uses GBNF.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

from gateway.sdk import Unsupported
from gateway.sdk.constraints import Constraint, FreeText, Grammar, JsonObject, JsonSchema

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|.)", re.S)
"""A GBNF escape; the group matches two hex digits."""


class Structures(Protocol):
    """A server's encoding of constraints."""

    def fields(self, constraint: Constraint) -> dict[str, Any]:
        """Body fields that enforce `constraint`. Raises `Unsupported`."""
        ...


class _Xgrammar:
    """Structural tags, and the kinds of constraint that have fields of their own."""

    def __init__(
        self, special: Mapping[str, int], ending: frozenset[int], max_json_whitespace: int | None
    ) -> None:
        from gateway.sdk.engines import Enforcement

        self._enforcement = Enforcement(
            max_json_whitespace=max_json_whitespace,
            special=special,
            ending=ending,
            lark_to_ebnf=_no_lark,
            schema_to_ebnf=_schema_grammar,
        )

    def outputs(self, constraint: Constraint) -> dict[str, Any] | None:
        """One of json, json_object, regex, grammar or structural_tag, named as in vLLM; None if unconstrained."""
        from gateway.sdk.engines import structured_outputs

        return structured_outputs(constraint, self._enforcement)


class VllmStructures(_Xgrammar):
    """`structured_outputs` of vLLM."""

    def fields(self, constraint: Constraint) -> dict[str, Any]:
        outputs = self.outputs(constraint)
        return {} if outputs is None else {"structured_outputs": outputs}


class SglangStructures(_Xgrammar):
    """`json_schema`, `regex`, `ebnf` and `response_format` of SGLang."""

    def fields(self, constraint: Constraint) -> dict[str, Any]:
        _refuse_lark(constraint)
        match self.outputs(constraint):
            case None:
                return {}
            case {"json": schema}:
                return {"json_schema": json.dumps(schema)}
            case {"json_object": _}:
                return {"json_schema": '{"type": "object"}'}
            case {"regex": pattern}:
                return {"regex": pattern}
            case {"grammar": grammar}:
                return {"ebnf": grammar}
            case {"structural_tag": str(tag)}:
                return {"response_format": json.loads(tag)}
            case other:
                raise Unsupported(f"SGLang cannot enforce {next(iter(other))}.")


class TrtllmStructures(_Xgrammar):
    """`response_format` of trtllm-serve."""

    def fields(self, constraint: Constraint) -> dict[str, Any]:
        _refuse_lark(constraint)
        match self.outputs(constraint):
            case None:
                return {}
            case {"json": schema}:
                made = {"type": "json", "schema": schema}
            case {"json_object": _}:
                made = {"type": "json_object"}
            case {"regex": pattern}:
                made = {"type": "regex", "regex": pattern}
            case {"grammar": grammar}:
                made = {"type": "ebnf", "ebnf": grammar}
            case {"structural_tag": str(tag)}:
                made = json.loads(tag)
            case other:
                raise Unsupported(f"TensorRT-LLM cannot enforce {next(iter(other))}.")
        return {"response_format": made}


class LlamaCppStructures:
    """`grammar` and `json_schema` of llama-server."""

    def fields(self, constraint: Constraint) -> dict[str, Any]:
        match constraint:
            case FreeText(None):
                return {}
            case Grammar("gbnf", definition):
                return {"grammar": definition}
        try:
            from gateway_llamacpp.gbnf.constraints import to_gbnf
        except ImportError:
            return self._single(constraint)
        return {"grammar": to_gbnf(constraint)}

    def _single(self, constraint: Constraint) -> dict[str, Any]:
        match constraint:
            case JsonSchema(schema):
                return {"json_schema": schema}
            case JsonObject():
                return {"json_schema": {"type": "object"}}
        raise Unsupported(
            "To enforce more than one JSON schema on llama-server, this gateway needs litegate-llamacpp installed."
        )


def _schema_grammar(schema: Mapping[str, Any], _max_whitespace: int | None) -> str:
    """A GBNF grammar, also readable by xgrammar, of the JSON texts valid under `schema`."""
    try:
        from gateway_llamacpp.gbnf.constraints import to_gbnf
    except ImportError as error:
        raise Unsupported(
            "To enforce the length of strings in a JSON schema, this gateway needs litegate-llamacpp installed."
        ) from error
    # xgrammar allows any number of digits in \\x escapes; GBNF has two.
    return _ESCAPE.sub(_with_four_digits, to_gbnf(JsonSchema(dict(schema))))


def _with_four_digits(escape: re.Match[str]) -> str:
    return f"\\u00{escape[1]}" if escape[1] else escape[0]


def _refuse_lark(constraint: Constraint) -> None:
    if isinstance(constraint, Grammar) and constraint.syntax == "lark":
        _no_lark("")


def _no_lark(_grammar: str) -> NoReturn:
    raise Unsupported("Lark grammars can be enforced on their own by vLLM alone. Use GBNF.")
