"""What administrators see and do of the runs of all worker processes. Each worker knows its own, and asks the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from gateway.runtime.run_history import listed_run, run_id
from gateway.runtime.services import Services
from gateway.wire.inventory import ListedRun, RunList

MOST_RUNNING: Final = 500
"""Runs in progress in one answer."""


class Question(Struct, frozen=True, kw_only=True):
    """What one worker asks another."""

    what: Literal["runs", "cancel"]
    run: str = ""
    """The id of a run; of `cancel`."""


async def all_runs(services: Services) -> RunList:
    """The runs of all workers."""
    others = await _ask(services, Question(what="runs"))
    lists = [runs_here(services), *(msgspec.msgpack.decode(each, type=RunList) for each in others)]
    history = services.run_history
    return merged(
        lists,
        workers=services.config.server.workers,
        most_ended=0 if history is None else history.most,
    )


async def cancel_run(services: Services, run: str) -> ListedRun | None:
    """Cancel a run, whichever worker it is in; None if none has it."""
    found = _cancel_here(services, run)
    if found is None:
        for each in await _ask(services, Question(what="cancel", run=run)):
            found = found or msgspec.msgpack.decode(each, type=ListedRun | None)
    return found


def answer(services: Services, question: bytes) -> bytes:
    """The answer to a question of another worker. Raises `msgspec.MsgspecError` for what is none."""
    asked = msgspec.msgpack.decode(question, type=Question)
    match asked.what:
        case "runs":
            return msgspec.msgpack.encode(runs_here(services))
        case "cancel":
            return msgspec.msgpack.encode(_cancel_here(services, asked.run))


async def _ask(services: Services, question: Question) -> Sequence[bytes]:
    if services.workers is None:
        return ()
    return await services.workers.ask(msgspec.msgpack.encode(question))


def runs_here(services: Services) -> RunList:
    """The runs of this process."""
    oldest = sorted(services.runs, key=lambda each: each.stats.started)[:MOST_RUNNING]
    history = services.run_history
    return RunList(
        workers=1,
        answered=1,
        total=len(services.runs),
        running=[listed_run(each.stats, each.principal) for each in oldest],
        ended=[] if history is None else list(history.newest_first()),
    )


def merged(lists: Sequence[RunList], *, workers: int, most_ended: int) -> RunList:
    """The runs of several workers as one list."""
    running = sorted((run for each in lists for run in each.running), key=lambda run: run.started)
    ended = [run for each in lists for run in each.ended]
    if len(lists) > 1:
        ended.sort(key=lambda run: run.started + run.seconds, reverse=True)
    return RunList(
        workers=workers,
        answered=len(lists),
        total=sum(each.total for each in lists),
        running=running[:MOST_RUNNING],
        ended=ended[:most_ended],
    )


def _cancel_here(services: Services, run: str) -> ListedRun | None:
    for each in services.runs:
        if run_id(each.stats) == run:
            each.revoke()
            return listed_run(each.stats, each.principal)
    return None
