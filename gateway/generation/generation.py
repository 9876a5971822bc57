"""The data of one generation (turn, prompt, engine request), and the settings of all generations of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.base.constraints import Constraint
from gateway.base.errors import ParamPath
from gateway.generation.beam_search import Beams
from gateway.generation.policies import Policies
from gateway.generation.text_stops import RequestStops
from gateway.media.part_resolver import PartResolver
from gateway.plugins.protocols import (
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
    """A prepared generation."""

    turn: Turn
    """The turn, without the contents of images, sounds and documents. `request.turn` has them."""
    rendered: RenderedPrompt
    request: EngineRequest
    refusal: PolicyRefusal | None = None
    """The whole output, if a policy refused the prompt. The engine then receives no request."""
    beams: Beams | None = None
    """The beam search that produces the output; None if the engine produces it."""
    beam: int = 0
    """The rank of the beam that is the output; 0 is the best."""

    async def check(self, engine: Engine) -> None:
        """Raise the error that the engine would raise for the generation. Does not start it."""
        if self.beams is not None:
            await self.beams.check(engine, self.request)
        else:
            await engine.check(self.request)

    def sequences(self, n: int = 1) -> int:
        """Return the number of sequences that the engine generates for `n` choices."""
        search = self.request.beams if self.beams is None else self.beams.search
        return n if search is None else search.width


class GenerationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that all generations of an answer share."""

    sampling: Sampling
    stops: RequestStops
    """The stop strings of `sampling`."""
    cache_salt: str | None = None
    owner: str = ""
    """See `EngineRequest.owner`."""
    cache_scope: str | None = None
    """See `Turn.cache_scope`."""
    priority: int = 0
    trace_headers: Mapping[str, str] | None = None
    hints: Mapping[str, str] = {}
    size: int = 0
    """Size of the request body in bytes. It indicates how long rendering takes."""
    structure: Constraint | None = None
    """The constraint on the final text, if the turn's text format cannot express it."""
    tool_params: Mapping[str, ParamPath] = {}
    """The paths of the tools' constraints in the request, for errors. See `gateway.generation.error_params.tool_params`."""
    parts: PartResolver | None = None
    """Finds the images, sounds and documents of turns. See `gateway.generation.media.part_resolver`."""
    request_id: str | None = None
    """The client's own id of the request."""
    thinking_budget: int | None = None
    """Maximum number of reasoning tokens in each generation, for engines that take tokens."""
    vllm_xargs: Mapping[str, Any] = {}
    data_parallel_rank: int | None = None
    kv_transfer_params: Mapping[str, Any] = {}
    mm_processor_kwargs: Mapping[str, Any] = {}
    beams: BeamSearch | None = None
    """The beam search that produces the outputs; None if the engine samples them."""
    policies: Policies | None = None
    """The policies that are applied to prompts and output; None if there are none."""


def generation_id(request_id: str | None) -> str:
    """Return a new generation id. It ends with the client's own request id, if any, so that the request can be found in
    the engine's log."""
    own = new_id("gen_")
    return own if request_id is None else f"{own}-{request_id}"


def refused_generation(turn: Turn, refusal: PolicyRefusal, sampling: Sampling) -> Generation:
    """Return the generation of a prompt that a policy refused."""
    nothing = RenderedPrompt(prompt=TokensPrompt(token_ids=()), tail="text")
    request = EngineRequest(
        request_id=new_id("gen_"), prompt=nothing.prompt, sampling=sampling, tail="text"
    )
    return Generation(turn=turn, rendered=nothing, request=request, refusal=refusal)


def variant(first: Generation, index: int) -> Generation:
    """Return `first` for the choice `index`, with an id and a seed of its own."""
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
