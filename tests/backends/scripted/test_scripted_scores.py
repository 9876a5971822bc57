"""The scripted engine's made-up scores."""

from __future__ import annotations

import pytest

from gateway.base.errors import EngineUnavailable
from gateway.plugins.protocols import ScoreRequest
from gateway_scripted import Rule, Scenario, ScriptedEngine
from gateway_testing import ScoreContract


class TestScriptedEngineReranks(ScoreContract):
    @pytest.fixture
    def engine(self) -> ScriptedEngine:
        return ScriptedEngine(
            max_model_len=4096, adapters=["noise"], generates=False, dimensions=None, reranks=True
        )


class TestScriptedEngineThatDoesEverything(ScoreContract):
    @pytest.fixture
    def engine(self) -> ScriptedEngine:
        return ScriptedEngine(max_model_len=4096, reranks=True)


@pytest.mark.anyio
async def test_rules_apply_to_documents() -> None:
    engine = ScriptedEngine(Scenario([Rule(when="dead", finish="crash")]), reranks=True)
    with pytest.raises(EngineUnavailable, match="crashed"):
        await engine.score(ScoreRequest(request_id="1", pairs=[("a", "b"), ("a", "dead")]))


@pytest.mark.anyio
async def test_texts_that_share_words_score_higher() -> None:
    engine = ScriptedEngine(generates=False, dimensions=None, reranks=True)
    assert engine.capabilities == {"rerank"}
    query = "where did the cat sit"
    pairs = [(query, "revenue rose"), (query, "the cat sat there"), (query, query)]
    result = await engine.score(ScoreRequest(request_id="1", pairs=pairs))
    assert list(result.scores) == sorted(result.scores)
    assert result.scores[2] == pytest.approx(1, abs=1e-5)
