"""Constraint trees in the fields of each server.

vLLM, SGLang and TensorRT-LLM enforce with xgrammar, whose structural tags say whole trees; llama-server takes GBNF.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

from gateway.constraints import Constraint, FreeText, Grammar, JsonObject, JsonSchema
from gateway.errors import Unsupported

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|.)", re.S)
"""An escape of GBNF; a group of its own for those with two digits."""


class Structures(Protocol):
    """A server's way to say constraints."""

    def fields(self, constraint: Constraint) -> dict[str, Any]:
        """What a request's body says, so that the output is as `constraint` has it. Raises `Unsupported`."""
        ...


class _Xgrammar:
    """Structural tags, and the single kinds that have names of their own."""

    def __init__(
        self, special: Mapping[str, int], ending: frozenset[int], max_json_whitespace: int | None
    ) -> None:
        from gateway.engines.xgrammar import Enforcement

        self._enforcement = Enforcement(
            max_json_whitespace=max_json_whitespace,
            special=special,
            ending=ending,
            lark_to_ebnf=_no_lark,
            schema_to_ebnf=_schema_grammar,
        )

    def outputs(self, constraint: Constraint) -> dict[str, Any] | None:
        """One of json, json_object, regex, grammar or structural_tag, as vLLM names them; None: anything goes."""
        from gateway.engines.xgrammar import structured_outputs

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
            from gateway_llamacpp.grammar import to_gbnf
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
    """The JSON texts that are valid under `schema`, as GBNF that xgrammar reads too."""
    try:
        from gateway_llamacpp.grammar import to_gbnf
    except ImportError as error:
        raise Unsupported(
            "To enforce the length of strings in a JSON schema, this gateway needs litegate-llamacpp installed."
        ) from error
    # xgrammar lets \\x have any number of digits; GBNF's has two.
    return _ESCAPE.sub(_with_four_digits, to_gbnf(JsonSchema(dict(schema))))


def _with_four_digits(escape: re.Match[str]) -> str:
    return f"\\u00{escape[1]}" if escape[1] else escape[0]


def _refuse_lark(constraint: Constraint) -> None:
    if isinstance(constraint, Grammar) and constraint.syntax == "lark":
        _no_lark("")


def _no_lark(_grammar: str) -> NoReturn:
    raise Unsupported("Lark grammars can be enforced on their own by vLLM alone. Use GBNF.")
