"""Grammars that xgrammar makes, as text in its own syntax, and its own look at what it is given. Imports xgrammar."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from xgrammar import Grammar  # type: ignore[import-not-found,unused-ignore]

# xgrammar 0.2.8 allows raw control characters in strings of bounded length, which JSON does not.
_LOOSE = r"[^\"\\\r\n]"
_STRICT = r"[^\0-\x1f\"\\]"


# Where in xgrammar's source an error was raised.
_SOURCE = re.compile(r"^\[[\d:]+\] \S+:\d+: ")


def lark_to_ebnf(definition: str) -> str:
    """A Lark grammar. Raises ValueError for one that xgrammar does not read."""
    try:
        return str(Grammar.from_lark(definition))
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def schema_to_ebnf(schema: Mapping[str, Any], max_whitespace: int | None) -> str:
    """The JSON texts that are valid under `schema`. Raises ValueError for one that xgrammar does not read."""
    try:
        grammar = Grammar.from_json_schema(json.dumps(schema), max_whitespace_cnt=max_whitespace)
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    return str(grammar).replace(_LOOSE, _STRICT)


def verify(arguments: Mapping[str, Any]) -> None:
    """Look at what `gateway.engines.xgrammar` has made, without compiling it for a vocabulary.

    Raises ValueError for what xgrammar does not read.
    """
    try:
        match arguments:
            case {"json": schema}:
                Grammar.from_json_schema(json.dumps(schema))
            case {"regex": str(pattern)}:
                Grammar.from_regex(pattern)
            case {"grammar": str(grammar)}:
                Grammar.from_ebnf(grammar)
            case {"structural_tag": str(tag)}:
                Grammar.from_structural_tag(tag)
    except RuntimeError as error:
        raise ValueError(_SOURCE.sub("", str(error)).strip()) from error
