"""Values of HTTP headers that come from the configuration and the environment: keys, tokens and tables of headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gateway.base.errors import ConfigurationError

_INVISIBLE: Final = "\ufeff\u200b\u200c\u200d\u2060"
"""Characters without a width that editors and web pages leave around copied texts, and that `str.strip` does not
remove."""
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""The name of a header (RFC 9110, 5.1)."""


def header_value(text: str, name: str, *, latin: bool = False) -> str:
    """`text` without surrounding white space, line ends and invisible marks, which files and copied texts often
    contain.

    Raises `ConfigurationError` for a character that cannot be sent. The error contains `name`, but not the text, which
    may be a secret. `latin` also allows the printable characters of Latin-1.
    """
    stripped = text.strip()
    while (bare := stripped.strip(_INVISIBLE).strip()) != stripped:
        stripped = bare
    for place, character in enumerate(stripped):
        if not character.isprintable() or ord(character) > (0xFF if latin else 0x7E):
            raise ConfigurationError(
                f"{name} has the character U+{ord(character):04X} at position {place + 1} of {len(stripped)}, which cannot be sent "
                "in an HTTP header. Copy it again, without it."
            )
    return stripped


def checked_headers(headers: Mapping[str, str], name: str = "headers") -> dict[str, str]:
    """A table of headers whose values `header_value` has checked. `name` is the name of the table. Raises
    `ConfigurationError`."""
    checked = {}
    for header, value in headers.items():
        if not _NAME.fullmatch(header.strip()):
            raise ConfigurationError(f"{name} has {header!r}, which is no name of an HTTP header.")
        checked[header.strip()] = header_value(value, f"{name}.{header.strip()}", latin=True)
    return checked
