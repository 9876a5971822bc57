"""Constraint building blocks shared by several syntaxes."""

from __future__ import annotations

from gateway.sdk.constraints import (
    Const,
    Constraint,
    Repeat,
    Sequence,
)


def repeated(body: Constraint, *, separator: str) -> Constraint:
    """`body` one or more times, separated by `separator`."""
    more = Repeat(Sequence((Const(separator), body)) if separator else body, min=0)
    return Sequence((body, more))
