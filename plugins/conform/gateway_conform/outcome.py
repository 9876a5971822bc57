"""How a check ends other than well."""

from __future__ import annotations


class CheckFailed(Exception):
    """The server did something else than the API promises. The message says what."""


class CheckSkipped(Exception):
    """The check does not apply to this server. The message says why."""


class Unreachable(Exception):
    """Nothing answers at the URL."""


def require(condition: object, problem: str) -> None:
    """Raise `CheckFailed` unless `condition` is true."""
    if not condition:
        raise CheckFailed(problem)
