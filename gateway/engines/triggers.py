"""Removing a trigger from the beginning of a constraint."""

from __future__ import annotations

from gateway.base.constraints import Const, Constraint, OneOf, Repeat, Sequence
from gateway.base.errors import Unsupported


def after_trigger(body: Constraint, trigger: str) -> Constraint:
    """The constraint on the text after `trigger`. All texts that satisfy `body` must begin with `trigger`. Raises
    `Unsupported` if this constraint cannot be determined."""
    match body:
        case _ if not trigger:
            return body
        case Const(text) if text.startswith(trigger):
            return Const(text[len(trigger) :])
        case Sequence((Const(text), *rest)) if trigger.startswith(text):
            return after_trigger(Sequence(tuple(rest)), trigger[len(text) :])
        case Sequence((first, *rest)):
            return Sequence((after_trigger(first, trigger), *rest))
        case OneOf(options) if options:
            return OneOf(tuple(after_trigger(option, trigger) for option in options))
        case Repeat(again, least, most) if least > 0:
            remaining = Repeat(again, least - 1, None if most is None else most - 1)
            return Sequence((after_trigger(again, trigger), remaining))
    raise Unsupported(
        f"What the trigger '{trigger}' begins must itself begin with that text, to be enforced."
    )
