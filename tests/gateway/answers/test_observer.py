"""What an answer shows beside its text."""

from __future__ import annotations

import asyncio

import msgspec

from gateway.answers.observer import OutputObserver
from gateway.plugins.protocols import TokenLogprob, TopLogprob
from gateway.wire.chat import PromptLogprob


def test_a_prompts_token_that_is_no_alternative_has_the_rank_that_the_engine_tells() -> None:
    top = (TopLogprob(1, "a", -0.1, b"a"), TopLogprob(2, "b", -0.2, b"b"))
    told = TokenLogprob(7, "z", -9.0, b"z", top, rank=81)
    among = TokenLogprob(2, "b", -0.2, b"b", top, rank=2)
    silent = TokenLogprob(7, "z", -9.0, b"z")
    observer = OutputObserver(aligner=None, token_ids=None, shows_prompt=True)
    asyncio.run(observer.see_prompt([None, told, among, silent]))

    def shown(rank: int | None, logprob: float, token: str) -> PromptLogprob:
        return PromptLogprob(logprob=logprob, rank=rank, decoded_token=token)

    likely = {1: shown(1, -0.1, "a"), 2: shown(2, -0.2, "b")}
    told_of_prompt = msgspec.json.decode(
        observer.shown_prompt, type=list[dict[int, PromptLogprob] | None]
    )
    assert told_of_prompt == [
        None,
        {7: shown(81, -9.0, "z"), **likely},
        likely,
        {7: shown(None, -9.0, "z")},
    ]
