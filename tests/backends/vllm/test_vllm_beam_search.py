"""Beam search on vLLM gives what vLLM's own server gives."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from gateway.base.errors import InvalidRequest
from gateway.generation.beam_search import Beams, BeamSearch
from gateway.plugins.protocols import EngineOutput, EngineRequest
from tests.waiting import wait_until_async

pytest.importorskip("vllm", reason="vLLM is not installed", exc_type=ImportError)


def ours(served: Any, request: EngineRequest, search: BeamSearch) -> list[EngineOutput]:
    async def run() -> list[EngineOutput]:
        beams = Beams(search)
        await beams.check(served.engine, request)

        async def beam(index: int) -> EngineOutput:
            async with aclosing(beams.outputs(served.engine, request, index)) as outputs:
                [output] = [output async for output in outputs]
            return output

        return await asyncio.gather(*map(beam, range(search.width)))

    result: list[EngineOutput] = served.run(run())
    return result


def theirs(served: Any, request: EngineRequest, search: BeamSearch) -> list[Any]:
    from vllm.entrypoints.generate.beam_search.online import BeamSearchOnlineMixin
    from vllm.inputs import tokens_input
    from vllm.sampling_params import BeamSearchParams

    llm = served.engine._llm

    class Server(BeamSearchOnlineMixin):  # type: ignore[misc]
        renderer, engine_client = llm.renderer, llm

    params = BeamSearchParams(
        beam_width=search.width,
        max_tokens=request.sampling.max_tokens,
        ignore_eos=request.sampling.ignore_eos,
        length_penalty=search.length_penalty,
    )

    async def run() -> Any:
        prompt = tokens_input(list(request.prompt.token_ids))  # type: ignore[union-attr]
        [output] = [each async for each in Server().beam_search(prompt, "theirs", params)]
        return output.outputs

    result: list[Any] = served.run(run())
    return result


@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize(
    "settings", [{}, {"length_penalty": 0.0}, {"length_penalty": 3.0}, {"ignore_eos": True}]
)
def test_the_beams_are_those_of_vllms_server(
    served: Any, settings: dict[str, Any], width: int
) -> None:
    penalty = settings.get("length_penalty", 1.0)
    search = BeamSearch(width=width, length_penalty=penalty)
    request = served.ask(max_tokens=12, logprobs=2, ignore_eos="ignore_eos" in settings)
    found, expected = ours(served, request, search), theirs(served, request, search)
    assert [output.text for output in found] == [each.text for each in expected]
    assert [output.finish_reason for output in found] == [each.finish_reason for each in expected]
    for output, each in zip(found, expected, strict=True):
        assert output.logprobs is not None
        total = sum(token.logprob for token in output.logprobs)
        assert total == pytest.approx(each.cumulative_logprob, rel=1e-3)
        assert b"".join(token.bytes for token in output.logprobs).decode() == output.text


def test_more_beams_than_log_probabilities_are_refused(served: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        ours(served, served.ask(), BeamSearch(width=16))
    assert refused.value.param == "best_of"
    assert "16 beams" in refused.value.message


def test_a_search_that_is_left_ends_in_the_engine(served: Any) -> None:
    engine, request = served.engine, served.ask(max_tokens=900, ignore_eos=True)

    async def leave() -> None:
        beams = Beams(BeamSearch(width=4))
        task = asyncio.create_task(anext(beams.outputs(engine, request, 0)))
        await wait_until_async(lambda: engine.running + engine.waiting > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await wait_until_async(lambda: engine.running + engine.waiting == 0)

    served.run(leave())
