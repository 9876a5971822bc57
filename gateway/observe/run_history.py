"""Runs as administrators see them: runs in progress, and those that ended last. Without texts of requests or
answers."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from secrets import token_hex
from typing import Final

from gateway.observe.run_stats import Phase, RunStats, clock
from gateway.plugins.protocols import Principal
from gateway.wire.inventory import ListedPhase, ListedRun, RunState

_PROCESS: Final = token_hex(6)
"""Distinguishes the runs of this process from those of other processes."""


class RunHistory:
    """The runs of this process that ended last."""

    def __init__(self, most: int) -> None:
        """`most`: the maximum number of runs to keep."""
        self.most = most
        self._runs: deque[ListedRun | tuple[RunStats, Principal | None]] = deque(maxlen=most)

    def ended(self, stats: RunStats, principal: Principal | None) -> None:
        """Keep a run that has ended."""
        if stats.content is None and stats.span is None:
            self._runs.append((stats, principal))  # converted when it is read
        else:  # the texts and the span are not kept
            self._runs.append(listed_run(stats, principal))

    def newest_first(self) -> Sequence[ListedRun]:
        """The kept runs, newest first."""
        return [
            each if isinstance(each, ListedRun) else listed_run(*each)
            for each in reversed(self._runs)
        ]


def run_id(stats: RunStats) -> str:
    """The id by which administrators name a run."""
    return f"run_{_PROCESS}_{stats.number}"


def listed_run(stats: RunStats, principal: Principal | None) -> ListedRun:
    """The present state of a run, for administrators."""
    usage = stats.usage
    firsts = [each.run.at for each in stats.generations if each.run.at]
    first = stats.first_token or min(firsts, default=0.0)
    made = stats.output_tokens + sum(each.run.generated for each in stats.generations)
    return ListedRun(
        id=run_id(stats),
        number=stats.number,
        process=os.getpid(),
        request_id=stats.request_id,
        response_id=stats.response_id or None,
        api=stats.api,
        model=stats.model,
        key=None if principal is None else principal.name,
        state=_state(stats),
        started=time.time() - (clock() - stats.started),
        seconds=_rounded(stats.seconds),
        queue_seconds=None if stats.queue_seconds is None else _rounded(stats.queue_seconds),
        first_token_seconds=_rounded(first - stats.started) if first else None,
        input_tokens=None if usage is None else usage.input_tokens,
        output_tokens=made if usage is None else usage.output_tokens,
        turns=stats.turns + bool(stats.generations),
        error_code=stats.error_code,
        phases=[_listed(each, stats.started) for each in _phases(stats)],
    )


def _state(stats: RunStats) -> RunState:
    match stats.status:
        case None | "queued" | "in_progress":
            pass
        case ended:
            return ended
    if not stats.admitted:
        return "queued"
    if stats.tools:
        return "tool"
    if not stats.generations:
        return "working"
    return "decoding" if any(each.run.at for each in stats.generations) else "prompt"


def _phases(stats: RunStats) -> Iterator[Phase]:
    """All phases of a run. Phases in progress are reported as if they ended now."""
    now = stats.ended or clock()
    if stats.queued:
        yield Phase("queue", "", stats.queued, stats.admitted or now)
    yield from stats.phases or ()
    for generation in stats.generations:
        first = generation.run.at
        yield Phase("prompt", "", generation.began, first or now)
        if first:
            yield Phase("decoding", "", first, now)
    for call in stats.tools:
        yield Phase("tool", call.name, call.began, now)


def _listed(phase: Phase, started: float) -> ListedPhase:
    return ListedPhase(
        kind=phase.kind,
        name=phase.name,
        began=_rounded(phase.began - started),
        seconds=_rounded(phase.ended - phase.began),
    )


def _rounded(seconds: float) -> float:
    return round(max(0.0, seconds), 4)
