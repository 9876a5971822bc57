"""Embeds a request's grammar in another one."""

from __future__ import annotations

import re

from gateway.sdk import InvalidRequest

_TOKEN = re.compile(
    r"""
      (?P<skip>    \#[^\n]* | "(?:\\.|[^"\\])*" | \[(?:\\.|[^\]\\])*\] | \{[^}]*\} | <[^>]*> )
    | (?P<name>    [A-Za-z0-9-]+ ) (?P<defines> \s* ::= )?
    """,
    re.VERBOSE,
)


def embedded(definition: str, prefix: str) -> tuple[str, str]:
    """`definition` with `prefix` before each rule's name, and the new name of its `root`.

    Raises `InvalidRequest` if a rule is missing; llama.cpp would report that only when the request runs.
    """
    defined: set[str] = set()
    used: set[str] = set()

    def rename(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return match[0]
        if match["defines"]:
            defined.add(name)
        else:
            used.add(name)
        return f"{prefix}{name}{match['defines'] or ''}"

    text = _TOKEN.sub(rename, definition)
    missing = sorted({"root", *used} - defined)
    if missing:
        raise InvalidRequest(
            f"The grammar has no rule named {missing[0]!r}.", param="grammar", code="invalid_value"
        )
    return text, f"{prefix}root"
