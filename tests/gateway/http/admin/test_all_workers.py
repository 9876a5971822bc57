"""Runs of several workers as one list."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.admin.all_workers import MAX_RUNNING, Question, answer, merged, runs_here
from gateway.observe.run_history import RunHistory, listed_run
from gateway.observe.run_stats import RunStats, clock
from gateway.wire.inventory import ListedRun, RunList

RUN = listed_run(RunStats("chat"), None)


def run(name: str, started: float, seconds: float) -> ListedRun:
    return msgspec.structs.replace(RUN, id=name, started=started, seconds=seconds)


times = st.tuples(st.floats(0, 1e9), st.floats(0, 1e4))


@given(st.lists(st.tuples(st.lists(times, max_size=5), st.lists(times, max_size=5)), max_size=4))
def test_no_run_is_lost_and_the_order_is_that_of_time(
    workers: list[tuple[list[tuple[float, float]], list[tuple[float, float]]]],
) -> None:
    lists = []
    for number, (running, ended) in enumerate(workers):
        now = [run(f"r{number}-{index}", *each) for index, each in enumerate(running)]
        past = [run(f"e{number}-{index}", *each) for index, each in enumerate(ended)]
        now.sort(key=lambda each: each.started)
        past.sort(key=lambda each: each.started + each.seconds, reverse=True)
        lists.append(RunList(workers=1, answered=1, total=len(now), running=now, ended=past))
    made = merged(lists, workers=4, most_ended=100)
    assert (made.workers, made.answered) == (4, len(workers))
    assert made.total == len(made.running) == sum(len(each.running) for each in lists)
    assert {each.id for each in made.ended} == {run.id for each in lists for run in each.ended}
    begun = [each.started for each in made.running]
    assert begun == sorted(begun)
    ends = [each.started + each.seconds for each in made.ended]
    assert ends == sorted(ends, reverse=True)


def test_a_list_is_bounded() -> None:
    many = [run(str(number), number, 1) for number in range(400)]
    one = RunList(workers=1, answered=1, total=400, running=many, ended=many)
    made = merged([one, one], workers=2, most_ended=100)
    assert (len(made.running), len(made.ended), made.total) == (MAX_RUNNING, 100, 800)


@pytest.mark.parametrize("question", [b"", b"\xff", b"\x81\xa4what\xa4stop", b"\xc1" * 100])
def test_a_question_that_is_none_is_refused(question: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        answer(None, question)  # type: ignore[arg-type]


def test_a_run_that_has_ended_and_whose_client_reads_slowly_is_listed_once() -> None:
    runs = [SimpleNamespace(stats=RunStats("responses"), principal=None) for _ in range(2)]
    history = RunHistory(10)
    services: Any = SimpleNamespace(runs=runs, run_history=history)
    runs[0].stats.ended, runs[0].stats.status = clock(), "completed"
    history.ended(runs[0].stats, None)
    found = runs_here(services)
    assert (found.total, len(found.running), len(found.ended)) == (1, 1, 1)
    assert found.running[0].id != found.ended[0].id


def test_questions_are_read_as_they_were_asked() -> None:
    asked = Question(what="cancel", run="run_x_1")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(asked), type=Question) == asked
