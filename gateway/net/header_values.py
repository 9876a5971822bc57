"""Values of HTTP headers from the configuration and the environment: keys, tokens and tables of headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gateway.errors import ConfigurationError

_INVISIBLE: Final = "\ufeff\u200b\u200c\u200d\u2060"
"""What editors and web pages leave around a copied text, and `str.strip` does not take: marks without a width."""
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""RFC 9110, 5.1."""


def header_value(text: str, name: str, *, latin: bool = False) -> str:
    """`text` without surrounding white space, line ends, byte-order marks and the like, as files and copied texts have them.

    Raises `ConfigurationError` with `name`, and not with the text, for a character that cannot be sent. `latin` allows the
    printable characters of Latin-1 too.
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
    """A table of headers with values as of `header_value`. Raises `ConfigurationError`. `name` is that of the table."""
    checked = {}
    for header, value in headers.items():
        if not _NAME.fullmatch(header.strip()):
            raise ConfigurationError(f"{name} has {header!r}, which is no name of an HTTP header.")
        checked[header.strip()] = header_value(value, f"{name}.{header.strip()}", latin=True)
    return checked
