"""Grammars for engines that compile them with xgrammar. Needs the package `xgrammar`."""

from gateway.engines.grammars import (
    lark_to_ebnf,
    schema_to_ebnf,
    tokenizer_info,
    verify,
)

__all__ = [
    "lark_to_ebnf",
    "schema_to_ebnf",
    "tokenizer_info",
    "verify",
]
