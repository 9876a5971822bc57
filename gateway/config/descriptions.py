"""Descriptions of the configuration's keys: the docstrings under the fields of its Structs."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import lru_cache

from msgspec import Struct


@lru_cache(maxsize=256)
def descriptions(struct: type[Struct]) -> dict[str, str]:
    """Each field's docstring, on one line. Empty if the source is not available."""
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if issubclass(base, Struct) and base is not Struct:
            found |= _field_texts(base)
    return found


def _field_texts(struct: type[Struct]) -> dict[str, str]:
    try:
        [node] = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    if not isinstance(node, ast.ClassDef):
        return {}
    found: dict[str, str] = {}
    for statement, following in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            found[statement.target.id] = " ".join(following.value.value.split())
    return found
