"""What is listed of runs: their state, their phases, and not more than is kept."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.run_history import RunHistory, listed_run
from gateway.observe.run_stats import MAX_PHASES, LiveGeneration, RunStats, clock
from gateway.plugins.protocols import Principal
from gateway.wire.response import Usage


def run() -> RunStats:
    stats = RunStats("responses")
    stats.model, stats.queued, stats.phases = "m", clock(), []
    return stats


def test_the_states_of_a_run_in_their_order() -> None:
    stats = run()
    seen = [listed_run(stats, None).state]
    stats.admitted = clock()
    seen.append(listed_run(stats, None).state)
    first = SimpleNamespace(at=0.0, generated=7)
    generation = LiveGeneration(clock(), first)
    stats.generates(generation)
    seen.append(listed_run(stats, None).state)
    first.at = clock()
    seen.append(listed_run(stats, None).state)
    assert listed_run(stats, None).output_tokens == 7
    stats.generated(generation, 9)
    with stats.running_tool("look"):
        now = listed_run(stats, None)
        seen.append(now.state)
        assert [(each.kind, each.name) for each in now.phases][-1] == ("tool", "look")
    assert (now.output_tokens, now.turns) == (9, 1)
    stats.status, stats.ended = "completed", clock()
    stats.usage = Usage(input_tokens=3, output_tokens=11, total_tokens=14)
    ended = listed_run(stats, Principal(name="ada"))
    seen.append(ended.state)
    assert seen == ["queued", "working", "prompt", "decoding", "tool", "completed"]
    assert (ended.key, ended.input_tokens, ended.output_tokens) == ("ada", 3, 11)
    assert [each.kind for each in ended.phases] == ["queue", "prompt", "decoding", "tool"]
    for phase in ended.phases:
        assert 0 <= phase.began <= phase.began + phase.seconds <= ended.seconds + 0.001


def test_choices_that_are_made_at_once_count_together() -> None:
    stats = run()
    stats.admitted = clock()
    for tokens in (2, 3):
        stats.generates(LiveGeneration(clock(), SimpleNamespace(at=0.0, generated=tokens)))
    assert listed_run(stats, None).output_tokens == 5


def test_phases_of_a_run_are_bounded_and_names_are_cut() -> None:
    stats = run()
    for _ in range(MAX_PHASES + 50):
        with stats.running_tool("x" * 5000):
            pass
    listed = listed_run(stats, None)
    assert len(listed.phases) == MAX_PHASES + 1, "and the queue"
    assert {len(each.name) for each in listed.phases if each.name} == {100}


def test_nothing_is_kept_of_phases_that_nobody_asked_for() -> None:
    stats = run()
    stats.phases = None
    with stats.running_tool("look"):
        pass
    assert [each.kind for each in listed_run(stats, None).phases] == ["queue"]


@given(st.integers(1, 5), st.integers(0, 12))
def test_the_last_runs_are_kept_newest_first(most: int, runs: int) -> None:
    history = RunHistory(most)
    numbers = []
    for _ in range(runs):
        stats = run()
        stats.status = "completed"
        history.ended(stats, None)
        numbers.append(stats.number)
    assert [each.number for each in history.newest_first()] == numbers[::-1][:most]
