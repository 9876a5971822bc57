"""Converting grammars and schemas to xgrammar's syntax, and verifying them. Imports xgrammar."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from xgrammar import Grammar, GrammarCompiler, GrammarMatcher, TokenizerInfo, allocate_token_bitmask  # type: ignore[import-not-found,unused-ignore]

# xgrammar 0.2.8 allows raw control characters in strings of bounded length, which JSON does not.
_LOOSE = r"[^\"\\\r\n]"
_STRICT = r"[^\0-\x1f\"\\]"


# The source location in xgrammar's error messages.
_SOURCE = re.compile(r"^\[[\d:]+\] \S+:\d+: ")


def lark_to_ebnf(definition: str) -> str:
    """Convert a Lark grammar to EBNF. Raises ValueError if xgrammar cannot read it."""
    try:
        return str(Grammar.from_lark(definition))
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def schema_to_ebnf(schema: Mapping[str, Any], max_whitespace: int | None) -> str:
    """The EBNF of the JSON texts that are valid under `schema`. Raises ValueError if xgrammar cannot read it."""
    try:
        grammar = Grammar.from_json_schema(json.dumps(schema), max_whitespace_cnt=max_whitespace)
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    return str(grammar).replace(_LOOSE, _STRICT)


def tokenizer_info(tokenizer: Any, vocabulary: int) -> str:
    """xgrammar's description of a Hugging Face tokenizer, as JSON. Raises xgrammar's error for an unknown tokenizer."""
    info: str = TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocabulary).serialize_json()
    return info


def read_tokenizer_info(info: str) -> Any:
    """Parse the result of `tokenizer_info`."""
    return TokenizerInfo.deserialize_json(info)


def compile_for(tokenizer: Any, arguments: Mapping[str, Any]) -> None:
    """Compile the output of `gateway.engines.xgrammar`, as engines do. Raises ValueError if xgrammar cannot read it."""
    compiler = GrammarCompiler(tokenizer, max_threads=2, cache_enabled=False)
    try:
        match arguments:
            case {"json": schema}:
                made = compiler.compile_json_schema(json.dumps(schema))
            case {"regex": str(pattern)}:
                made = compiler.compile_regex(pattern)
            case {"grammar": str(grammar)} if "::=" in grammar:
                made = compiler.compile_grammar(grammar)
            case {"grammar": str(grammar)}:
                made = compiler.compile_lark(grammar)
            case {"structural_tag": str(tag)}:
                made = compiler.compile_structural_tag(tag)
            case _:
                return
        allowed = allocate_token_bitmask(1, tokenizer.vocab_size)
        if GrammarMatcher(made).fill_next_token_bitmask(allowed) and not allowed.any():
            # For example a schema that is only a reference to itself: an engine would abort the
            # request.
            raise ValueError("there is no text that it allows")
    except RuntimeError as error:
        raise ValueError(_SOURCE.sub("", str(error)).strip()) from error


def verify(arguments: Mapping[str, Any]) -> None:
    """Check the output of `gateway.engines.xgrammar` without compiling it for a vocabulary.

    Raises ValueError if xgrammar cannot read it.
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
