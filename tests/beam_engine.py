"""An engine whose next token depends on the last one alone, by a table of probabilities, so that a beam search can be checked."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from gateway.base.errors import EngineError
from gateway.plugins.protocols import (
    Capability,
    EngineOutput,
    EngineRequest,
    TokenLogprob,
    TokensPrompt,
    TopLogprob,
)
from gateway.sdk import hookimpl
from gateway_scripted import Rule, Scenario, ScriptedEngine

END = "<|im_end|>"
TABLE: dict[str, dict[str, float]] = {
    "": {"a": 0.5, "b": 0.3, "c": 0.15, END: 0.05},
    "a": {"a": 0.3, "b": 0.3001, "c": 0.2999, END: 0.1},
    "b": {"a": 0.04, "b": 0.9, "c": 0.05, END: 0.01},
    "c": {"a": 0.2, "b": 0.25, "c": 0.05, END: 0.5},
}
"""What follows a letter, or anything else (""), with which probability."""
FAILS = "fail"


class TableEngine(ScriptedEngine):
    """Answers requests for log probabilities by the table, and all others by its rules."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        return super().capabilities | {"beam_search"}

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        sampling, prompt = request.sampling, request.prompt
        assert isinstance(prompt, TokensPrompt)
        if sampling.logprobs is None or sampling.max_tokens != 1:
            async for output in super().generate(request):
                yield output
            return
        self.requests.append(request)
        text = self.tokenizer.decode(prompt.token_ids)
        if FAILS in text and text.endswith("b"):
            raise EngineError("The table is broken.")
        row = TABLE[text[-1] if text[-1] in TABLE else ""]
        tops = []
        for piece, probability in sorted(row.items(), key=lambda entry: -entry[1]):
            [token] = self.tokenizer.encode(piece)
            tops.append(TopLogprob(token, piece, math.log(probability), piece.encode()))
        best, scored = tops[0], None
        if sampling.prompt_logprobs is not None:
            scored = self._prompt_logprobs(prompt.token_ids, sampling.prompt_logprobs)
        yield EngineOutput(
            text=best.token,
            token_ids=[best.token_id],
            finish_reason="length",
            prompt_tokens=len(prompt.token_ids),
            cached_tokens=1,
            prompt_logprobs=scored,
            logprobs=[
                TokenLogprob(
                    best.token_id,
                    best.token,
                    best.logprob,
                    best.bytes,
                    tuple(tops[: sampling.logprobs]),
                )
            ],
        )


def table_engine(name: str = "m") -> TableEngine:
    rules = msgspec.convert([{"when": "", "pieces": [{"text": "no search"}]}], list[Rule])
    return TableEngine(Scenario(rules), name=name)


class TablePlugin:
    @asynccontextmanager
    async def open(self, config: Any, context: Any) -> AsyncIterator[TableEngine]:
        yield table_engine(context.name)

    @hookimpl
    def gateway_register_engines(self, register: Any) -> None:
        register("table", self.open)
