"""Resolving `$ref` within one document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

MAX_REFERENCES: Final = 16
"""Maximum number of references in a chain, in which each refers to the next."""


class UnresolvedReferenceError(ValueError):
    """The reference is not a JSON pointer within the document, or points to nothing in it."""

    def __init__(self, reference: object, *, is_local: bool) -> None:
        super().__init__(f"{reference!r} points to nothing in the schema")
        self.reference = reference
        self.is_local = is_local
        """Whether the reference is a pointer within the document."""


def target(root: Any, reference: object) -> Any:
    """The schema that a local JSON pointer (`#/$defs/name`) refers to. Raises `UnresolvedReferenceError`."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise UnresolvedReferenceError(reference, is_local=False)
    found = root
    for step in reference.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key[:9]) < len(found):
            found = found[int(key[:9])]
        else:
            raise UnresolvedReferenceError(reference, is_local=True)
    return found


def dereferenced(schema: Any, root: Any) -> Mapping[str, Any] | None:
    """Follow the reference of `schema`, and those that it leads to. Keywords next to references are ignored.

    Returns None if a reference has no target, if the target is not an object, or after more than `MAX_REFERENCES`
    references.
    """
    for _ in range(MAX_REFERENCES):
        if not isinstance(schema, Mapping):
            return None
        if "$ref" not in schema:
            return schema
        try:
            schema = target(root, schema["$ref"])
        except UnresolvedReferenceError:
            return None
    return None
