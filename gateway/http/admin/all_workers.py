"""Administration across all worker processes: list and cancel runs, show queues and the use of API keys.

Each worker knows only its own state, and asks the other workers for theirs.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from gateway.models.queue_history import MINUTES
from gateway.observe.run_history import listed_run, run_id
from gateway.services import Run, Services
from gateway.wire.inventory import ListedRun, QueueMinute, RunList

logger = logging.getLogger("gateway.http.admin.all_workers")

MAX_RUNNING: Final = 500
"""Maximum number of runs in progress in one answer."""

_LONGEST_ID: Final = 100
"""Maximum characters of a run's id sent by a client. Workers limit the size of questions."""


_LIST_SECONDS: Final = 2.0
"""Time limit for the other workers' answers to a query, in seconds: a worker that hangs must not block it."""
_CANCEL_SECONDS: Final = 10.0


class Question(Struct, frozen=True, kw_only=True):
    """A question from one worker to another."""

    what: Literal["runs", "cancel", "activity"]
    run: str = ""
    """The id of the run to cancel, for `cancel`."""


class Activity(Struct, frozen=True, kw_only=True):
    """The use of API keys, and the queues of models."""

    running: dict[str, int]
    """Number of runs in progress, by the name of the API key."""
    last_used: dict[str, float]
    """Unix time at which the last run ended, by the name of the API key."""
    queues: dict[str, tuple[int, int, list[QueueMinute]]]
    """Running requests, waiting requests, and the minutes of the last hour, by model."""
    silent: list[int] = []
    """Ids of the worker processes that did not answer in time."""


async def all_activity(services: Services) -> Activity:
    """The activity of all workers."""
    others: list[Activity]
    others, silent = await _ask(services, Question(what="activity"), Activity)
    made = _activity_here(services)
    for each in others:
        made = added(made, each)
    return msgspec.structs.replace(made, silent=silent)


def _activity_here(services: Services) -> Activity:
    names = (run.principal.name for run in _running(services) if run.principal is not None)
    history = services.queue_history
    return Activity(
        running=dict(Counter(names)),
        last_used=dict(services.usage.last_used),
        queues={
            slot.name: (
                slot.admission.running,
                slot.admission.waiting,
                [] if history is None else list(history.of(slot.name)),
            )
            for slot in services.slots.slots.values()
        },
    )


def added(one: Activity, other: Activity) -> Activity:
    """The combined activity of two workers. The maxima of a minute are added, which is an upper bound."""
    running = dict(Counter(one.running) + Counter(other.running))
    last_used = dict(one.last_used)
    for name, at in other.last_used.items():
        last_used[name] = max(at, last_used.get(name, 0.0))
    queues = dict(one.queues)
    for name, (runs, waits, minutes) in other.queues.items():
        mine = queues.get(name, (0, 0, []))
        queues[name] = (runs + mine[0], waits + mine[1], _both(mine[2], minutes))
    return Activity(running=running, last_used=last_used, queues=queues)


def _both(one: Sequence[QueueMinute], other: Sequence[QueueMinute]) -> list[QueueMinute]:
    by_time: dict[int, tuple[int, int]] = {}
    for each in (*one, *other):
        running, waiting = by_time.get(each.at, (0, 0))
        by_time[each.at] = (running + each.running, waiting + each.waiting)
    made = [QueueMinute(at=at, running=by_time[at][0], waiting=by_time[at][1]) for at in by_time]
    return sorted(made, key=lambda each: each.at)[-MINUTES:]


async def all_runs(services: Services) -> RunList:
    """The runs of all workers."""
    others: list[RunList]
    others, silent = await _ask(services, Question(what="runs"), RunList)
    lists = [runs_here(services), *others]
    history = services.run_history
    made = merged(
        lists,
        workers=services.config.server.workers,
        most_ended=0 if history is None else history.most,
    )
    return msgspec.structs.replace(made, silent=silent)


async def cancel_run(services: Services, run: str) -> ListedRun | None:
    """Cancel a run in any worker. Returns None if no worker has the run or its work has ended."""
    if len(run) > _LONGEST_ID:
        return None
    found = _cancel_here(services, run)
    if found is None:
        question = Question(what="cancel", run=run)
        others: list[ListedRun | None]
        others, _ = await _ask(services, question, ListedRun | None)
        found = next((each for each in others if each is not None), None)
    return found


def answer(services: Services, question: bytes) -> bytes:
    """Answer a question of another worker. Raises `msgspec.MsgspecError` if the question is invalid."""
    asked = msgspec.msgpack.decode(question, type=Question)
    match asked.what:
        case "runs":
            return msgspec.msgpack.encode(runs_here(services))
        case "cancel":
            return msgspec.msgpack.encode(_cancel_here(services, asked.run))
        case "activity":
            return msgspec.msgpack.encode(_activity_here(services))


async def _ask(services: Services, question: Question, kind: Any) -> tuple[list[Any], list[int]]:
    """Ask all other workers. Returns their answers, each of type `kind`, and the process ids of those that do not
    answer.

    Answers of another type are left out: a worker that was started after an update of the packages may use another
    form.
    """
    if services.workers is None:
        return [], []
    made = []
    seconds = _CANCEL_SECONDS if question.what == "cancel" else _LIST_SECONDS
    told = await services.workers.ask(msgspec.msgpack.encode(question), seconds=seconds)
    for each in told.answers:
        try:
            made.append(msgspec.msgpack.decode(each, type=kind))
        except msgspec.MsgspecError as error:
            logger.warning("another worker answers in another form; restart the server: %s", error)
    return made, list(told.silent)


def runs_here(services: Services) -> RunList:
    """The runs of this process."""
    running = _running(services)
    oldest = sorted(running, key=lambda each: each.stats.started)[:MAX_RUNNING]
    history = services.run_history
    return RunList(
        workers=1,
        answered=1,
        total=len(running),
        running=[listed_run(each.stats, each.principal) for each in oldest],
        ended=[] if history is None else list(history.newest_first()),
    )


def _running(services: Services) -> Sequence[Run]:
    """The runs of this process, without those that have ended and only send their last events to a slow client."""
    return [each for each in services.runs if not each.stats.ended]


def merged(lists: Sequence[RunList], *, workers: int, most_ended: int) -> RunList:
    """Merge the lists of several workers into one."""
    running = sorted((run for each in lists for run in each.running), key=lambda run: run.started)
    ended = [run for each in lists for run in each.ended]
    if len(lists) > 1:
        ended.sort(key=lambda run: run.started + run.seconds, reverse=True)
    return RunList(
        workers=workers,
        answered=len(lists),
        total=sum(each.total for each in lists),
        running=running[:MAX_RUNNING],
        ended=ended[:most_ended],
    )


def _cancel_here(services: Services, run: str) -> ListedRun | None:
    for each in services.runs:
        if run_id(each.stats) == run:
            return listed_run(each.stats, each.principal) if each.revoke() else None
    return None
