"""Registering checks, and running them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from gateway_conform.client import HttpClient
from gateway_conform.outcome import CheckFailed, CheckSkipped
from gateway_conform.response_stream import GrammarError

AREAS = (
    "models",
    "responses",
    "streaming",
    "lifecycle",
    "tools",
    "structured output",
    "errors",
    "chat",
    "completions",
    "embeddings",
)
"""The areas, in the order of the report."""

Outcome: TypeAlias = Literal["pass", "fail", "skip"]


class ServerUnderTest(Struct, frozen=True):
    """The server under test, and the models that the checks use."""

    client: HttpClient
    model: str
    """The name of a model that generates text."""
    embedding_model: str
    """The name of a model for embeddings; by default the same as `model`."""


class Check(Struct, frozen=True):
    """A check. `run` raises `CheckFailed` or `CheckSkipped`, or returns."""

    area: str
    name: str
    """What is true if the check passes, as a sentence."""
    run: Callable[[ServerUnderTest], None]


class CheckResult(Struct, frozen=True, kw_only=True):
    """The outcome of one check."""

    area: str
    name: str
    outcome: Outcome
    detail: str = ""
    """Why the check failed, or was skipped."""
    request: str = ""
    """The last request of a failed check, as a `curl` command."""
    seconds: float


CHECKS: list[Check] = []


def check(
    area: str, name: str
) -> Callable[[Callable[[ServerUnderTest], None]], Callable[[ServerUnderTest], None]]:
    """Register a function as a check."""
    assert area in AREAS

    def registered(
        function: Callable[[ServerUnderTest], None],
    ) -> Callable[[ServerUnderTest], None]:
        CHECKS.append(Check(area, name, function))
        return function

    return registered


def run_checks(server: ServerUnderTest, chosen: Sequence[Check]) -> Iterator[CheckResult]:
    """Run checks one after the other. Raises `Unreachable` if the server does not answer any more."""
    for each in chosen:
        begun = time.monotonic()
        outcome: Outcome = "pass"
        detail = ""
        try:
            each.run(server)
        except CheckSkipped as reason:
            outcome, detail = "skip", str(reason)
        except (CheckFailed, GrammarError) as problem:
            outcome, detail = "fail", str(problem)
        except KeyError as problem:
            outcome, detail = "fail", f"the answer has no {problem}"
        except (IndexError, TypeError, AttributeError, ValueError) as problem:
            # The answer does not have the form that the check expects.
            outcome = "fail"
            detail = f"the answer has another shape: {type(problem).__name__}: {problem}"
        yield CheckResult(
            area=each.area,
            name=each.name,
            outcome=outcome,
            detail=detail,
            request=server.client.last if outcome == "fail" else "",
            seconds=time.monotonic() - begun,
        )
