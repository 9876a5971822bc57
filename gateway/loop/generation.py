"""One generation as data: its turn, its prompt, its engine request, and the settings of all generations of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.constraints import Constraint
from gateway.errors import ParamPath
from gateway.loop.beam_search import Beams
from gateway.loop.policies import Policies
from gateway.loop.text_stops import RequestStops
from gateway.media.part_resolver import PartResolver
from gateway.protocols import (
    BeamSearch,
    Engine,
    EngineRequest,
    PolicyRefusal,
    RenderedPrompt,
    Sampling,
    TokensPrompt,
    Turn,
)
from gateway.wire.ids import new_id


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One prepared generation."""

    turn: Turn
    """Without the images, sounds and documents; `request.turn` has them."""
    rendered: RenderedPrompt
    request: EngineRequest
    refusal: PolicyRefusal | None = None
    """The whole output, if a policy refused the prompt. The engine then gets no request."""
    beams: Beams | None = None
    """The beam search that makes the output; None if the engine makes it."""
    beam: int = 0
    """Which of the best beams is the output."""

    async def check(self, engine: Engine) -> None:
        """Raise what the engine would raise for the generation. Starts nothing."""
        if self.beams is not None:
            await self.beams.check(engine, self.request)
        else:
            await engine.check(self.request)

    def sequences(self, n: int = 1) -> int:
        """Number of sequences that the engine generates for `n` choices."""
        search = self.request.beams if self.beams is None else self.beams.search
        return n if search is None else search.width


class GenerationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that all generations of an answer share."""

    sampling: Sampling
    stops: RequestStops
    """Those of `sampling`."""
    cache_salt: str | None = None
    owner: str = ""
    """See `EngineRequest.owner`."""
    cache_scope: str | None = None
    """See `Turn.cache_scope`."""
    priority: int = 0
    trace_headers: Mapping[str, str] | None = None
    hints: Mapping[str, str] = {}
    size: int = 0
    """Size of the request body in bytes. A hint for how long rendering takes."""
    structure: Constraint | None = None
    """The constraint on the final text, if the turn's text format cannot express it."""
    tool_params: Mapping[str, ParamPath] = {}
    """The places of the constraints of tools in the request, for errors. See `gateway.loop.error_params.tool_params`."""
    parts: PartResolver | None = None
    """Finds the images, sounds and documents of turns. From `gateway.loop.media.part_resolver`."""
    request_id: str | None = None
    """The client's own id of the request."""
    thinking_budget: int | None = None
    """Maximum number of tokens of reasoning in each generation; for engines that take tokens."""
    vllm_xargs: Mapping[str, Any] = {}
    data_parallel_rank: int | None = None
    kv_transfer_params: Mapping[str, Any] = {}
    mm_processor_kwargs: Mapping[str, Any] = {}
    beams: BeamSearch | None = None
    """The search that makes the outputs; None: the engine samples them."""
    policies: Policies | None = None
    """What is applied to prompts and output; None if there are no policies."""


def generation_id(request_id: str | None) -> str:
    """A new id of a generation. It ends with the client's own id of the request, so that it can be found in the engine's
    log."""
    own = new_id("gen_")
    return own if request_id is None else f"{own}-{request_id}"


def refused_generation(turn: Turn, refusal: PolicyRefusal, sampling: Sampling) -> Generation:
    """The generation of a prompt that a policy has refused."""
    nothing = RenderedPrompt(prompt=TokensPrompt(token_ids=()), tail="text")
    request = EngineRequest(
        request_id=new_id("gen_"), prompt=nothing.prompt, sampling=sampling, tail="text"
    )
    return Generation(turn=turn, rendered=nothing, request=request, refusal=refusal)


def variant(first: Generation, index: int) -> Generation:
    """The same generation for a further choice, with its own id and seed."""
    if index == 0:
        return first
    sampling = first.request.sampling
    seed = None if sampling.seed is None else sampling.seed + index
    _, _, client = first.request.request_id.partition("-")
    request = msgspec.structs.replace(
        first.request,
        request_id=generation_id(client or None),
        sampling=msgspec.structs.replace(sampling, seed=seed),
    )
    return msgspec.structs.replace(first, request=request, beam=index)
