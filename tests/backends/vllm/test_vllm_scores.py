"""Scores by vLLM on the CPU: the tiny model with a head of random weights."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.base.errors import ConfigurationError, InvalidRequest, Unsupported
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import EngineRequest, ScoreRequest, TokensPrompt
from gateway_doctor.checks import scoring_checks as checks
from gateway_doctor.checks.engine_probe import NotClaimed, Probe
from gateway_vllm import VllmConfig, open_engine
from gateway_vllm.config import engine_arguments
from tests.backends.vllm.conftest import CPU, MODEL, serve


def write_reranker(folder: Path, *, labels: int = 1) -> None:
    """The tiny model as one of transformers' `ForSequenceClassification`."""
    torch = pytest.importorskip("torch")
    files = pytest.importorskip("safetensors.torch")
    shutil.copytree(MODEL, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "architectures": ["Qwen3ForSequenceClassification"],
        "id2label": {str(number): str(number) for number in range(labels)},
        "label2id": {str(number): number for number in range(labels)},
    }
    (folder / "config.json").write_text(json.dumps(config))
    weights = files.load_file(folder / "model.safetensors")
    noise = torch.randn((labels, config["hidden_size"]), generator=torch.manual_seed(0)) / 20
    weights["score.weight"] = noise.to(torch.bfloat16)
    files.save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.fixture(scope="module")
def reranking_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny-reranker"
    write_reranker(folder)
    return folder


@pytest.fixture(scope="module")
def reranker(reranking_model: Path) -> Iterator[Any]:
    opened = serve(CPU, reranking_model)
    yield opened
    opened.close()


def ask(*pairs: tuple[str, str], **settings: Any) -> ScoreRequest:
    return ScoreRequest(request_id="test", pairs=pairs, **settings)


@pytest.mark.parametrize(
    "check",
    [
        checks.scoring_says_what_it_is,
        checks.each_pair_gets_its_score,
        checks.a_pair_has_one_score,
        checks.scorings_do_not_mix,
        checks.what_is_too_long_is_refused,
        checks.texts_are_truncated,
        checks.cancelling_aborts_scoring,
    ],
    ids=lambda check: check.__name__,
)
def test_it_keeps_the_promises_of_an_engine_that_reranks(reranker: Any, check: Any) -> None:
    try:
        reranker.run(check(Probe(reranker.engine)), timeout=120)
    except NotClaimed as error:
        pytest.fail(f"vLLM offers it: {error}")


def test_it_only_reranks(reranker: Any) -> None:
    engine = reranker.engine
    assert engine.capabilities == {"rerank"}
    assert engine.scoring.max_input_tokens == 1024
    request = EngineRequest(request_id="1", prompt=TokensPrompt(token_ids=[1]))
    with pytest.raises(Unsupported, match="only reranks"):
        reranker.check(request)


def test_scores_are_shares_and_tokens_are_counted(reranker: Any) -> None:
    score = reranker.engine.score
    result = reranker.run(score(ask(("What is the capital?", "Paris."), ("a", "b"))))
    assert all(0 < each < 1 for each in result.scores)
    tokens = reranker.engine.tokenizer
    assert result.prompt_tokens == sum(
        len(tokens.encode(one)) + len(tokens.encode(other))
        for one, other in (("What is the capital?", "Paris."), ("a", "b"))
    )


def test_cancelling_leaves_nothing_in_vllm(reranker: Any) -> None:
    async def cancelled() -> int:
        task = asyncio.create_task(reranker.engine.score(ask(*[("where", "here " * 300)] * 40)))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return len(reranker.engine._host.llm.output_processor.request_states)

    assert reranker.run(cancelled()) == 0


def test_truncation_beyond_the_model_is_refused(reranker: Any) -> None:
    for name in ("truncate_to", "max_tokens_per_document"):
        with pytest.raises(InvalidRequest) as refused:
            reranker.run(reranker.engine.score(ask(("a", "b"), **{name: 1025})))
        assert refused.value.param == name
    with pytest.raises(InvalidRequest) as refused:
        reranker.run(reranker.engine.score(ask(("a", "b"), adapter="none")))
    assert refused.value.param == "model"


def test_a_template_combines_the_texts(
    reranker: Any, reranking_model: Path, start_engine: Callable[..., Any], tmp_path: Path
) -> None:
    template = tmp_path / "score.jinja"
    template.write_text(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}. {% endfor %}is it relevant?"
    )
    config = msgspec.structs.replace(CPU, score_template=str(template), max_num_seqs=4)
    templated = start_engine(config, reranking_model)
    plain = reranker.run(reranker.engine.score(ask(("where", "here"))))
    result = templated.run(templated.engine.score(ask(("where", "here"))))
    assert result.prompt_tokens > plain.prompt_tokens + 5
    assert result.scores != plain.scores


def test_a_classifier_is_no_reranker(start_engine: Callable[..., Any], tmp_path: Path) -> None:
    write_reranker(tmp_path / "three", labels=3)
    with pytest.raises(ConfigurationError, match="with 3 labels, and a model that reranks has one"):
        start_engine(CPU, tmp_path / "three")


def test_a_template_needs_a_model_that_reranks(
    start_engine: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "score.jinja").write_text("x")
    config = msgspec.structs.replace(CPU, score_template=str(tmp_path / "score.jinja"))
    with pytest.raises(ConfigurationError, match="does not rerank: leave score_template out"):
        start_engine(config)


@pytest.mark.anyio
async def test_a_template_that_is_no_file_is_told_before_the_model_is_loaded() -> None:
    config = VllmConfig(score_template="/nowhere/score.jinja")
    with pytest.raises(ConfigurationError, match=r"score_template: /nowhere/score\.jinja cannot"):
        async with open_engine(config, EngineContext(name="tiny", path=str(MODEL))):
            pass


def test_the_task_becomes_vllm_s_arguments() -> None:
    context = EngineContext(name="tiny", path="/models/tiny")
    arguments = engine_arguments(VllmConfig(task="rerank", score_template="/t"), context, ())
    assert (arguments["runner"], arguments["convert"]) == ("pooling", "classify")
    assert not {"task", "score_template"} & arguments.keys()
