"""The measured values of a run: sums over its generations, and times that say nothing of phases that were not reached."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe import run_stats
from gateway.observe.run_stats import LiveGeneration, Phase, RunStats
from tests.clock import Clock


class Going:
    """A generation in progress, whose first output comes at a time."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.generated = 0


GENERATIONS = st.lists(
    st.tuples(
        st.integers(0, 9), st.none() | st.integers(0, 9), st.integers(0, 9), st.integers(0, 99)
    ),
    max_size=5,
)
"""For each generation: when it begins, how long its first output takes (None: there is none), how long the others take,
and its tokens."""


@given(generations=GENERATIONS, order=st.randoms(use_true_random=False), kept=st.booleans())
def test_the_values_of_generations_are_summed_in_whatever_order_they_end(
    generations: list[tuple[int, int | None, int, int]], order: Random, kept: bool
) -> None:
    now = Clock(100.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_stats, "clock", now)
        stats = RunStats("chat", started=90.0, phases=[] if kept else None)
        live = []
        for began, first, more, tokens in generations:
            at = 0.0 if first is None else 100.0 + began + first
            generation = LiveGeneration(100.0 + began, Going(at))
            stats.generates(generation)
            live.append((100.0 + began + (first or 0) + more, generation, tokens))
        order.shuffle(live)
        for ended, generation, tokens in live:
            now.now = ended
            stats.generated(generation, tokens)
            assert generation not in stats.generations
    begun = [each for each in generations if each[1] is not None]
    several = [each for each in begun if each[3] > 1]
    assert stats.generations == []
    assert (stats.turns, stats.output_tokens) == (len(live), sum(each[3] for each in generations))
    assert stats.prompt_seconds == sum(each[1] or 0 for each in begun)
    assert stats.decode_seconds == sum(each[2] for each in several)
    assert stats.decode_tokens == sum(each[3] - 1 for each in several)
    firsts = [each[0] + (each[1] or 0) for each in begun]
    assert stats.first_token_seconds == (min(firsts) + 10.0 if firsts else None)
    mean = stats.decode_seconds / stats.decode_tokens if several else None
    assert stats.seconds_per_token == mean
    if kept:
        wanted = [Phase("prompt", "", g.began, g.run.at or ended) for ended, g, _ in live]
        wanted += [Phase("decoding", "", g.run.at, ended) for ended, g, _ in live if g.run.at]
        assert stats.phases is not None
        assert sorted(stats.phases, key=repr) == sorted(wanted, key=repr)
    else:
        assert stats.phases is None


def test_what_was_not_reached_has_no_time() -> None:
    stats = RunStats("chat", queued=5.0)
    assert stats.queue_seconds is None
    assert stats.first_token_seconds is None
    assert stats.seconds_per_token is None
    stats.admitted = 7.5
    assert stats.queue_seconds == 2.5


def test_a_run_lasts_until_its_end_or_until_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_stats, "clock", Clock(25.0))
    stats = RunStats("chat", started=20.0)
    assert stats.seconds == 5.0
    stats.ended = 22.0
    assert stats.seconds == 2.0


def test_a_tool_is_in_progress_until_its_context_is_left_also_by_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = Clock(10.0)
    monkeypatch.setattr(run_stats, "clock", now)
    stats = RunStats("chat", phases=[])
    with stats.running_tool("outer"):
        now.now = 11.0
        with pytest.raises(KeyError), stats.running_tool("inner"):
            now.now = 13.0
            assert [each.name for each in stats.tools] == ["outer", "inner"]
            raise KeyError
        assert [each.name for each in stats.tools] == ["outer"]
    assert stats.tools == []
    assert stats.phases == [Phase("tool", "inner", 11.0, 13.0), Phase("tool", "outer", 10.0, 13.0)]


def test_two_runs_share_nothing_and_have_numbers_of_their_own() -> None:
    one, two = RunStats("chat"), RunStats("chat")
    assert one.number < two.number
    assert len({one, two}) == 2, "each is itself alone"
    with one.running_tool("look"):
        one.generates(LiveGeneration(1.0, Going(0.0)))
        assert (two.tools, two.generations) == ([], [])
