"""Constraint building blocks shared by several syntaxes."""

from __future__ import annotations

from collections.abc import Sequence as Options

from gateway.sdk.constraints import Const, Constraint, OneOf, Repeat, Sequence


def repeated(body: Constraint, *, separator: str) -> Constraint:
    """`body` one or more times, separated by `separator`."""
    more = Repeat(Sequence((Const(separator), body)) if separator else body, min=0)
    return Sequence((body, more))


def calls_of(options: Options[Constraint], *, separator: str, parallel: bool) -> Constraint:
    """One of several calls; if `parallel`, one or more of them."""
    call = options[0] if len(options) == 1 else OneOf(tuple(options))
    return repeated(call, separator=separator) if parallel else call
