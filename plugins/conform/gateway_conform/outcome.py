"""The exceptions by which checks end without success."""

from __future__ import annotations


class CheckFailed(Exception):
    """The server does not behave as the API promises. The message describes the difference."""


class CheckSkipped(Exception):
    """The check does not apply to this server. The message says why."""


class Unreachable(Exception):
    """No server answers at the URL."""


def require(condition: object, problem: str) -> None:
    """Raise `CheckFailed` unless `condition` is true."""
    if not condition:
        raise CheckFailed(problem)
